"""The outlook of a plan: its releases, contributors, forecast and suggested cap."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cslr.errors import ConfigError
from cslr.methods.outlook import LITTLE, MOST, NOTHING, Federated, outlook_of
from cslr.privacy.plan import Budget, Schedule, calibrate


def federation(units, epsilon=4.0, unit="person", tasks=4, **more):
    usual = {"rows_per_unit": 1 if unit == "person" else 8}
    return Federated(Budget(epsilon, unit=unit), units, tasks, **{**usual, **more})


def test_the_resolution_is_told_in_words():
    many, few = outlook_of(federation(12_000)), outlook_of(federation(20, unit="client"))
    assert many.resolution.tied > 100
    told = f"means in 384 directions, a tied matrix in {many.resolution.tied}; one message a task"
    assert many.releases() == told
    assert (
        few.releases() == "means in 384 directions, one number for the spread; one message a task"
    )
    assert "2 means per label" in outlook_of(federation(12_000, sub_modes=2)).releases()


def test_speakers_are_counted_as_they_are():
    # People with rows of one task do not speak about two because they would be allowed to.
    assert outlook_of(federation(12_000), cap=2).speakers == 3000
    assert outlook_of(federation(12_000, tasks_per_unit=2), cap=2).speakers == 6000
    assert outlook_of(federation(12_000, tasks_per_unit=2), cap=1).speakers == 3000
    assert outlook_of(federation(20, unit="client")).speakers == 20


@pytest.mark.parametrize(("spoken", "cap"), [(1, 1), (2, 2), (4, 4)])
def test_the_suggested_cap_is_the_tasks_that_a_unit_has(spoken, cap):
    outlook = outlook_of(federation(900, tasks_per_unit=spoken))
    assert outlook.best_cap == cap
    shares = {each.cap: each.share for each in outlook.caps}
    assert max(shares.values()) == shares[cap]
    assert [each.sigma for each in outlook.caps] == sorted(each.sigma for each in outlook.caps)


@pytest.mark.parametrize("spoken", [1, 2, 3])
def test_without_a_cap_the_plan_is_that_of_a_run(spoken):
    """A run lets people contribute to as many tasks as they are declared to have rows of."""
    assert outlook_of(federation(900, tasks_per_unit=spoken)).plan.cap == spoken
    clients = outlook_of(federation(20, unit="client", tasks_per_unit=spoken)).plan
    assert clients.cap == clients.releases


def test_gradient_rounds_are_told_with_their_messages():
    outlook = outlook_of(federation(5000, tasks=5, labels_per_task=2, all_labels=True))
    assert outlook.rounds
    assert outlook.messages == 15
    assert "enough people for gradient rounds: 15 rounds of a linear head" in outlook.releases()
    once = calibrate(Budget(4.0, unit="person"), 5, cap=1).sigma
    assert outlook.plan.head_sigma == pytest.approx(math.sqrt(15) * once)
    few = outlook_of(federation(50, unit="client", tasks=5, labels_per_task=2, all_labels=True))
    assert not few.rounds
    assert few.messages == 1


def test_names_are_learnt_by_gradient_rounds_with_or_without_common_types():
    apart = outlook_of(federation(900, tasks=2, labels_per_task=5, family="tagging"))
    assert apart.rounds
    assert apart.releases().startswith("tagging needs no replay, and there are enough people")
    together = outlook_of(
        federation(900, tasks=2, labels_per_task=5, family="tagging", all_labels=True)
    )
    assert together.releases().startswith("every task has all labels, and there are enough")
    assert not outlook_of(federation(900, tasks=2, labels_per_task=5)).rounds


def test_the_forecast_grows_with_units_and_epsilon_and_stays_a_share():
    shares = [
        [outlook_of(federation(units, epsilon)).share for epsilon in (1.0, 4.0, 8.0)]
        for units in (20, 300, 3000, 12_000)
    ]
    for row in shares:
        assert row == sorted(row)
    for column in zip(*shares, strict=True):
        assert list(column) == sorted(column)
    assert 0 < shares[0][0] < NOTHING < shares[-1][-1] < MOST


def test_few_rows_of_a_silo_count_less():
    full = outlook_of(federation(20, unit="client")).share
    assert outlook_of(federation(20, unit="client", rows_per_unit=1)).share < full


@pytest.mark.parametrize("units", [2, 20, 60, 200, 2000, 20_000])
def test_little_signal_is_never_called_good(units):
    outlook = outlook_of(federation(units, unit="client"))
    verdict = outlook.verdict()
    assert "good" not in verdict.lower()
    if outlook.share < NOTHING:
        assert verdict.startswith("Not useful")
    elif outlook.share < 0.3:
        assert "no better than zero-shot" in verdict
    else:
        assert verdict.startswith("Expected to close about")


def test_the_number_of_units_that_would_help_does_help():
    outlook = outlook_of(federation(20, unit="client"))
    assert outlook_of(federation(outlook.needed(), unit="client")).share >= 0.299


def names(people, epsilon=1.0, **more):
    return federation(people, epsilon, tasks=2, labels_per_task=2, family="tagging", **more)


@pytest.mark.parametrize("people", [1, 41, 99, 101, 120, 150, 404])
def test_the_number_of_units_that_would_help_allows_for_the_switch_to_rounds(people):
    needed = outlook_of(names(people)).needed()
    assert needed == 405
    assert outlook_of(names(needed)).share >= LITTLE > outlook_of(names(needed - 1)).share


def test_the_number_of_units_that_would_help_is_that_of_the_same_cap_and_clients():
    for more in ({"tasks_per_unit": 2}, {"clients_per_person": 3}, {"all_labels": True}):
        for cap in (1, 4):
            needed = outlook_of(federation(10, **more), cap).needed()
            found = [outlook_of(federation(n, **more), cap).share for n in (needed - 1, needed)]
            assert found[0] < LITTLE <= found[1], (more, cap)


@pytest.mark.parametrize(
    "more",
    [{}, {"clients_per_person": 5}, {"family": "tagging"}, {"all_labels": True}, {"sub_modes": 2}],
)
def test_the_forecast_follows_from_the_signal(more):
    outlook = outlook_of(federation(900, **more))
    assert outlook.share == pytest.approx(MOST * outlook.signal / (outlook.signal + 3))
    assert math.isinf(outlook_of(federation(900, math.inf, **more)).signal)


def test_clients_per_person_divide_the_signal():
    alone, several = (outlook_of(names(150, clients_per_person=n)).signal for n in (1, 5))
    assert alone == pytest.approx(5 * several)


def test_rounds_are_planned_with_the_participation_of_a_run():
    outlook = outlook_of(names(150, 4.0, q=0.3))
    budget, rounds = outlook.federation.budget, Schedule(replay=0, head=15)
    assert outlook.plan == calibrate(budget, 2, 0.3, 1, rounds, 0.3)
    assert outlook_of(names(100, 4.0)).rounds
    assert not outlook_of(names(100, 4.0, q=0.3)).rounds


def test_a_cap_is_suggested_only_where_it_helps():
    free = outlook_of(federation(20, math.inf, unit="client"))
    assert (free.best_cap, free.cap_matters) == (4, False)
    hopeless = outlook_of(names(60))  # 1 and 4 %
    assert (hopeless.best_cap, hopeless.cap_matters) == (1, True)
    helped = outlook_of(federation(200, unit="client"), cap=1)
    assert (helped.best_cap, helped.cap_matters) == (4, True)
    assert [each.cap for each in outlook_of(federation(20), cap=3).caps] == [1, 2, 3, 4]


def test_names_have_a_doubt_of_their_own():
    guess = "Forecasts were fitted to texts; for names they are a guess."
    for people, epsilon in ((60, 1.0), (200, 1.0), (405, 1.0), (5000, 8.0)):
        verdict = outlook_of(names(people, epsilon)).verdict()
        assert verdict.count(guess) == 1
        assert "points" not in verdict
    text = outlook_of(replace(names(5000, 8.0), family="classification")).verdict()
    assert "off by up to 45 points" in text


def test_without_noise_nothing_is_protected():
    outlook = outlook_of(federation(20, math.inf))
    assert outlook.verdict() == "No noise: nothing is protected."
    assert outlook.share == MOST


def test_a_unit_cannot_have_more_tasks_than_there_are():
    with pytest.raises(ConfigError, match="1 to 4 tasks, not 5"):
        federation(20, tasks_per_unit=5)
    with pytest.raises(ConfigError, match="tasks must be at least 1, not 0"):
        federation(20, tasks=0)
    with pytest.raises(ConfigError, match="units must be at least 1, not 0"):
        federation(0)
