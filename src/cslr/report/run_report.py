"""The HTML report: one run or several in one self-contained file, and the parts of such a page.

A page loads nothing from the network and contains no third-party script. Colours are CSS variables
with a light and a dark value, which charts use too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from cslr import __version__
from cslr.files import write_atomic
from cslr.methods.cslr import BLOCK_NAMES
from cslr.report.charts import (
    accuracy_chart,
    bars_chart,
    budget_chart,
    curve,
    map_chart,
    task_panels,
)
from cslr.report.run_facts import (
    RunFacts,
    adversaries,
    command_of,
    match_words,
    privacy_words,
    read_facts,
    who_sees_what,
)
from cslr.runs.results import verdict_of

__all__ = [
    "details",
    "figure",
    "figures",
    "page",
    "paragraph",
    "report_page",
    "run_parts",
    "section",
    "table",
    "verdict_box",
    "write_report",
]

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
    """A complete HTML document."""
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
    """Key figures as tiles: (what, figure, kind), where kind determines the colour."""
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
    """A heading and its content; empty if there is no content."""
    content = "\n".join(part for part in parts if part)
    return f"<h{level}>{escape(title)}</h{level}>\n{content}\n" if content else ""


def figure(drawn: str, caption: str, data: str = "") -> str:
    """A chart with its caption, and its numbers to unfold."""
    numbers = details("The numbers", data) if data else ""
    return f"<figure>{drawn}<figcaption>{escape(caption)}</figcaption>{numbers}</figure>"


def details(summary: str, content: str) -> str:
    """Content that the reader can unfold."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def table(
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str,
    styles: Sequence[Sequence[str]] | None = None,
    words: bool = False,
) -> str:
    """A table of plain texts; ``styles``: CSS of the cells after the first of each row."""
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


# -- the report of runs ----------------------------------------------------------------------------

_BLOCKS: Final = {
    "weight": "weights",
    "offset": "means",
    "second": "spread",
    "target": "targets",
    "tied": "tied matrix",
}
_YARDSTICKS: Final = (
    ("joint", "pooled training, no privacy", "joint"),
    ("zero-shot", "zero-shot, no private data", "zero"),
    ("finetune", "finetune, no replay", "finetune"),
)
_READING: Final = (
    "Zero-shot needs no private data; pooled training has all of it without privacy; finetune has "
    "no replay and forgets."
)
_BANDS: Final = 8
_MOST_PANELS: Final = 12


def write_report(runs: Sequence[Path], path: Path) -> None:
    """Write the report of finished runs."""
    write_atomic(path, report_page([read_facts(run) for run in runs]).encode())


def report_page(runs: Sequence[RunFacts]) -> str:
    """The document: one run, or a list of verdicts and then each run."""
    if len(runs) == 1:
        return page(f"Run {runs[0].name}", "\n".join(run_parts(runs[0], "r0")))
    links = "".join(
        f'<li><a href="#r{n}">{escape(run.name)}</a>: {escape(verdict_of(run.result).text)}</li>'
        for n, run in enumerate(runs)
    )
    parts = [f"<ul>{links}</ul>"]
    for n, run in enumerate(runs):
        body = "\n".join(run_parts(run, f"r{n}", level=3))
        parts.append(f'<section class="run" id="r{n}"><h2>{escape(run.name)}</h2>{body}</section>')
    return page(f"{len(runs)} runs", "\n".join(parts))


def verdict_box(facts: RunFacts) -> str:
    """The verdict in large letters, what was run, and key figures."""
    verdict, result = verdict_of(facts.result), facts.result
    what = (
        f"{result['method']} on {result['stream']}, {result['scenario']}-incremental, "
        f"{len(facts.tasks)} tasks, {result['clients']} clients, seeds "
        f"{', '.join(map(str, result['seeds']))}"
    )
    return (
        paragraph(verdict.text, f"verdict {verdict.level}")
        + paragraph(what, "muted")
        + figures(_key_figures(facts))
    )


def _key_figures(facts: RunFacts) -> list[tuple[str, str, str]]:
    """The average score next to its yardsticks, and ε."""
    result = facts.result
    shown = []
    if result.get("aa") is not None:
        shown.append((f"{result['method']}, average score", f"{result['aa']:.1f} %", "own"))
        for name, what, kind in _YARDSTICKS:
            score = result["yardsticks"].get(name, {}).get("aa")
            if score is not None and name != result["method"]:
                shown.append((what, f"{score:.1f} %", kind))
    epsilon = result["epsilon"].get("end_to_end", {}).get("roster")
    shown.append((f"ε for a {result['unit']}", "∞" if epsilon is None else f"{epsilon:.3g}", ""))
    return shown


def run_parts(facts: RunFacts, name: str, level: int = 2) -> list[str]:
    """All sections of one run; ``name`` makes the ids of its charts unique in the page."""
    config = json.dumps(facts.config.model_dump(mode="json"), indent=2, ensure_ascii=False)
    command = f'<pre tabindex="0">{escape(command_of(facts.config))}</pre>'
    settings = details("All settings", f'<pre tabindex="0">{escape(config)}</pre>')
    promise = "".join(map(paragraph, privacy_words(facts)))
    against = table(("adversary", "sees", "ε"), adversaries(facts), "End-to-end ε", words=True)
    matching = match_words(facts)
    return [
        verdict_box(facts),
        section("What is promised", promise, against, level=level),
        section("Scores over tasks", *_scores(facts, name), level=level),
        _side_by_side(
            section("Score matrix", _heat_map(facts), level=level),
            section("Budget", _budget(facts, name), level=level),
        ),
        _side_by_side(
            section("Map of the public space", _map(facts, name), level=level),
            section("Signal and noise", _noise(facts, name), level=level),
        ),
        section("Matching", paragraph(matching), level=level) if matching else "",
        section("Who sees what", who_sees_what(facts), level=level),
        section("How it was run", command, settings, level=level),
    ]


def _side_by_side(*parts: str) -> str:
    cells = "".join(f"<div>{part}</div>" for part in parts if part)
    return f'<div class="charts">{cells}</div>'


def _scores(facts: RunFacts, name: str) -> list[str]:
    method, matrices = facts.result["method"], facts.matrices
    if method not in matrices:
        counted = facts.result.get("private_evaluation")
        if counted is None:
            return [paragraph("No exact scores are stored for this run.")]
        rows = [
            (each["task"], _number(each["accuracy"]), _number(each["standard_error"]))
            for each in counted["tasks"]
        ]
        return [table(("task", "accuracy, %", "standard error"), rows, "From a noisy count")]
    metric = "F1" if facts.result["family"] == "tagging" else "accuracy"
    curves = [(which, *map(_number, curve(matrix))) for which, matrix in matrices.items()]
    numbers = table(("", *facts.tasks), curves, f"Mean {metric} on the tasks seen so far, %")
    shown = {which: matrix for which, matrix in matrices.items() if which != "majority"}
    chart = accuracy_chart(shown, method, facts.tasks, metric, f"{name}-accuracy")
    parts = [figure(chart, f"Mean {metric} on the tasks seen so far. {_READING}", numbers)]
    if 1 < len(facts.tasks) <= _MOST_PANELS:
        panels = task_panels(shown, method, facts.tasks, f"{name}-tasks")
        caption = "The same for each task separately, from the moment it is learnt on."
        parts.append(figure(panels, caption))
    return [_side_by_side(*parts)]


def _heat_map(facts: RunFacts) -> str:
    matrix = facts.matrices.get(facts.result["method"])
    if matrix is None:
        return ""
    names = ["before any task", *[f"{r + 1}. {task}" for r, task in enumerate(facts.tasks)]]
    rows = [(name, *map(_number, row)) for name, row in zip(names, matrix, strict=True)]
    styles = [[_heat(value, j >= r) for j, value in enumerate(row)] for r, row in enumerate(matrix)]
    metric = facts.result["metric"]
    caption = f"{metric}, on each task (column) after each task (row). Pale: not learnt yet."
    return table(("after", *facts.tasks), rows, caption, styles)


def _heat(value: float | None, unseen: bool) -> str:
    """The style of a cell: darker for a higher score, but text on it stays readable."""
    if value is None:
        return ""
    share = 0.0 if unseen else max(0.0, min(1.0, value / 100)) ** 2 * 45
    faded = ";color:var(--muted)" if unseen else ""
    return f"background:color-mix(in srgb, var(--heat) {share:.0f}%, var(--bg)){faded}"


def _budget(facts: RunFacts, name: str) -> str:
    spending = facts.spending
    if spending is None:
        return paragraph("The ledger of this run is not where its configuration says.")
    if not spending.groups:
        return paragraph("Nothing was charged: no private row was read with noise or without.")
    unit, cap = facts.config.privacy.unit, spending.cap
    matrix = facts.matrices.get(facts.result["method"])
    fits = matrix is not None and len(spending.groups) == len(facts.tasks)
    scores = curve(matrix) if fits and matrix is not None else None
    names = facts.tasks if len(spending.groups) == len(facts.tasks) else spending.groups
    rows = [
        (group, _epsilon(after), "–" if scores is None else _number(scores[n]))
        for n, (group, after) in enumerate(zip(names, spending.after, strict=True))
    ]
    numbers = table(("after", "ε spent", "mean score, %"), rows, "ε and score after each task")
    chart = budget_chart(spending.after, scores, names, f"{name}-budget")
    capped = "" if cap is None else f" A {unit} contributes to at most {cap} of the tasks."
    if cap == 1 and len(spending.charges) > 1:
        capped += f" Later releases are about other units and do not raise any {unit}'s ε."
    caption = (
        f"ε of one {unit} against the roster, read from the ledger: {len(spending.charges)} "
        f"releases.{capped}"
    )
    return figure(chart, caption, numbers)


def _map(facts: RunFacts, name: str) -> str:
    if facts.picture is None:
        return ""
    chart = map_chart(facts.picture, facts.labels, facts.cloud, f"{name}-map")
    caption = (
        "Plane in which the public prototypes (crosses) differ most. Circles: released modes with "
        "one standard deviation; dotted: nothing released, the label text alone."
    )
    if facts.cloud is not None:
        caption += " Pale dots: true rows, known in this simulation only."
    return figure(chart, caption)


def _noise(facts: RunFacts, name: str) -> str:
    if facts.picture is None or not len(facts.picture["blocks"]):
        return ""
    blocks = dict(zip(BLOCK_NAMES, _mean(facts.picture["blocks"]), strict=True))
    shown = {_BLOCKS[key]: value for key, value in blocks.items() if math.isfinite(value)}
    if not shown:
        return paragraph("This run was released without noise.")
    by_block = bars_chart(shown, "signal to noise", 1.0, f"{name}-blocks")
    directions = _bands(_mean(np.square(facts.picture["directions"])))
    by_direction = bars_chart(directions, "signal to noise", 1.0, f"{name}-directions")
    first = figure(by_block, "By block of a release. Below 1 (dashed) noise is larger.")
    caption = (
        "Of the means, by public direction, leading ones first. The average of many directions can "
        "be reliable where a single direction is not."
    )
    return first + figure(by_direction, caption)


def _bands(power: Sequence[float]) -> dict[str, float]:
    """Root mean squares over bands of directions, each twice as wide as the one before."""
    edges = [0, *[2**n for n in range(_BANDS) if 2**n < len(power)], len(power)]
    bands = {}
    for low, high in pairwise(edges):
        values = [x for x in power[low:high] if math.isfinite(x)]
        if values:
            text = f"{low + 1}" if high == low + 1 else f"{low + 1} to {high}"
            bands[text] = math.sqrt(sum(values) / len(values))
    return bands


def _mean(rows: np.ndarray) -> list[float]:
    """Means over releases, without NaN."""
    known = np.isfinite(rows)
    total = np.where(known, rows, 0.0).sum(axis=0)
    count = known.sum(axis=0)
    return [float(t / n) if n else math.nan for t, n in zip(total, count, strict=True)]


def _number(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.1f}"


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.3g}"
