"""What ``cslr run`` prints: progress, then a summary of the result.

Progress is a bar on a terminal, and a line every ten seconds in log files and pipes.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cslr.methods.registry import METHODS, YARDSTICKS
from cslr.privacy.accounting import ADVERSARIES, SCOPES
from cslr.runs.measure import PrivateFigures
from cslr.runs.results import Figures, Result, verdict_of

__all__ = [
    "OnStep",
    "StepLines",
    "print_next",
    "print_other_unit",
    "print_summary",
    "print_verdict",
    "steps",
]

OnStep = Callable[[str, int, int], None]
"""Called at every step with its description, the number of steps done, and their total."""

_EVERY: Final = 10.0
"""Seconds between two lines of a log."""


class StepLines:
    """Prints the first step, then at most one line every ``every`` seconds."""

    def __init__(
        self,
        write: Callable[[str], None],
        every: float = _EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._every, self._clock = write, every, clock
        self._begun = clock()
        self._last: float | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report a step; printed if the last line is old enough."""
        now = self._clock()
        if self._last is None or now - self._last >= self._every:
            self._last = now
            self._write(f"[{now - self._begun:5.0f} s] {done}/{total} {what}")


@contextmanager
def steps(console: Console, quiet: bool = False, timed: bool = True) -> Iterator[OnStep]:
    """Show progress as a bar, as lines if there is no terminal, or not at all if quiet.

    timed: whether lines may depend on time. With enforced privacy they may not, because the time of
    a step depends on private rows and a log may be stored. Then every step is a line without time.
    """
    if quiet:
        yield lambda what, done, total: None
        return
    if not console.is_terminal:

        def write(line: str) -> None:
            console.print(line, markup=False, highlight=False, soft_wrap=True)

        yield (
            StepLines(write) if timed else lambda what, done, total: write(f"{done}/{total} {what}")
        )
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()]
    described = TextColumn("{task.description}")
    with Progress(*columns, described, console=console, transient=True) as bar:
        job = bar.add_task("starting", total=None)
        yield lambda what, done, total: bar.update(
            job, description=what, completed=done, total=total
        )


# -- the summary -----------------------------------------------------------------------------------

_COSTS = {"nothing": ", ε = 0", "privately": "", "openly": ", ε = ∞"}

_MEASURES = {
    "exact_match": "exact",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "personal": "own tasks",
    "own_heads": "encoders' own heads",
}

_FIGURES = {
    "shown": "The scores above are exact: not private, and not stored.",
    "stored": "The scores above are exact: not private, and stored in the run directory.",
    "private": "The accuracy above is noisy and covered by ε.",
}

_VERDICTS = {"above": "bold green", "below": "bold yellow", "unknown": "bold"}

_MOST_COLUMNS = 6
"""Maximum number of labels shown as columns; more are shown as rows."""
_WIDEST = 50
"""Maximum total length of their names."""


def print_summary(result: Result, console: Console) -> None:
    """Print scores, privacy cost and files of a finished run."""
    files = ["report.html", "result.json", "trace.jsonl"]
    if result.rule == "stored" and result.evaluated:
        files.append("accuracy.png")
    print_verdict(result, console)
    console.print(Panel(_headline(result), border_style="blue", expand=False))
    if result.evaluated:
        console.print(_matrix(result))
        console.print(_methods(result))
        if result.main.more:
            console.print(_more(result))
        if not _labels_are_tasks(result):
            console.print(_labels(result))
    if result.measured is not None:
        console.print(_measured(result, result.measured))
    console.print(_cost(result))
    console.print(_privacy_note(result))
    console.print(
        Text.assemble("Files: ", (result.run_dir, "bold"), f"  ({', '.join(files)})"),
        soft_wrap=True,
    )


def print_next(result: Result, console: Console) -> None:
    """Print the last lines: where the report is, and a command that predicts."""
    run = shlex.quote(result.run_dir)
    console.print(f"Look: open {result.run_dir}/report.html in a browser.", soft_wrap=True)
    console.print(f'Ask:  cslr predict {run} --text "..."', soft_wrap=True, highlight=False)


def print_verdict(result: Result, console: Console) -> None:
    """Print the first line of a result: what private data added to zero-shot, and at which ε."""
    verdict = verdict_of(result.as_json())
    console.print(Text(verdict.text, style=_VERDICTS[verdict.level]), soft_wrap=True)


def print_other_unit(result: Result, other: Result, console: Console) -> None:
    """Print one line: the score of the same run with a whole client as the unit of privacy."""
    metric = "entity F1" if result.stream.family == "tagging" else "accuracy"
    console.print(
        f"Hiding a whole client at the same ε instead (--unit client): average {metric} "
        f"{_spread(other.main.aa)} % where hiding one person gives {_spread(result.main.aa)} %.",
        soft_wrap=True,
    )


def _headline(result: Result) -> RenderableType:
    config = result.config
    lines = [
        Text.assemble(
            (f"{config.method}", "bold"),
            f" on {result.stream.name}, {result.scenario}-incremental, "
            f"{len(result.stream.tasks)} tasks, {result.clients} clients",
        ),
        Text(_unit(result)),
        Text.assemble(_average(result), f"   {_seeds(config.seeds)}"),
    ]
    closed = result.closed()
    if math.isfinite(closed):
        lines.append(Text(_closed(closed)))
    return Group(*lines)


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s'[: len(seeds) - 1]} {', '.join(map(str, seeds))}"


def _unit(result: Result) -> str:
    """The unit of privacy, in words."""
    if result.config.privacy.unit == "client":
        return "unit of privacy: one client with all its rows"
    stream = result.stream
    what = "" if stream.people is not None else f"; one {stream.person} counts as one person"
    return f"unit of privacy: one of {result.units} people inside the clients{what}"


def _average(result: Result) -> Text:
    if result.rule == "none":
        return Text("Trained. Not evaluated (--evaluate none).")
    if result.measured is not None:
        aa, error = result.measured.aa
        what = "average accuracy from a noisy count "
        return Text.assemble(what, (_with_error(aa, error), "bold green"))
    if not result.evaluated:
        return Text("Trained. No test rows, so no scores.")
    metric = "entity F1" if result.stream.family == "tagging" else "accuracy"
    if np.isnan(result.main.aa).any():
        return Text(f"average {metric} undefined: some tasks have no test rows")
    return Text.assemble(f"average {metric} ", (f"{_spread(result.main.aa)} %", "bold green"))


def _closed(share: float) -> str:
    if share >= 1:
        return "no worse than pooled, non-private training (joint)"
    return (
        f"closes {100 * share:.0f} % of the gap from the better of zero-shot and majority to "
        "pooled, non-private training"
    )


def _matrix(result: Result) -> RenderableType:
    table = Table()
    table.add_column("after")
    for task in result.stream.tasks:
        table.add_column(Text(task.name), justify="right")
    matrix = result.main.matrices.mean(axis=0)
    for r, row in enumerate(matrix):
        name = "nothing yet" if r == 0 else f"{r}. {result.stream.tasks[r - 1].name}"
        cells = [_cell(value, unseen=j >= r) for j, value in enumerate(row)]
        table.add_row(Text(name), *cells)
    return _titled(f"a[r, j]: {result.metric} (%) on task j after task r", table)


def _cell(value: float, unseen: bool) -> str:
    if math.isnan(value):
        return "[dim]–[/dim]"
    return f"[dim]{value:.1f}[/dim]" if unseen else f"{value:.1f}"


def _methods(result: Result) -> RenderableType:
    table = Table()
    for name, justify in (("method", "left"), ("AA", "right"), ("BWT", "right"), ("FWT", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("curve")
    table.add_column("", style="dim")
    for name, figures in _in_order(result).items():
        table.add_row(
            name,
            _spread(figures.aa),
            _spread(figures.bwt),
            _spread(figures.fwt),
            _sparkline(figures),
            _meaning(name),
            style=_style(result, name),
        )
    parts: list[RenderableType] = [_titled("Comparison with yardsticks", table), _legend()]
    if result.config.privacy.mode == "enforced" and result.config.yardsticks:
        why = (
            "finetune and joint read rows without noise, so they are not run with enforced "
            "privacy, and the gap to pooled training cannot be computed."
        )
        parts.append(Text(why, style="dim"))
    return Group(*parts)


def _legend() -> Text:
    return Text(
        "AA: mean score after the last task. BWT: change since each task was learnt (negative: "
        "forgotten). FWT: gain over zero-shot on a task before it is learnt.",
        style="dim",
    )


def _more(result: Result) -> RenderableType:
    """Further scores of the task family or the method, means over seeds."""
    measures = list(result.main.more)
    table = Table()
    table.add_column("method")
    for measure in measures:
        table.add_column(_MEASURES.get(measure, measure), justify="right")
    for name, figures in _in_order(result).items():
        means = [float(np.mean(figures.more.get(measure, math.nan))) for measure in measures]
        cells = [_cell(value, unseen=False) for value in means]
        table.add_row(name, *cells, style=_style(result, name))
    return _titled("Over all tasks, after the last task (%)", table)


def _measured(result: Result, measured: PrivateFigures) -> RenderableType:
    """Scores from the noisy count, by task."""
    table = Table()
    table.add_column("task")
    table.add_column("accuracy", justify="right")
    rows = zip(result.stream.tasks, measured.accuracy, measured.error, strict=True)
    for task, accuracy, error in rows:
        table.add_row(Text(task.name), _with_error(accuracy, error))
    tagging = result.stream.family == "tagging"
    counted = "sentences with all tags correct" if tagging else "correct rows"
    units = "clients" if result.config.privacy.unit == "client" else "people"
    note = f"Mean over {units} of the share of {counted}, ± the standard error of the noise."
    if measured.before_upgrade:
        note += " It was released before the encoder upgrade and refers to the head of that time."
    title = "After the last task, from a noisy count covered by ε (%)"
    return Group(_titled(title, table), Text(note, style="dim"))


def _with_error(value: float, error: float) -> str:
    return f"{value:.1f} ± {error:.1f} %" if math.isfinite(value) else "undefined: too few clients"


def _in_order(result: Result) -> dict[str, Figures]:
    """The figures in this order: lower yardsticks, the method, joint training."""
    below: list[str] = [name for name in YARDSTICKS if name != "joint"]
    order = dict.fromkeys(reversed([*below, result.config.method, "joint"]))
    return {name: result.figures[name] for name in reversed(order) if name in result.figures}


def _style(result: Result, name: str) -> str:
    return "bold green" if name == result.config.method else ""


def _sparkline(figures: Figures) -> str:
    """The learning curve in characters: one bar per task, full at 100 %."""
    bars = "▁▂▃▄▅▆▇█"
    levels = np.clip(np.nan_to_num(figures.curve) / 100 * 8, 0, 7).astype(int)
    finite = np.isfinite(figures.curve)
    return "".join(bars[n] if seen else " " for n, seen in zip(levels, finite, strict=True))


def _labels_are_tasks(result: Result) -> bool:
    """Whether each task has one label of its own, so that scores by label equal the matrix."""
    labels = [[label.name for label in result.stream.labels]]
    return labels == [[task.name for task in result.stream.tasks]]


def _labels(result: Result) -> RenderableType:
    """Scores by label: one row, or one row per label if there are many. O has no score."""
    first = 1 if result.stream.family == "tagging" else 0
    names = [Text(label.name) for label in result.stream.labels][first:]
    scores = [_cell(value, unseen=False) for value in result.main.labels.mean(axis=0)][first:]
    table = Table()
    if len(names) <= _MOST_COLUMNS and sum(map(len, names)) <= _WIDEST:
        for name in names:
            table.add_column(name, justify="right")
        table.add_row(*scores)
    else:
        table.add_column("label")
        table.add_column("score", justify="right")
        for name, score in zip(names, scores, strict=True):
            table.add_row(name, score)
    return _titled("By label, after the last task (%)", table)


def _titled(title: str, table: Table) -> Group:
    """A title above a table that is not wrapped to the table's width."""
    return Group(Text(title, style="table.title"), table)


def _cost(result: Result) -> RenderableType:
    privacy = result.config.privacy
    shared = privacy.mode == "enforced"
    of = "all runs on these rows, from the ledger" if shared else "from the ledger"
    table = Table(min_width=46)
    table.add_column("scope")
    for who in ADVERSARIES:
        table.add_column(who, justify="right")
    for scope in SCOPES:
        costs = result.cost["epsilon"].get(scope, {})
        table.add_row(
            scope.replace("_", " "),
            *["∞" if costs.get(who) is None else f"{costs[who]:.3g}" for who in ADVERSARIES],
        )
    total = "" if privacy.budget is None else f"; budget {privacy.budget:g}"
    unit = "User-level ε" if privacy.unit == "client" else "ε of one person"
    return _titled(f"{unit} (δ = {privacy.delta:g}, {of}{total})", table)


def _privacy_note(result: Result) -> Text:
    figures = f" {_FIGURES[result.rule]}" if result.rule in _FIGURES else ""
    if result.config.privacy.mode == "simulated":
        return Text(
            "privacy: simulated. One process and seeded noise, for studies of utility; "
            f"nothing is protected.{figures}",
            style="dim",
        )
    return Text(
        "privacy: enforced. Noise and participation coins come from the operating system; "
        f"zero-out adjacency.{figures}",
        style="dim",
    )


def _meaning(name: str) -> str:
    """A few words about a method."""
    method = METHODS[name]
    return method.meaning + _COSTS[method.reads]


def _spread(values: np.ndarray) -> str:
    """Mean over seeds, with the standard deviation if there are several."""
    if np.isnan(values).any():
        return "–"
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f}"
