"""A table independent of its format, and the three formats it is written in.

Markdown and LaTeX (booktabs) are for reading; CSV has the mean, the deviation and the number of
seeds in separate columns. The same sheet gives the same bytes.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from paper.figure import Figure

__all__ = ["WRITERS", "Entry", "Sheet", "as_csv", "as_latex", "as_markdown", "markdown_table"]

Entry = str | Figure


@dataclass(frozen=True)
class Sheet:
    """Rows of text and figures under a header."""

    name: str
    """The name of the files, without suffix."""
    title: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = ()
    """Facts on the figures: scenario, scope, adversary, seeds, command."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"{self.name}: {len(row)} entries under {len(self.header)} names")


def as_markdown(sheet: Sheet) -> str:
    """Title, caption, table, notes."""
    left = sum(isinstance(entry, str) for entry in sheet.rows[0]) if sheet.rows else 1
    rows = [[_text(entry) for entry in row] for row in sheet.rows]
    table = markdown_table(sheet.header, rows, left)
    notes = "\n".join(f"- {note}" for note in sheet.notes)
    return "\n\n".join(part for part in (f"# {sheet.title}", sheet.caption, table, notes) if part)


def markdown_table(header: tuple[str, ...], rows: list[list[str]], left: int = 1) -> str:
    """A pipe table; the first ``left`` columns are left-aligned, the others right-aligned."""
    lines = [header, [*["---"] * left, *["---:"] * (len(header) - left)], *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )


def as_latex(sheet: Sheet) -> str:
    """A booktabs table; needs \\usepackage{booktabs} and nothing else."""
    columns = "".join(
        "l" if all(isinstance(entry, str) for entry in column) else "c"
        for column in zip(*sheet.rows, strict=True)
    )
    lines = [
        "% Written from traces by the program; changes here are lost.",
        r"\begin{table}[t]",
        r"\centering",
        r"\small",
        rf"\caption{{{escape(f'{sheet.title}. {sheet.caption}')}}}",
        rf"\label{{tab:{sheet.name}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(map(escape, sheet.header)) + r" \\",
        r"\midrule",
        *[" & ".join(escape(_text(entry)) for entry in row) + r" \\" for row in sheet.rows],
        r"\bottomrule",
        r"\end{tabular}",
        *[rf"\par\footnotesize {escape(note)}" for note in sheet.notes],
        r"\end{table}",
    ]
    return "\n".join(lines)


_LATEX: Final = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "∞": r"$\infty$",
    "−": "$-$",
    "–": "--",
    "—": "---",
    "×": r"$\times$",
    "√": r"$\surd$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "†": r"$^\dagger$",
    "Δ": r"$\Delta$",
    "α": r"$\alpha$",
    "γ": r"$\gamma$",
    "δ": r"$\delta$",
    "ε": r"$\varepsilon$",
    "λ": r"$\lambda$",
    "μ": r"$\mu$",
    "σ": r"$\sigma$",
}
_SPECIAL: Final = re.compile("|".join(map(re.escape, _LATEX)))
_CODE: Final = re.compile(r"`([^`]*)`")
_MINUS: Final = re.compile(r"(?<![\w.)-])-(?=\d|∞)")


def escape(text: str) -> str:
    """Text for LaTeX: special characters, minus before a number, Greek letters, `code`."""
    set_ = _SPECIAL.sub(lambda match: _LATEX[match.group()], _MINUS.sub("−", text))
    return _CODE.sub(r"\\texttt{\1}", set_)


def as_csv(sheet: Sheet) -> str:
    """A column of figures becomes three: mean, sd and seeds."""
    figures = [
        any(isinstance(row[i], Figure) for row in sheet.rows) for i in range(len(sheet.header))
    ]
    header: list[str] = []
    for name, several in zip(sheet.header, figures, strict=True):
        header += [name, f"{name} sd", f"{name} seeds"] if several else [name]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    for row in sheet.rows:
        cells: list[str] = []
        for entry, several in zip(row, figures, strict=True):
            cells += _numbers(entry) if several else [_text(entry)]
        writer.writerow(cells)
    return file.getvalue().rstrip("\n")


def _numbers(entry: Entry) -> list[str]:
    """Mean, deviation and seeds, with four more digits than in Markdown; empty if unknown."""
    if isinstance(entry, str):
        return [entry, "", ""]
    if not entry.known:
        return ["", "", entry.seeds]
    digits, several = entry.measure.digits + 4, entry.measure.varies and len(entry.by_seed) > 1
    sd = f"{entry.spread.sd:.{digits}f}" if several else ""
    return [f"{entry.spread.mean:.{digits}f}", sd, entry.seeds]


def _text(entry: Entry) -> str:
    return entry if isinstance(entry, str) else entry.text


WRITERS: Final[dict[str, Callable[[Sheet], str]]] = {
    "md": as_markdown,
    "tex": as_latex,
    "csv": as_csv,
}
