"""The ε of the noise table; ``tests/paper`` computes the same numbers independently."""

from __future__ import annotations

import math

import pytest

from cslr.privacy.accounting import gaussian_epsilon, pld_epsilon
from paper.accountant import READINGS, Cost, Promise, costs
from paper.built import build
from paper.layout import specs
from paper.printed import load_paper

PROMISE = Promise(4.0, 1.45, 0.3, 1e-5)
BY_KEY = {reading.key: reading for reading in READINGS}


def three(value: float) -> float:
    return float(f"{value:.3g}")


def test_one_joint_vector_per_task():
    (cost,) = costs([PROMISE], [BY_KEY["joint-4"]])
    assert (three(cost.public), three(cost.roster)) == (2.62, 6.38)
    assert cost.public < cost.public_rdp
    assert cost.roster < cost.roster_rdp
    assert cost.needed_public == pytest.approx(1.113, abs=0.005)
    assert cost.needed_roster == pytest.approx(2.162, abs=0.001)


def test_the_papers_own_accountant_on_four_statistics_in_200_rounds():
    (cost,) = costs([PROMISE], [BY_KEY["blocks-200"]])
    assert (round(cost.public), round(cost.public_rdp), round(cost.roster)) == (62, 94, 273)


@pytest.mark.parametrize("key", ["joint-4", "blocks-4", "list-4"])
def test_the_noise_that_is_needed_spends_what_was_promised(key):
    (cost,) = costs([PROMISE], [BY_KEY[key]])
    spent = pld_epsilon(BY_KEY[key].rounds(cost.needed_public, 0.3), 1e-5, 1e-3)
    assert spent == pytest.approx(4.0, rel=5e-3)
    precision = sum(s**-2 for s, _ in BY_KEY[key].rounds(cost.needed_roster, 1.0))
    assert gaussian_epsilon(math.sqrt(precision), 1e-5) == pytest.approx(4.0, rel=1e-6)


def test_four_statistics_behind_one_coin_are_one_gaussian_and_a_list_has_no_coin():
    assert BY_KEY["blocks-4"].rounds(2.0, 0.3) == [(1.0, 0.3)] * 4
    assert BY_KEY["list-4"].rounds(2.0, 0.3) == [(1.0, 0.3)] * 4 + [(2.0, 1.0)] * 4


def test_more_is_released_more_is_spent():
    one, more = (costs([PROMISE], [BY_KEY[key]])[0] for key in ("blocks-4", "list-4"))
    assert one.public < more.public
    assert one.needed_roster < more.needed_roster


def test_the_table_has_a_row_for_each_reading_and_promise(make, files, monkeypatch):
    def priced(promises):
        return tuple(
            Cost(BY_KEY["joint-4"], each, 2.623, 3.565, 6.38, 7.6, 1.1, 2.2) for each in promises
        )

    monkeypatch.setattr("paper.built.costs", priced)
    experiment = make('[[table]]\nname = "a"\ncaption = "c"\nkind = "accountant"\n')
    built = build(experiment, specs(experiment)[0], {}, load_paper(files / "paper.toml"))
    assert [row[1] for row in built.sheet.rows] == ["1", "4", "8"]
    assert built.sheet.rows[1][2:] == ("1.45", "2.62", "3.56", "6.38", "7.6", "1.10", "2.20")
    assert any("zero-out" in note and "q = 0.3" in note for note in built.sheet.notes)
