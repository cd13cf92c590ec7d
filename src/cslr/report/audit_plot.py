"""A plot of an audit's lower bounds next to the claimed ε."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

from cslr.audit.confidence import Bound
from cslr.audit.plans import Audited
from cslr.files import write_atomic

__all__ = ["plot_audit"]

_GOOD, _BAD, _CLAIM = "#1f5fa8", "#b5432e", "#222222"


def plot_audit(audited: Audited, bounds: Sequence[Bound], path: Path) -> None:
    """Write a bar chart of the lower bounds with the claimed ε as a line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 1.4 + 0.6 * len(bounds)), layout="constrained")
    axes = figure.add_subplot()
    names = [f"{bound.what}\n{100 * bound.confidence:g} % confidence" for bound in bounds]
    colours = [_GOOD if bound.holds else _BAD for bound in bounds]
    bars = axes.barh(names, [bound.lower for bound in bounds], color=colours, height=0.55)
    axes.bar_label(bars, fmt="%.2f", padding=4)
    claimed = audited.plan.epsilon("roster")
    if math.isfinite(claimed):
        axes.axvline(claimed, color=_CLAIM, linestyle="--")
    most = max([bound.lower for bound in bounds] + [claimed if math.isfinite(claimed) else 0.0])
    axes.set_xlim(0, 1.15 * max(most, 0.1))
    axes.invert_yaxis()
    axes.set_xlabel(f"lower bound on ε at δ = {audited.plan.budget.delta:g}")
    title = f"{audited.name}: lower bounds from attacks, and the claimed ε = {_shown(claimed)}"
    axes.set_title(title, fontsize=10, parse_math=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    write_atomic(path, buffer.getvalue())


def _shown(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:.4g}"
