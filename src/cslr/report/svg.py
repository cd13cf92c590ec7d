"""Charts as SVG inside a page: drawn by matplotlib here, coloured by the page's style sheet.

A chart of matplotlib needs no script and no library in the page, opens at once, prints, and costs
some ten kilobytes. Its colours are stand-ins that become CSS variables, so light and dark pages
show the same chart.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from html import escape
from typing import Any, Final

__all__ = ["COLOURS", "LABEL_COLOURS", "drawn"]

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
"""Stand-ins by the name of the CSS variable that replaces them."""

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
    """The SVG of what ``draw`` does to a figure; ``name`` is one of its own in the page."""
    import matplotlib
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that the font does not have
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue(), description, name)


def _inline(text: str, description: str, name: str) -> str:
    """An SVG element for a page: own ids, no fixed size, variables for colours."""
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
