"""A hundred kills at random moments, of runs that were killed before."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

from .checks import differing, spent, unpaid, unsettled
from .children import outcome_of, run_in_child, start_child

pytestmark = pytest.mark.xdist_group("crash")

KILLS = 100


def broken_promises(known):
    """Of a finished run."""
    case = known.case
    found = differing(case, known.files) + unpaid(case) + unsettled(case)
    return found + (["ε shrank"] if spent(case) < known.epsilon else [])


@pytest.mark.trust
def test_a_hundred_random_kills_change_nothing(cases, card):
    known = cases["heads"]
    case, rng = known.case, np.random.default_rng(31)
    begun = time.monotonic()
    case.begin()
    run_in_child(case)
    longest = 0.6 * (time.monotonic() - begun)  # a run that goes on has less to do
    kills, finished, bad = 0, 0, []
    case.begin()
    while kills < KILLS:
        child = start_child(case)
        time.sleep(rng.uniform(0, longest))
        os.kill(child.pid, signal.SIGKILL)  # a child that has ended waits to be asked how
        end = outcome_of(child)
        kills += end.end == "killed"
        if end.end == "finished":
            finished += 1
            bad += broken_promises(known)
            case.begin()
        elif end.end != "killed":
            bad.append(f"{end.end}: {end.error} {end.message}")
            case.begin()
    assert run_in_child(case).end == "finished"
    bad += broken_promises(known)
    card(
        "random kills of a run with a head trained by clients",
        "100 kills, identical, never under-charged",
        f"{kills} kills in {finished + 1} runs, {len(bad)} troubles",
        kills >= KILLS and not bad,
    )
    assert bad == []
