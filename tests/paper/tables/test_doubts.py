"""The paper's contradictions are computed from its numbers and change with them."""

from __future__ import annotations

import pytest

from paper.accountant import READINGS, costs
from paper.doubts import confirmed, doubts
from paper.printed import Paper, load_paper


@pytest.fixture(scope="module")
def paper(request):
    return load_paper(request.config.rootpath / "experiments" / "paper.toml")


def one(sentences: tuple[str, ...], about: str) -> str:
    (found,) = (sentence for sentence in sentences if about in sentence)
    return found


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ("anchors. At m", "At m = 100 fig:anchor_sweep has 62.8, tab:main 62.1"),
        ("anchors. At m", "figure's at m = 50"),
        ("DP-Stat-Share", "57.4 ± 0.4 and 57.4 ± 0.4, -11.2 ± 0.4 and -11.2 ± 0.4"),
        ("right after learning", "65.4 for DP-SGD, 67.4 for CSLR"),
        ("take part in a round", "6 of 20 clients"),
        ("take part in a round", "norm 4.7"),
        ("saturation", "50 in its caption; drawn is 45"),
        ("rounds a task", "50 rounds a task"),
    ],
)
def test_the_numbers_in_a_doubt_are_the_papers(paper, about, said):
    assert said in one(doubts(paper), about)


def test_what_agrees_is_said_to_agree(paper):
    intervals, claims, orders = confirmed(paper)
    assert intervals.startswith("8 of 8")
    assert claims.startswith("3 of 3")
    assert "4 of 4 streams" in orders


def test_another_number_would_not_be_confirmed(paper):
    main = paper.tables["tab:main"]
    changed = tuple(
        n.model_copy(update={"value": 60.0}) if (n.row, n.column) == ("cslr", "ag-news") else n
        for n in main.numbers
    )
    other = Paper(paper.tables | {"tab:main": main.model_copy(update={"numbers": changed})})
    intervals, claims, _ = confirmed(other)
    assert intervals.startswith("6 of 8")
    assert not claims.startswith("3 of 3")


def test_the_noise_table_is_priced_where_costs_are_known(paper):
    assert not any("does not buy" in doubt for doubt in doubts(paper))
    priced = doubts(paper, costs(paper.promises, READINGS[:1]))
    said = one(priced, "does not buy")
    assert "0.839 / 2.62 / 5.19 against the public, 2.56 / 6.38 / 10.7 against the roster" in said
    assert said.endswith("no reading, by no accountant.")


@pytest.mark.parametrize("about", ["hit rate", "Welch", "tab:fwt", "ranks DP-SGD"])
def test_what_is_no_contradiction_is_not_listed(paper, about):
    """The least share over pairs does grow with m; the others are choices the paper states."""
    assert not any(about in doubt for doubt in doubts(paper))
