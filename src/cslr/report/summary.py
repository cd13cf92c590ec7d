"""A run on a screen: what was learnt, what it cost, and where the files are."""

from __future__ import annotations

import math

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cslr.bench.methods import YARDSTICKS
from cslr.bench.results import Figures, Result
from cslr.privacy.accounting import ADVERSARIES, SCOPES

__all__ = ["print_summary"]

_MEANING = {
    "majority": "best constant, ε = 0",
    "zero-shot": "nearest label text, ε = 0",
    "finetune": "pooled, no replay, ε = ∞",
    "joint": "pooled, all tasks, ε = ∞",
    "cslr": "private replay",
}


def print_summary(result: Result, console: Console) -> None:
    """Print everything a person wants to know about a finished run."""
    console.print()
    console.print(Panel(_headline(result), border_style="blue", expand=False))
    console.print(_matrix(result))
    console.print(_methods(result))
    console.print(_labels(result))
    console.print(_cost(result))
    console.print(_privacy_note(result))
    console.print(f"Files: [bold]{result.run_dir}[/bold]  (result.json, trace.jsonl, accuracy.png)")


def _headline(result: Result) -> RenderableType:
    config, main = result.config, result.main
    seeds = ", ".join(str(seed) for seed in config.seeds)
    lines = [
        Text.assemble(
            (f"{config.method}", "bold"),
            f" on {result.stream.name}, {result.scenario}-incremental, "
            f"{len(result.stream.tasks)} tasks, {result.clients} clients",
        ),
        Text.assemble(
            "average accuracy ", (f"{_spread(main.aa)} %", "bold green"), f"   seeds {seeds}"
        ),
    ]
    closed = result.closed()
    if math.isfinite(closed):
        lines.append(Text(_closed(closed)))
    return Group(*lines)


def _closed(share: float) -> str:
    if share >= 1:
        return "no worse than pooled, non-private training"
    return f"{100 * share:.0f} % of the way from zero-shot to pooled, non-private training"


def _matrix(result: Result) -> Table:
    table = Table(title=r"a\[r, j]: accuracy (%) on task j after task r", title_justify="left")
    table.add_column("after")
    for task in result.stream.tasks:
        table.add_column(task.name, justify="right")
    matrix = result.main.matrices.mean(axis=0)
    for r, row in enumerate(matrix):
        name = "nothing yet" if r == 0 else f"{r}. {result.stream.tasks[r - 1].name}"
        cells = [_cell(value, unseen=j >= r) for j, value in enumerate(row)]
        table.add_row(name, *cells)
    return table


def _cell(value: float, unseen: bool) -> str:
    if math.isnan(value):
        return "[dim]–[/dim]"
    return f"[dim]{value:.1f}[/dim]" if unseen else f"{value:.1f}"


def _methods(result: Result) -> Table:
    table = Table(title="Beside its yardsticks", title_justify="left")
    for name, justify in (("method", "left"), ("AA", "right"), ("BWT", "right"), ("FWT", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("curve")
    table.add_column("", style="dim")
    below: list[str] = [name for name in YARDSTICKS if name != "joint"]
    order = [*below, result.config.method, "joint"]
    order = [name for name in dict.fromkeys(reversed(order)) if name in result.figures][::-1]
    for name in order:
        figures = result.figures[name]
        style = "bold green" if name == result.config.method else ""
        table.add_row(
            name,
            _spread(figures.aa),
            _spread(figures.bwt),
            _spread(figures.fwt),
            _sparkline(figures),
            _MEANING.get(name, ""),
            style=style,
        )
    return table


def _sparkline(figures: Figures) -> str:
    """The learning curve in characters: one bar per task, full at 100 %."""
    bars = "▁▂▃▄▅▆▇█"
    levels = np.clip((figures.curve / 100 * 8).astype(int), 0, 7)
    return "".join(bars[level] for level in levels)


def _labels(result: Result) -> Table:
    table = Table(title="By label at the end (%)", title_justify="left")
    for label in result.stream.labels:
        table.add_column(label.name, justify="right")
    table.add_row(*[f"{value:.1f}" for value in result.main.labels.mean(axis=0)])
    return table


def _cost(result: Result) -> Table:
    delta = result.config.privacy.delta
    table = Table(
        title=f"User-level ε (δ = {delta:g}, from the ledger)", title_justify="left", min_width=46
    )
    table.add_column("scope")
    for who in ADVERSARIES:
        table.add_column(who, justify="right")
    for scope in SCOPES:
        costs = result.cost["epsilon"].get(scope, {})
        table.add_row(
            scope.replace("_", " "),
            *["∞" if costs.get(who) is None else f"{costs[who]:.3g}" for who in ADVERSARIES],
        )
    return table


def _privacy_note(result: Result) -> Text:
    if result.config.privacy.mode == "simulated":
        return Text(
            "privacy: simulated. One process and seeded noise: a study of utility; "
            "nothing is protected. Evaluation figures are not private.",
            style="dim",
        )
    return Text(
        "privacy: enforced. Noise and coins from the operating system, zero-out adjacency. "
        "Evaluation figures are not private.",
        style="dim",
    )


def _spread(values: np.ndarray) -> str:
    """Mean over seeds, with the standard deviation if there are several."""
    if np.isnan(values).any():
        return "–"
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f}"
