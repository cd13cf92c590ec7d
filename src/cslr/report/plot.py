"""Scores over tasks, as a picture."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

from cslr.files import write_atomic
from cslr.runs.results import Result

__all__ = ["plot_accuracy"]

_STYLES = {
    "joint": {"color": "#8a8a8a", "linestyle": ":"},
    "zero-shot": {"color": "#c58b2a", "linestyle": "--"},
    "finetune": {"color": "#b5432e", "linestyle": "-"},
    "majority": {"color": "#b9b9b9", "linestyle": "--"},
}


def plot_accuracy(result: Result, path: Path) -> None:
    """Write the curve of mean score on the tasks seen so far, the method beside its yardsticks."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    tasks = [task.name for task in result.stream.tasks]
    for name, figures in result.figures.items():
        is_method = name == result.config.method
        style = {"color": "#1f5fa8", "linewidth": 2.5, "zorder": 3} if is_method else _STYLES[name]
        axes.plot(range(len(tasks)), figures.curve, marker="o", label=name, **style)
    ticks = [f"{i + 1}. {name}" for i, name in enumerate(tasks)]
    crowded = sum(map(len, ticks)) > 72
    turned: dict[str, Any] = (
        {"rotation": 20, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    )
    # A task's name is a name, whatever it holds; a $ in it begins no formula.
    axes.set_xticks(range(len(tasks)), ticks, parse_math=False, **turned)
    axes.set_xlabel("after learning task")
    axes.set_ylabel(f"mean {result.metric} on the tasks seen so far, %")
    axes.set_ylim(0, 102)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, ncols=2)
    axes.set_title(_title(result), fontsize=10)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that the font does not have
        figure.savefig(buffer, format="png", dpi=130)
    write_atomic(path, buffer.getvalue())


def _title(result: Result) -> str:
    config = result.config
    roster = result.cost["epsilon"].get("end_to_end", {}).get("roster")
    epsilon = "∞" if roster is None else f"{roster:.3g}"
    unit = "" if config.privacy.unit == "client" else f" for one of {result.units} people"
    return (
        f"{result.stream.name} · {result.scenario}-incremental · {result.clients} clients · "
        f"end-to-end ε = {epsilon}{unit} (roster, δ = {config.privacy.delta:g})"
    )
