"""The paper's figures in the paper's form: ``cslr tables --figures`` draws them from traces.

pipeline     Figure 1: the steps of a round
anchors      Figure 2: score by the number of anchors m, with the saturation point m*
privacy      scores by ε, from the table of privacy scopes
forgetting   mean score on the tasks seen so far, after each task
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure as Canvas

from cslr.files import write_atomic
from paper.figure import Figure
from paper.names import called
from paper.statistics import paired_t
from paper.traces import Trace
from paper.verdicts import Tables

__all__ = ["draw", "saturation"]

_STEPS: Final = (
    ("Client text", "D_i,t"),
    ("Frozen encoder", "z = φ(x)"),
    ("DP list learner", "L entries"),
    ("Anchor signatures", "log q(φ(a_j))"),
    ("Canonical matching", "ids 1..K"),
    ("Noisy aggregation", "μ, Σ, π"),
    ("Replay generator", "Q_t"),
    ("Rehearsal training", "L_task + λ L_replay"),
)
_COLOURS: Final = (
    "#f2f2f2",
    "#e0ecf8",
    "#e2f0d9",
    "#fce5cd",
    "#e8def8",
    "#fce5cd",
    "#e2f0d9",
    "#e0ecf8",
)
_FORGETTING: Final = ("cslr", "cslr-paper", "dp-sgd", "finetune", "joint")


def draw(tables: Tables, traces: Mapping[str, Trace], out: Path) -> list[Path]:
    """Write the figures for which there are traces; the pipeline needs none."""
    drawings = {
        "pipeline": _pipeline(),
        "anchors": _anchors(tables),
        "privacy": _privacy(tables),
        "forgetting": _forgetting(tables, traces),
    }
    written = []
    for name, canvas in drawings.items():
        if canvas is not None:
            path = out / f"figure-{name}.svg"
            write_atomic(path, _svg(canvas))
            written.append(path)
    return written


def saturation(by_size: Mapping[int, Figure]) -> int | None:
    """m*: the least m that no larger one beats by a paired 95 % interval above 0; None: unknown."""
    known = sorted(m for m, figure in by_size.items() if figure.known)
    for place, m in enumerate(known):
        if not any(_beats(by_size[larger], by_size[m]) for larger in known[place + 1 :]):
            return m
    return None


def _beats(larger: Figure, smaller: Figure) -> bool:
    seeds = [seed for seed in larger.by_seed if seed in smaller.by_seed]
    if len(seeds) < 2:
        return False
    x, y = ([each.by_seed[seed] for seed in seeds] for each in (larger, smaller))
    return paired_t(x, y).interval.low > 0


def _svg(canvas: Canvas) -> bytes:
    """The figure as SVG; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "cslr", "svg.fonttype": "none"}):
        canvas.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _axes(xlabel: str, ylabel: str) -> tuple[Canvas, Any]:
    canvas = Canvas(figsize=(5.2, 3.4), layout="constrained")
    axes = canvas.add_subplot()
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.3, linestyle="--")
    return canvas, axes


def _pipeline() -> Canvas:
    """Two rows of four boxes, the second from right to left, and the public anchors above."""
    canvas = Canvas(figsize=(9, 3.6))
    axes = canvas.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, 4)
    axes.set_ylim(0, 3)
    places = [(x + 0.5, 1.6) for x in range(4)] + [(3.5 - x, 0.5) for x in range(4)]
    for (x, y), (title, what), colour in zip(places, _STEPS, _COLOURS, strict=True):
        _box(axes, (x, y), f"{title}\n{what}", colour)
    _box(axes, (3.5, 2.6), "Public anchors\na_1, …, a_m", "#e8def8")
    for start, end in zip([*places, (3.5, 2.6)], [*places[1:], None, (3.5, 1.6)], strict=True):
        if end is not None:
            arrow = {"arrowstyle": "->", "color": "#5a5a5a", "shrinkA": 34, "shrinkB": 34}
            if start[0] == end[0]:
                arrow |= {"shrinkA": 18, "shrinkB": 18}
            axes.annotate("", xy=end, xytext=start, arrowprops=arrow)
    return canvas


def _box(axes: Any, place: tuple[float, float], text: str, colour: str) -> None:
    box = {"boxstyle": "round,pad=0.5", "facecolor": colour, "edgecolor": "#5a5a5a"}
    axes.text(*place, text, ha="center", va="center", fontsize=9, bbox=box, parse_math=False)


def _anchors(tables: Tables) -> Canvas | None:
    built = tables.get(("anchors", "anchors"))
    if built is None or built.layout is None:
        return None
    entries = {
        int(column[0]): figure
        for ((row,), column), figure in built.layout.entries.items()
        if row == "ag-news" and figure.known
    }
    if not entries:
        return None
    canvas, axes = _axes("anchor set size m", "average accuracy, %")
    sizes = sorted(entries)
    means = [entries[m].spread.mean for m in sizes]
    axes.errorbar(sizes, means, [entries[m].spread.sd for m in sizes], marker="o", capsize=3)
    axes.set_xticks(sizes)
    best = saturation(entries)
    if best is not None:
        axes.axvline(best, color="red", linestyle="--")
        axes.annotate(
            f"m* = {best}",
            (best, max(means)),
            color="red",
            xytext=(4, 4),
            textcoords="offset points",
        )
    return canvas


def _privacy(tables: Tables) -> Canvas | None:
    built = tables.get(("privacy", "privacy"))
    if built is None or built.layout is None:
        return None
    canvas, axes = _axes("ε that noise was calibrated for", "average accuracy, %")
    drawn = False
    for (method,) in built.layout.rows:
        points = [
            (float(column[0]), figure.spread.mean, figure.spread.sd)
            for (row, column), figure in built.layout.entries.items()
            if row == (method,) and figure.known
        ]
        if points:
            x, y, error = zip(*sorted(points), strict=True)
            axes.errorbar(x, y, error, marker="o", capsize=3, label=called("method", method))
            drawn = True
    axes.legend(frameon=False, fontsize=8)
    return canvas if drawn else None


def _forgetting(tables: Tables, traces: Mapping[str, Trace]) -> Canvas | None:
    built = tables.get(("main", "main"))
    if built is None:
        return None
    canvas, axes = _axes("after learning task", "mean score on the tasks seen so far, %")
    drawn = False
    for method in _FORGETTING:
        curves = [
            _curve(traces[cell.name])
            for cell in built.cells
            if cell.name in traces
            and (cell.config.method, cell.config.stream.name) == (method, "ag-news")
        ]
        if curves:
            mean = np.mean(curves, axis=0)
            axes.plot(range(1, len(mean) + 1), mean, marker="o", label=called("method", method))
            drawn = True
    axes.legend(frameon=False, fontsize=8)
    return canvas if drawn else None


def _curve(trace: Trace) -> list[float]:
    """The mean over the tasks seen so far, after each task."""
    return [float(np.mean(trace.matrix[r, :r])) for r in range(1, len(trace.tasks) + 1)]
