"""One figure that sums up a stream: scores of CSLR next to its yardsticks, and each run's ε."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cslr.errors import ConfigError
from cslr.files import write_atomic
from cslr.report.charts import curve
from cslr.report.run_facts import RunFacts, read_facts

__all__ = ["write_story"]

_STYLES: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "joint": ("pooled training, no privacy", "#6b7785", {"linestyle": ":", "linewidth": 2}),
    "zero-shot": ("zero-shot, no private data", "#a86b00", {"linestyle": "--", "linewidth": 2}),
    "finetune": ("finetune, which forgets", "#b5432e", {"linestyle": "-.", "linewidth": 2}),
}
_UNITS: Final = {"person": ("#1f5fa8", "o"), "client": ("#4a86c5", "s")}
_APART: Final = 5.5
"""Least vertical distance of two labels, in points of the score."""


def write_story(runs: Sequence[Path], path: Path) -> None:
    """Draw runs on one stream: with a person as the unit of privacy, with a client, or both.

    The file is PNG or SVG, depending on its suffix.
    """
    facts = [read_facts(run) for run in runs]
    _check(facts)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.4), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    tasks = facts[0].tasks
    matrices = facts[0].matrices
    ends = [_line(axes, matrices[name], *_STYLES[name]) for name in _STYLES if name in matrices]
    for run in facts:
        unit = run.config.privacy.unit
        colour, marker = _UNITS[unit]
        epsilon = run.result["epsilon"]["end_to_end"]["roster"]
        shown = "∞" if epsilon is None else f"{epsilon:.3g}"
        style = {"linewidth": 3, "marker": marker, "markersize": 7, "zorder": 5}
        label = f"CSLR, ε = {shown} for a {unit}"
        ends.append(_line(axes, run.matrices[run.result["method"]], label, colour, style))
    _label(axes, ends, len(tasks))
    axes.set_xticks(range(1, len(tasks) + 1), tasks, parse_math=False)
    axes.set_xlim(0.85, len(tasks) + 0.05)
    axes.set_ylim(0, 102)
    axes.set_xlabel("after learning")
    result = facts[0].result
    what = f"{result['stream']}: {len(tasks)} tasks, one after another, {result['clients']} clients"
    axes.set_title(what, fontsize=11, loc="left", parse_math=False)
    axes.set_ylabel("accuracy on all tasks so far, %")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix(".") or "png", dpi=160)
    write_atomic(path, buffer.getvalue())


def _check(runs: Sequence[RunFacts]) -> None:
    if len({(run.result["stream"], run.tasks) for run in runs}) != 1:
        raise ConfigError("--story needs runs on one stream with the same tasks")
    for run in runs:
        if run.result["method"] not in run.matrices:
            raise ConfigError(f"{run.run.path}: no exact scores are stored, so nothing is drawn")


def _line(
    axes: Any, matrix: Any, label: str, colour: str, style: dict[str, Any]
) -> tuple[float, str, str]:
    """Draw a curve; returns its last value, its label and its colour."""
    values = curve(matrix)
    axes.plot(range(1, len(values) + 1), values, color=colour, **style)
    return values[-1], label, colour


def _label(axes: Any, ends: list[tuple[float, str, str]], tasks: int) -> None:
    """Write labels to the right of the lines, from top to bottom, so that none overlap."""
    below = 200.0
    for value, label, colour in sorted(ends, reverse=True):
        below = min(value, below - _APART)
        text = f"  {label}: {value:.0f} %"
        at = {"xytext": (tasks + 0.05, below), "textcoords": "data", "va": "center"}
        axes.annotate(text, (tasks, value), color=colour, annotation_clip=False, **at)
