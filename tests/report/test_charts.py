"""Charts that are laid out once equal those that matplotlib lays out itself."""

from __future__ import annotations

import io
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from cslr.report.charts import lay_out


def chart() -> Figure:
    """Two panels with texts outside, a legend and points: what a layout has to make room for."""
    figure = Figure(figsize=(5, 3), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.plot([0, 1, 4], [1, 9, 3], label="a rather long name")
    left.set_xticks([0, 4], ["first task", "last task"], rotation=20, ha="right")
    left.set_ylabel("mean score, %")
    left.legend()
    right.scatter(np.arange(5), np.arange(5) ** 2)
    figure.suptitle("a title")
    return figure


def saved(kind: str, canvas: Any, *, once: bool) -> str | bytes:
    """A chart as a file: laid out and drawn once, or by ``savefig``."""
    svg = kind == "svg"
    figure, metadata = chart(), {"Date": None, "Creator": None} if svg else None
    buffer: Any = io.StringIO() if svg else io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "cslr", "svg.fonttype": "none"}):
        if once:
            drawing = canvas(figure)
            lay_out(figure)
            getattr(drawing, f"print_{kind}")(buffer, metadata=metadata)
        else:
            figure.savefig(buffer, format=kind, metadata=metadata)
    content: str | bytes = buffer.getvalue()
    return content


def test_a_chart_laid_out_once_is_the_one_that_savefig_writes():
    for kind, canvas in (("svg", FigureCanvasSVG), ("png", FigureCanvasAgg)):
        assert saved(kind, canvas, once=True) == saved(kind, canvas, once=False)
