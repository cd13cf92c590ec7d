"""Several runs side by side, and the index of a folder of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from cslr.errors import RunDirectoryError
from cslr.files import write_atomic
from cslr.report.charts import COLOURS, LABEL_COLOURS, Matrix, curve, drawn
from cslr.report.run_facts import RunFacts, read_facts
from cslr.report.run_report import figure, page, paragraph, table, write_report
from cslr.runs.catalogue import cell, compared, find_runs
from cslr.runs.results import StoredRun

__all__ = ["comparison_page", "write_comparison", "write_index"]


def write_comparison(runs: Sequence[Path], path: Path) -> None:
    """Write a page that compares finished runs."""
    write_atomic(path, comparison_page([read_facts(run) for run in runs]).encode())


def comparison_page(runs: Sequence[RunFacts]) -> str:
    """Verdicts, curves in one chart, and a table of differing settings, scores and costs."""
    names = [run.name for run in runs]
    values = compared([run.run for run in runs])
    rows = [
        (name, *[cell(name, value) for value in each])
        for name, each in values.items()
        if name != "verdict"
    ]
    parts = [
        "".join(
            f"<p><strong>{escape(run.name)}</strong>: {escape(run.run.verdict)}</p>" for run in runs
        ),
        _curves(runs),
        table(("", *names), rows, "Settings that differ, scores and costs", words=True),
    ]
    return page(f"{len(runs)} runs compared", "\n".join(parts))


def _curves(runs: Sequence[RunFacts]) -> str:
    scored = [run for run in runs if run.result["method"] in run.matrices]
    if not scored:
        return paragraph("No exact scores are stored for these runs.")
    lines = {run.name: curve(run.matrices[run.result["method"]]) for run in scored}
    longest = max(map(len, lines.values()))

    def draw(figure_: Any) -> None:
        axes = figure_.add_subplot()
        for n, (name, values) in enumerate(lines.items()):
            style = {"color": LABEL_COLOURS[n % 8], "linestyle": ("-", "--", ":")[n // 8 % 3]}
            axes.plot(range(1, len(values) + 1), values, marker="o", label=name[-28:], **style)
        if all(run.result["stream"] == scored[0].result["stream"] for run in scored):
            _yardsticks(axes, scored[0].matrices)
        axes.set_xticks(range(1, longest + 1))
        axes.set_xlabel("tasks learnt")
        axes.set_ylabel("mean score on tasks seen, %")
        axes.set_ylim(top=102)
        axes.grid(axis="y", alpha=0.5, linewidth=0.6)
        axes.legend(fontsize=9, loc="best")

    last = ", ".join(f"{name} {values[-1]:.1f} %" for name, values in lines.items())
    rows = [
        (name, *[f"{x:.1f}" for x in values], *["–"] * (longest - len(values)))
        for name, values in lines.items()
    ]
    tasks = [str(n + 1) for n in range(longest)]
    numbers = table(("run", *tasks), rows, "Mean score on the tasks seen so far, %")
    chart = drawn(draw, f"Line chart of mean score over tasks. At the end: {last}.", "compare")
    return figure(chart, "Mean score on the tasks seen so far.", numbers)


def _yardsticks(axes: Any, matrices: Mapping[str, Matrix]) -> None:
    """Thin lines for zero-shot and pooled training, for runs on one stream."""
    for name, label, colour, line in (
        ("zero-shot", "zero-shot", COLOURS["zero"], "--"),
        ("joint", "pooled (joint)", COLOURS["joint"], ":"),
    ):
        if name in matrices:
            values = curve(matrices[name])
            style = {"color": colour, "linestyle": line, "linewidth": 1.2, "label": label}
            axes.plot(range(1, len(values) + 1), values, **style)


def write_index(folder: Path) -> tuple[Path, list[str]]:
    """Write ``index.html`` of the runs of a folder, and the reports that are missing.

    Returns its path, and what is wrong with directories that could not be read.
    """
    runs, wrong = find_runs(folder)
    if not runs:
        raise RunDirectoryError(f"{folder} contains no run; start one: cslr run")
    for run in runs:
        file = run.path / "report.html"
        if run.result is not None and not file.exists():
            write_report([run.path], file)
    path = folder / "index.html"
    write_atomic(path, index_page(runs).encode())
    return path, wrong


def index_page(runs: Sequence[StoredRun]) -> str:
    """A table of runs, newest first, each with its verdict and a link to its report."""
    names = ("run", "verdict", "score, %", "ε", "unit", "stream", "method", "started")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    rows = "".join(map(_row, reversed(runs)))
    summary = (
        f"{len(runs)} run{'s' * (len(runs) != 1)}, newest first. A name opens the run's report."
    )
    body = (
        paragraph(summary, "muted")
        + '<div class="scroll index" tabindex="0" role="group" aria-label="Runs"><table>'
        + f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    return page("Runs", body)


def _row(run: StoredRun) -> str:
    facts = run.as_json()
    name = escape(run.path.name)
    link = f'<a href="{name}/report.html">{name}</a>' if run.result is not None else name
    cells = [
        cell("AA", facts["aa"]),
        cell("ε", facts["epsilon"]),
        str(facts["unit"]),
        str(facts["stream"]),
        str(facts["method"]),
        run.written.strftime("%Y-%m-%d %H:%M"),
    ]
    shown = "".join(f"<td>{escape(text)}</td>" for text in cells)
    return (
        f'<tr><th scope="row">{link}</th><td class="words">{escape(run.verdict)}</td>{shown}</tr>'
    )
