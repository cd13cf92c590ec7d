"""Two processes on one run: the second is refused, the first never notices."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from .checks import differing, unpaid, unsettled
from .children import outcome_of, run_in_child, start_child

pytestmark = pytest.mark.xdist_group("crash")


def troubles(known, at):
    """Stop a run at a point, start it a second time, let the first go on."""
    case = known.case
    case.begin()
    first = start_child(case, at, "stop")
    os.waitpid(first.pid, os.WUNTRACED)
    second = run_in_child(case)
    os.kill(first.pid, signal.SIGCONT)
    end = outcome_of(first)
    found = [] if second.end == "refused" else [f"the second {second.end} {second.message}"]
    if end.end != "finished":
        found.append(f"the first {end.end}: {end.error} {end.message}")
    else:
        found += differing(case, known.files) + unpaid(case) + unsettled(case)
    return [f"at {known.points[at]}: {trouble}" for trouble in found]


def begun(known):
    """The first point at which something is in the ledger or the run directory."""
    return next(n for n, name in enumerate(known.points) if "flock" in name)


def test_a_second_process_is_refused_while_the_first_is_at_work(cases):
    known = cases["sum"]
    first = next(n for n, name in enumerate(known.points) if "/keys/" in name)
    last = max(n for n, name in enumerate(known.points) if "/keys/" in name)
    for at in np.linspace(first, last, 2).astype(int).tolist():
        assert troubles(known, at) == []


@pytest.mark.trust
def test_a_second_process_is_refused_from_the_first_lock_to_the_last_line(cases, card):
    known = cases["sum"]
    places = np.linspace(begun(known), len(known.points) - 1, 20).astype(int).tolist()
    bad = [trouble for at in places for trouble in troubles(known, at)]
    card(
        "two processes on one run",
        "second refused, first unharmed",
        f"{len(places)} moments, {len(bad)} troubles",
        not bad,
    )
    assert bad == []
