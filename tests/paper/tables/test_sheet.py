"""A sheet in Markdown, LaTeX and CSV: the same content, correctly escaped."""

from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paper.figure import Figure
from paper.names import measure_named
from paper.sheet import Sheet, as_csv, as_latex, as_markdown, escape

SEEDS = (13, 17)
FIGURE = Figure(measure_named("bwt"), {13: -7.0, 17: -8.0}, SEEDS)
MISSING = Figure(measure_named("bwt"), {}, SEEDS)
SHEET = Sheet(
    "main-bwt",
    "Methods & scores",
    "BWT, %.",
    ("method", "a_b", "c"),
    (("CSLR†", FIGURE, MISSING), ("x|y", MISSING, "")),
    ("Noise for ε = 4: `cslr tables`.",),
)


def test_markdown_has_title_table_and_notes():
    assert as_markdown(SHEET).split("\n") == [
        "# Methods & scores",
        "",
        "BWT, %.",
        "",
        "| method | a_b | c |",
        "| --- | ---: | ---: |",
        "| CSLR† | -7.5 ± 0.7 | not run |",
        "| x\\|y | not run |  |",
        "",
        "- Noise for ε = 4: `cslr tables`.",
    ]


def test_latex_is_a_booktabs_table():
    text = as_latex(SHEET)
    for part in (
        r"\begin{tabular}{lcc}",
        r"method & a\_b & c \\",
        r"CSLR$^\dagger$ & $-$7.5 $\pm$ 0.7 & not run \\",
        r"\caption{Methods \& scores. BWT, \%.}",
        r"\label{tab:main-bwt}",
        r"Noise for $\varepsilon$ = 4: \texttt{cslr tables}.",
    ):
        assert part in text
    assert text.count(r"\begin") == text.count(r"\end") == 2
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]


def test_csv_has_mean_deviation_and_seeds_apart():
    rows = list(csv.reader(io.StringIO(as_csv(SHEET))))
    assert rows == [
        ["method", "a_b", "a_b sd", "a_b seeds", "c", "c sd", "c seeds"],
        ["CSLR†", "-7.50000", "0.70711", "2 of 2", "", "", "0 of 2"],
        ["x|y", "", "", "0 of 2", "", "", ""],
    ]


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("50 % & more", r"50 \% \& more"),
        ("a_b #1 {x} $5", r"a\_b \#1 \{x\} \$5"),
        ("~^\\", r"\textasciitilde{}\textasciicircum{}\textbackslash{}"),
        ("[-1.0, 2.0]", "[$-$1.0, 2.0]"),
        ("class-incremental 1e-05", "class-incremental 1e-05"),
        ("[13–17] ∞ <0.001", r"[13--17] $\infty$ $<$0.001"),
    ],
)
def test_what_latex_would_read_as_its_own_is_escaped(text, latex):
    assert escape(text) == latex


@given(st.text(alphabet="abc &%$#_{}~^\\-019±εσ†", max_size=30))
def test_no_text_leaves_a_bare_special_sign(text):
    bare = re.sub(r"\\[&%$#_{}]|\$[^$]*\$|\\text[a-z]+\{\}", "", escape(text))
    assert not re.search(r"[&%$#_{}~^\\]", bare)


def test_rows_must_fit_the_header():
    with pytest.raises(ValueError, match="2 entries under 1 names"):
        Sheet("n", "t", "c", ("one",), (("a", "b"),))


@pytest.mark.parametrize("writer", [as_markdown, as_latex, as_csv])
def test_a_sheet_without_rows_can_be_written(writer):
    assert "one" in writer(Sheet("n", "t", "c", ("one", "two"), ()))
