"""The charts of a run, each a function of plain values.

Charts of a page are inline SVG, drawn by matplotlib and coloured by the page's style sheet. Such a
chart needs no script and no library in the page, can be printed, and takes some ten kilobytes. Its
colours are placeholders that are replaced by CSS variables, so it works on light and dark pages.
``plot_accuracy`` writes a PNG file instead.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.files import write_atomic
from cslr.runs.results import Result

__all__ = [
    "COLOURS",
    "LABEL_COLOURS",
    "Matrix",
    "accuracy_chart",
    "bars_chart",
    "budget_chart",
    "curve",
    "drawn",
    "lay_out",
    "map_chart",
    "plot_accuracy",
    "task_panels",
]

COLOURS: Final = {
    "text": "#000001",
    "line": "#000002",
    "muted": "#000003",
    "bg": "#000004",
    "method": "#000010",
    "joint": "#000011",
    "zero": "#000012",
    "finetune": "#000013",
    "majority": "#000014",
    **{f"k{n}": f"#0000{0x20 + n:02x}" for n in range(8)},
}
"""Placeholder colours by the name of the CSS variable that replaces them."""

LABEL_COLOURS: Final = tuple(COLOURS[f"k{n}"] for n in range(8))

_SETTINGS: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cslr",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": COLOURS["text"],
    "axes.labelcolor": COLOURS["text"],
    "axes.edgecolor": COLOURS["line"],
    "xtick.color": COLOURS["text"],
    "ytick.color": COLOURS["text"],
    "grid.color": COLOURS["line"],
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "text.parse_math": False,
}


def drawn(
    draw: Callable[[Any], None], description: str, name: str, size: tuple[float, float] = (5.2, 3.4)
) -> str:
    """The SVG of what ``draw`` does to a figure; ``name`` must be unique in the page."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that the font does not have
        figure = Figure(figsize=size, layout="constrained")
        canvas: Any = FigureCanvasSVG(figure)
        draw(figure)
        lay_out(figure)
        canvas.print_svg(buffer, metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue(), description, name)


def lay_out(figure: Any) -> None:
    """Lay a figure out once now; ``savefig`` would do it twice and draw everything twice."""
    figure.get_layout_engine().execute(figure)
    figure.set_layout_engine("none")


def _inline(text: str, description: str, name: str) -> str:
    """An SVG element for a page: unique ids, no fixed size, CSS variables for colours."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text)
    text = text.replace("xlink:href", "href")
    text = re.sub(r' id="', f' id="{name}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\1{name}-", text)
    text = re.sub(r"(\d\.\d\d)\d+", r"\1", text)
    text = re.sub(r"\n\s*", "\n", text)
    for variable, stand_in in COLOURS.items():
        text = text.replace(stand_in, f"var(--{variable})")
    label = escape(description)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()


# -- the charts of a report ------------------------------------------------------------------------

_LINES: dict[str, dict[str, Any]] = {
    "joint": {"color": COLOURS["joint"], "linestyle": ":", "label": "pooled (joint)"},
    "zero-shot": {"color": COLOURS["zero"], "linestyle": "--"},
    "finetune": {"color": COLOURS["finetune"], "linestyle": "-."},
    "majority": {"color": COLOURS["majority"], "linestyle": (0, (1, 3))},
}
_OWN: dict[str, Any] = {"color": COLOURS["method"], "linewidth": 2.6, "marker": "o", "zorder": 5}

Matrix = Sequence[Sequence[float | None]]


def as_array(matrix: Matrix) -> FloatArray:
    """(T + 1, T), NaN where there is no score."""
    return np.array([[math.nan if x is None else x for x in row] for row in matrix])


def curve(matrix: Matrix) -> list[float]:
    """Mean score on the tasks seen, after each task."""
    scores = as_array(matrix)
    return [float(scores[r, :r].mean()) for r in range(1, len(scores))]


def accuracy_chart(
    matrices: Mapping[str, Matrix], method: str, tasks: Sequence[str], metric: str, name: str
) -> str:
    """Mean score on the tasks seen so far: the method next to its yardsticks."""
    ends = {which: curve(matrix) for which, matrix in matrices.items()}

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        steps = range(1, len(tasks) + 1)
        for which, values in ends.items():
            style = {"label": which, **(_OWN if which == method else _LINES.get(which, {}))}
            axes.plot(steps, values, **style)
        _gap_band(axes, steps, ends.get("zero-shot"), ends.get("joint"))
        _task_axis(axes, tasks)
        axes.set_ylim(0, 102)
        axes.set_ylabel(f"{metric} on tasks seen, %")
        axes.grid(axis="y", alpha=0.5, linewidth=0.6)
        axes.legend(fontsize=9, ncols=2, loc="lower left")

    last = ", ".join(f"{which} {values[-1]:.1f} %" for which, values in ends.items())
    return drawn(draw, f"Line chart of mean {metric} over tasks. After the last: {last}.", name)


def _gap_band(
    axes: Any, steps: Sequence[int], low: Sequence[float] | None, high: Sequence[float] | None
) -> None:
    """Shade what private data can add: from zero-shot up to pooled training."""
    if low is None or high is None:
        return
    band = {"color": COLOURS["joint"], "alpha": 0.22, "linewidth": 0, "label": "gap to pooled"}
    axes.fill_between(
        steps,
        low,
        high,
        where=[b >= a for a, b in zip(low, high, strict=True)],
        interpolate=True,
        **band,
    )


def task_panels(
    matrices: Mapping[str, Matrix], method: str, tasks: Sequence[str], name: str
) -> str:
    """A small panel for each task: its score after each task from its own on."""
    columns = 2 if len(tasks) <= 4 else 3
    lines = math.ceil(len(tasks) / columns)
    arrays = {which: as_array(matrix) for which, matrix in matrices.items()}

    def draw(figure: Any) -> None:
        shared = {"sharex": True, "sharey": True, "squeeze": False}
        panels = figure.subplots(lines, columns, **shared).ravel()
        for j, (axes, task) in enumerate(zip(panels, tasks, strict=False)):
            for which, scores in arrays.items():
                style = _OWN if which == method else _LINES.get(which, {})
                learnt = scores[j + 1 :, j]
                marks = {"marker": "o", "markersize": 4 if which == method else 2.5}
                axes.plot(range(j + 1, len(tasks) + 1), learnt, **{**style, **marks})
            axes.set_title(task if len(task) < 18 else f"{task[:16]}…", fontsize=10)
            axes.set_ylim(0, 102)
            axes.set_xlim(0.8, len(tasks) + 0.2)
            axes.grid(axis="y", alpha=0.5, linewidth=0.6)
            axes.set_xticks(range(1, len(tasks) + 1, max(1, len(tasks) // 4)))
        for axes in panels[len(tasks) :]:
            axes.set_visible(False)
        figure.supxlabel("tasks learnt", fontsize=10)

    description = "Small line charts, one for each task: its score from the moment it is learnt on."
    return drawn(draw, description, name, (5.2, 0.5 + 1.5 * lines))


def budget_chart(
    spent: Sequence[float], scores: Sequence[float] | None, tasks: Sequence[str], name: str
) -> str:
    """ε spent after each task, above the score after that task."""

    def draw(figure: Any) -> None:
        panels = np.atleast_1d(figure.subplots(1 if scores is None else 2, 1, sharex=True))
        steps = range(len(tasks) + 1)
        finite = [value if math.isfinite(value) else math.nan for value in spent]
        panels[0].step(steps, [0.0, *finite], where="post", color=COLOURS["method"], linewidth=2.2)
        panels[0].plot(steps, [0.0, *finite], "o", color=COLOURS["method"], clip_on=False)
        panels[0].set_ylabel("ε spent")
        panels[0].set_ylim(0, 1.15 * max([1e-3, *[x for x in finite if math.isfinite(x)]]))
        if scores is not None:
            panels[1].plot(steps[1:], scores, **_OWN)
            panels[1].set_ylabel("score, %")
            panels[1].set_ylim(0, 102)
        for axes in panels:
            axes.grid(axis="y", alpha=0.5, linewidth=0.6)
        _task_axis(panels[-1], tasks, first=0)

    total = f"{spent[-1]:.3g}" if spent and math.isfinite(spent[-1]) else "∞"
    return drawn(draw, f"Timeline of ε spent by task; {total} after the last.", name, (5.2, 3.6))


def map_chart(
    picture: Mapping[str, FloatArray],
    labels: Sequence[str],
    cloud: tuple[FloatArray, FloatArray] | None,
    name: str,
) -> str:
    """The plane of the public space: anchors, prototypes, released modes with their ellipses.

    cloud: (n, 2) true rows and their labels (n,), in a simulation only.
    """

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        small = {"s": 12, "marker": "+", "linewidth": 0.8, "alpha": 0.7}
        axes.scatter(*picture["anchors"].T, color=COLOURS["muted"], label="anchor", **small)
        if cloud is not None:
            points, kinds = cloud
            shown = [LABEL_COLOURS[int(kind) % 8] for kind in kinds]
            axes.scatter(*points.T, s=10, color=shown, alpha=0.35, linewidth=0)
        for k in range(len(picture["means"])):
            _mode(axes, picture, k, labels)
        crosses = {"s": 34, "marker": "x", "color": COLOURS["text"], "linewidth": 1.2}
        axes.scatter(*picture["prototypes"].T, label="prototype", **crosses)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_aspect("equal", adjustable="datalim")
        axes.legend(fontsize=9, loc="best", framealpha=0.0)
        axes.spines[["left", "bottom"]].set_visible(False)

    description = (
        f"Map of the public space with {len(picture['anchors'])} anchors and "
        f"{len(picture['means'])} modes: {', '.join(labels)}."
    )
    return drawn(draw, description, name, (5.2, 4.2))


def _mode(axes: Any, picture: Mapping[str, FloatArray], k: int, labels: Sequence[str]) -> None:
    """A mode and one standard deviation around it; dotted if nothing was released about it."""
    from matplotlib.patches import Ellipse

    label, mean = int(picture["labels"][k]), picture["means"][k]
    known, colour = bool(picture["known"][k]), LABEL_COLOURS[label % 8]
    values, vectors = np.linalg.eigh(picture["covariance"][k])
    width, height = 2 * np.sqrt(np.maximum(values, 0.0))
    angle = math.degrees(math.atan2(vectors[1, 0], vectors[0, 0]))
    style = {"fill": False, "color": colour, "linestyle": "-" if known else ":"}
    axes.add_patch(Ellipse(mean, width, height, angle=angle, **style))
    axes.plot(*mean, "o" if known else ".", color=colour, markersize=6)
    offset = {"xytext": (6, 5), "textcoords": "offset points", "zorder": 6}
    box = {"facecolor": COLOURS["bg"], "edgecolor": "none", "alpha": 0.75, "pad": 1}
    axes.annotate(_short(labels[label]), mean, color=colour, fontsize=10, bbox=box, **offset)


def bars_chart(values: Mapping[str, float], what: str, line: float | None, name: str) -> str:
    """Horizontal bars; ``line`` is a reference level."""

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        names, heights = list(values), list(values.values())
        bars = axes.barh(names, heights, color=COLOURS["method"], height=0.6)
        axes.bar_label(bars, [_figure(x) for x in heights], padding=3, fontsize=9)
        axes.set_xlim(0, 1.18 * max([1e-3, *heights, line or 0.0]))
        if line is not None:
            axes.axvline(line, color=COLOURS["finetune"], linestyle="--", linewidth=1)
        axes.invert_yaxis()
        axes.set_xlabel(what)

    description = ", ".join(f"{key} {_figure(value)}" for key, value in values.items())
    return drawn(draw, f"Bar chart, {what}: {description}.", name, (5.2, 1.0 + 0.3 * len(values)))


def _task_axis(axes: Any, tasks: Sequence[str], first: int = 1) -> None:
    """Ticks with the tasks' names where they fit, else their numbers."""
    named = sum(map(len, tasks)) <= 40
    ticks = [_short(task) if named else str(i + 1) for i, task in enumerate(tasks)]
    start = ["start"] if first == 0 else []
    axes.set_xticks(range(first, len(tasks) + 1), [*start, *ticks])
    axes.set_xlabel("after learning task")


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _short(text: str) -> str:
    return text if len(text) <= 14 else f"{text[:12]}…"


# -- scores over tasks, as a picture of its own ----------------------------------------------------

_STYLES = {
    "joint": {"color": "#8a8a8a", "linestyle": ":"},
    "zero-shot": {"color": "#c58b2a", "linestyle": "--"},
    "finetune": {"color": "#b5432e", "linestyle": "-"},
    "majority": {"color": "#b9b9b9", "linestyle": "--"},
}


def plot_accuracy(result: Result, path: Path) -> None:
    """Plot the mean score on the tasks seen so far, the method next to its yardsticks."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), dpi=130, layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
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
    # A $ in a task's name does not begin a formula.
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
        lay_out(figure)
        canvas.print_png(buffer)
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
