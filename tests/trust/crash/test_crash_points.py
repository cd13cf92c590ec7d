"""kill −9 at every point of a run: taken up again, it ends as if nothing had happened."""

from __future__ import annotations

import signal
from dataclasses import replace

import numpy as np
import pytest

from .checks import differing, ledger_of, spent, unpaid, unsettled, witnessed
from .children import run_in_child

pytestmark = pytest.mark.xdist_group("crash")


def troubles(known, at, how="kill"):
    """Kill at one point, go on, and say what is not as it should be."""
    case = known.case
    case.begin()
    first = run_in_child(case, at, how)
    assert (first.end, first.error) == ("killed", signal.SIGKILL.name), first
    found = unpaid(case) if case.ledger.exists() and case.ledger.stat().st_size else []
    second = run_in_child(case)
    if second.end != "finished":
        return [*found, f"{second.end}: {second.error} {second.message}"]
    found += differing(case, known.files) + unpaid(case) + unsettled(case)
    if spent(case) < known.epsilon:
        found.append("ε shrank")
    return [f"killed after {known.points[at]}: {trouble}" for trouble in found]


def spread(count, wanted):
    """``wanted`` places from the first to the last of ``count``."""
    return sorted({int(place) for place in np.linspace(0, count - 1, wanted)})


def test_a_killed_run_goes_on_to_the_same_bytes_from_a_dozen_places(cases):
    for kind, wanted in (("sum", 7), ("list", 5)):
        known = cases[kind]
        for at in spread(len(known.points), wanted):
            assert troubles(known, at) == []


@pytest.mark.trust
@pytest.mark.parametrize("kind", ["sum", "list"])
def test_a_killed_run_goes_on_to_the_same_bytes_from_any_place(cases, kind, card):
    known = cases[kind]
    chosen = range(len(known.points))
    bad = [trouble for at in chosen for trouble in troubles(known, at)]
    card(
        f"kill −9 at every point, {kind} mode",
        "≥ 60 points, identical, never under-charged",
        f"{len(chosen)} points, {len(bad)} troubles",
        len(chosen) >= 60 and not bad,
    )
    assert len(chosen) >= 60
    assert bad == []


def test_other_keys_after_a_restart_do_not_mean_other_noise(cases):
    """The key of an open charge is found again, so one charge never pays for two payloads."""
    known = cases["sum"]
    case = replace(known.case, entropy="salted")
    for at in known.key_made_and_nothing_kept[::4]:
        case.begin()
        assert run_in_child(case, at).end == "killed"
        assert run_in_child(case).end == "finished"
        assert unpaid(case) + unsettled(case) == []
        assert len(ledger_of(case).charges) == case.tasks


def test_another_sum_after_a_restart_is_another_charge(cases):
    """A client's rows are gone when the run goes on: the same noise on both sums would tell."""
    known = cases["sum"]
    case = replace(known.case, settings={**known.case.settings, "privacy.epsilon": 3.0})
    for at in known.key_made_and_nothing_kept[-1:]:
        case.begin()
        assert run_in_child(case, at).end == "killed"
        paid = ledger_of(case).charges
        assert [charge.label for charge in paid] == ["task 0"]
        rows = case.rows.read_text().splitlines(keepends=True)
        case.rows.write_text("".join(row for row in rows if ",c1," not in row))
        assert run_in_child(case).end == "finished"
        ledger = ledger_of(case)
        assert [charge.label for charge in ledger.charges].count("task 0") == 2
        assert len(ledger.charges) == case.tasks + 1
        first, second = [r["body"] for r in ledger.records if r["kind"] == "charge"][:2]
        assert first["tag"] != second["tag"]
        assert first["commitment"] != second["commitment"]
        assert unpaid(case) + unsettled(case) == []
        assert spent(case) > 3.0
        assert {note["label"] for note in witnessed(case)} == {f"task {t}" for t in range(3)}
