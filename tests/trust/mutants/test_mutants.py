"""Twenty-eight broken builds, each caught by name; the honest one never accused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from .lab import Finding
from .table import DETECTORS, MUTANTS, WHOLE_RUNS

SEED = 7
SEEDS = (11, 12, 13)
HONEST_RUNS = 100
QUICK = [name for name in DETECTORS if name != "black box"]


def marks(detector: str) -> list[pytest.MarkDecorator]:
    """One worker looks with a detector, so that it looks at the honest build once.

    Detectors that run the whole program take seconds; tests of their own have them, too.
    """
    slow = [pytest.mark.slow] if detector in WHOLE_RUNS else []
    return [pytest.mark.xdist_group(f"mutants: {detector}"), *slow]


@pytest.fixture(scope="module")
def honest(lab):
    """``honest(detector, draws)``: what a detector has to say about the build without a fault."""

    @cache
    def look(detector: str, draws: int) -> Finding:
        return DETECTORS[detector](replace(lab, draws=draws), SEED)

    return look


@pytest.mark.parametrize(
    ("name", "detector"),
    [
        pytest.param(name, each, marks=marks(each))
        for name in MUTANTS
        for each in MUTANTS[name].caught_by
        if each in QUICK
    ],
)
def test_every_mutant_is_caught(lab, honest, name, detector):
    """The detector that stays silent about the honest build raises the alarm about the fault."""
    mutant = MUTANTS[name]
    before = honest(detector, mutant.draws)
    assert not before.alarm, before.figure
    with mutant.apply():
        found = DETECTORS[detector](replace(lab, draws=mutant.draws), SEED)
    assert found.alarm, found.figure


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in QUICK])
def test_no_detector_accuses_the_honest_build(lab, honest, name):
    found = honest(name, lab.draws)
    assert not found.alarm, found.figure


def test_there_are_28_mutants_and_every_detector_catches_some():
    assert len(MUTANTS) == 28
    assert {each for mutant in MUTANTS.values() for each in mutant.caught_by} == set(DETECTORS)


@pytest.mark.trust
def test_all_mutants_are_caught_at_several_seeds(lab, card):
    missed = []
    for name, mutant in MUTANTS.items():
        place = replace(lab, draws=mutant.draws)
        for detector, seed in product(mutant.caught_by, SEEDS):
            if detector in WHOLE_RUNS and seed != SEEDS[0]:
                continue
            with mutant.apply():
                found = DETECTORS[detector](place, seed)
            if not found.alarm:
                missed.append((name, detector, seed, found.figure))
    caught = len(MUTANTS) - len({name for name, *_ in missed})
    total = len(MUTANTS)
    card("mutants caught", f"{total} of {total}", f"{caught} of {total}", not missed)
    assert not missed


@pytest.mark.trust
@pytest.mark.parametrize(
    ("row", "names"),
    [("false alarms", QUICK), ("false alarms, black box", ["black box"])],
    ids=["inside", "black box"],
)
def test_a_hundred_honest_runs_raise_no_alarm(lab, card, row, names):
    alarms = [
        (name, seed, found.figure)
        for seed in range(100, 100 + HONEST_RUNS)
        for name in names
        if name not in WHOLE_RUNS or seed == 100
        if (found := DETECTORS[name](lab, seed)).alarm
    ]
    figure = f"{len(alarms)} in {HONEST_RUNS} runs of {len(names)} detector{'s'[: len(names) - 1]}"
    card(row, f"0 in {HONEST_RUNS} honest runs", figure, not alarms)
    assert not alarms
