"""kill −9 at every point of a run: taken up again, it ends as if nothing had happened."""

from __future__ import annotations

import signal
from dataclasses import replace

import numpy as np
import pytest

from .checks import differing, ledger_of, spent, unpaid, unsettled
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


def test_a_run_killed_while_it_pays_for_its_evaluation_goes_on_to_the_same_bytes(cases):
    known = cases["evaluated"]
    kept = [n for n, name in enumerate(known.points) if "seed-13/.evaluation" in name]
    for at in range(kept[0] - 6, kept[-1] + 4, 3):
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


def changed_rows(case):
    """One client's rows are gone when the run goes on."""
    rows = case.rows.read_text().splitlines(keepends=True)
    case.rows.write_text("".join(row for row in rows if ",c1," not in row))


def test_rows_that_changed_meanwhile_do_not_change_an_interrupted_release(cases):
    """It is finished from the sum that was kept: the charges and its bytes are as they were."""
    known = cases["sum"]
    case = known.case
    for at in known.key_made_and_nothing_kept[-3:]:
        case.begin()
        assert run_in_child(case, at).end == "killed"
        paid = ledger_of(case).charges
        assert [charge.label for charge in paid] in ([], ["task 0"])
        changed_rows(case)
        assert run_in_child(case).end == "finished"
        assert len(ledger_of(case).charges) == case.tasks
        assert spent(case) == known.epsilon
        assert unpaid(case) + unsettled(case) == []
        if paid:
            assert differing_releases(case, known.files) == ["task-1", "task-2"]


def differing_releases(case, undisturbed):
    """The releases that are not as in the undisturbed run."""
    names = [f"task-{task}" for task in range(case.tasks)]
    files = {name: f"run/seed-13/{name}.safetensors" for name in names}
    return [
        name for name, file in files.items() if (case.root / file).read_bytes() != undisturbed[file]
    ]


@pytest.mark.trust
def test_rows_that_change_at_any_crash_do_not_change_the_charges(cases, card):
    known = cases["sum"]
    case, bad = known.case, []
    chosen = spread(len(known.points), 60)
    for at in chosen:
        case.begin()
        assert run_in_child(case, at).end == "killed"
        changed_rows(case)
        end = run_in_child(case).end
        if end != "finished" or len(ledger_of(case).charges) != case.tasks:
            bad.append(f"{known.points[at]}: {end}")
        bad += unpaid(case) + unsettled(case)
    card(
        "kill −9, then changed rows",
        "same charges, same exit code",
        f"{len(chosen)} points, {len(bad)} troubles",
        not bad,
    )
    assert bad == []
