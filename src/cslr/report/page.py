"""One self-contained HTML page: no address in it is ever fetched.

Colours are CSS variables with a light and a dark value, which charts use too. There is no script
from anybody else in a page, so nothing has to be trusted to read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from cslr import __version__

__all__ = ["details", "figure", "figures", "page", "paragraph", "section", "table"]

_STYLE: Final = """
:root { color-scheme: light dark;
  --bg: #ffffff; --panel: #f4f6f9; --text: #1b2430; --muted: #566273; --line: #c9d1db;
  --method: #1f5fa8; --joint: #5d6b7c; --zero: #8a5a00; --finetune: #b5432e; --majority: #757f8c;
  --good: #14653a; --bad: #8a4b00; --heat: #1f5fa8; --link: #1f5fa8;
  --k0: #1f5fa8; --k1: #b5432e; --k2: #14753f; --k3: #8a5a00; --k4: #7a3f9d; --k5: #00727a;
  --k6: #a83279; --k7: #5d6b7c; }
@media (prefers-color-scheme: dark) { :root {
  --bg: #12171f; --panel: #1b222c; --text: #e6ebf2; --muted: #a3afbf; --line: #3a4553;
  --method: #6fb1f5; --joint: #aab5c3; --zero: #e0b04f; --finetune: #f08a75; --majority: #939eac;
  --good: #6fd39a; --bad: #f0b35a; --heat: #4f93dd; --link: #8cc2fa;
  --k0: #6fb1f5; --k1: #f08a75; --k2: #6fd39a; --k3: #e0b04f; --k4: #c79be6; --k5: #5fd0d8;
  --k6: #f08ac4; --k7: #aab5c3; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main, header, footer { max-width: 68rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.35rem; margin: .5rem 0; } h2 { font-size: 1.15rem; margin: 1.8rem 0 .4rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
a { color: var(--link); } .muted { color: var(--muted); } p { margin: .4rem 0; max-width: 46rem; }
.verdict { font-size: 1.3rem; line-height: 1.35; font-weight: 650; border-left: .3rem solid
  var(--muted); padding: .5rem .9rem; background: var(--panel); margin: .6rem 0; }
.verdict.above { border-color: var(--good); } .verdict.below { border-color: var(--bad); }
.figures { display: flex; flex-wrap: wrap; gap: .6rem; margin: .8rem 0; padding: 0; }
.figures > div { background: var(--panel); border-radius: .5rem; padding: .5rem .9rem;
  border-top: .2rem solid var(--line); min-width: 8.5rem; flex: 1 1 8.5rem; max-width: 16rem; }
.figures dt { color: var(--muted); font-size: .88rem; }
.figures dd { margin: 0; font-size: 1.35rem; font-weight: 650; font-variant-numeric: tabular-nums; }
.figures .own { border-color: var(--method); } .figures .zero { border-color: var(--zero); }
.figures .joint { border-color: var(--joint); } .figures .finetune { border-color:
  var(--finetune); }
.run { border-top: 2px solid var(--line); margin-top: 2.5rem; padding-top: .5rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr));
  gap: 1.2rem 2rem; align-items: start; }
figure { margin: 0; } figcaption { font-size: .92rem; color: var(--muted); max-width: 46rem; }
svg { width: 100%; height: auto; display: block; max-width: 34rem; color: var(--text); }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.scroll { overflow-x: auto; margin: .4rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .94rem; }
caption { text-align: left; color: var(--muted); font-size: .92rem; padding: .2rem 0; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; }
td.words, th.words { text-align: left; min-width: 12rem; }
table tbody tr:hover { background: var(--panel); }
.index td, .index th { text-align: left; white-space: nowrap; } .index td.words {
  white-space: normal; min-width: 15rem; }
pre { background: var(--panel); padding: .7rem; overflow-x: auto; font-size: .85rem; }
summary { cursor: pointer; color: var(--link); padding: .2rem 0; }
summary:focus-visible, a:focus-visible, .scroll:focus-visible, pre:focus-visible,
  input:focus-visible, select:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
.flow { list-style: none; padding: 0; margin: .6rem 0; display: flex; gap: 1.9rem; }
.flow > li { background: var(--panel); border: 1px solid var(--line); border-radius: .5rem;
  padding: .6rem .8rem; flex: 1 1 0; position: relative; } .flow strong { display: block; }
.flow > li:first-child { border-left: .3rem solid var(--good); }
.flow > li:last-child { border-right: .3rem solid var(--bad); }
.flow > li + li::before { content: "→" / ""; position: absolute; left: -1.6rem; top: 50%;
  transform: translateY(-50%); font-size: 1.3rem; color: var(--muted); }
@media (max-width: 52rem) { .flow { flex-direction: column; }
  .flow > li + li::before { content: "↓" / ""; left: 50%; top: -1.7rem; transform: none; } }
.flow .seen { color: var(--muted); font-size: .9rem; display: block; margin-top: .3rem; }
@media print { details { display: block; } }
"""


def page(title: str, body: str, script: str = "") -> str:
    """A whole document."""
    run = f"<script>{script}</script>" if script else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>"
        '<link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style></head>\n"
        f"<body><main>\n<h1>{escape(title)}</h1>\n{body}\n</main>"
        f'<footer class="muted">Written by cslr {escape(__version__)}. This page loads nothing '
        f"from anywhere.</footer>{run}</body></html>\n"
    )


def figures(shown: Iterable[tuple[str, str, str]]) -> str:
    """Key figures as tiles: (what, figure, kind), where kind gives the colour."""
    tiles = "".join(
        f'<div class="{kind}"><dt>{escape(what)}</dt><dd>{escape(value)}</dd></div>'
        for what, value, kind in shown
    )
    return f'<dl class="figures">{tiles}</dl>' if tiles else ""


def paragraph(text: str, kind: str = "") -> str:
    """Plain text as a paragraph."""
    marked = f' class="{kind}"' if kind else ""
    return f"<p{marked}>{escape(text)}</p>"


def section(title: str, *parts: str, level: int = 2) -> str:
    """A heading and what stands below it; nothing if there is nothing."""
    content = "\n".join(part for part in parts if part)
    return f"<h{level}>{escape(title)}</h{level}>\n{content}\n" if content else ""


def figure(drawn: str, caption: str, data: str = "") -> str:
    """A chart with what it shows in words, and its numbers below."""
    numbers = details("The numbers", data) if data else ""
    return f"<figure>{drawn}<figcaption>{escape(caption)}</figcaption>{numbers}</figure>"


def details(summary: str, content: str) -> str:
    """Something to unfold."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def table(
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str,
    styles: Sequence[Sequence[str]] | None = None,
    words: bool = False,
) -> str:
    """A table of plain texts; ``styles`` are of its cells after the first of each row."""
    kind = ' class="words"' if words else ""
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name in names)
    body = []
    for i, (first, *cells) in enumerate(rows):
        shown = "".join(
            f"<td{kind}{_styled(styles, i, j)}>{escape(cell)}</td>" for j, cell in enumerate(cells)
        )
        body.append(f'<tr><th scope="row">{escape(first)}</th>{shown}</tr>')
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _styled(styles: Sequence[Sequence[str]] | None, row: int, column: int) -> str:
    style = styles[row][column] if styles is not None else ""
    return f' style="{style}"' if style else ""
