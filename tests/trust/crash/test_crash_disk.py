"""A disk that is full or fails at any call: the run stops with an error and can go on later."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from .checks import differing, spent, unpaid, unsettled
from .children import run_in_child

pytestmark = pytest.mark.xdist_group("crash")


def troubles(known, at, how, ends):
    """Let the disk refuse one call, mend it, go on, and say what is not as it should be."""
    case = known.case
    case.begin()
    first = run_in_child(case, at, how)
    ends[f"{first.end} {first.error}".strip()] += 1
    found = unpaid(case)
    if first.end == "finished":  # as with a directory that is there and cannot be made again
        found += differing(case, known.files)
    elif first.end not in ("refused", "failed"):
        found.append(f"{first.end}: {first.error} {first.message}")
    second = run_in_child(case)
    if second.end != "finished":
        found.append(f"{second.end}: {second.error} {second.message}")
    else:
        found += differing(case, known.files) + unpaid(case) + unsettled(case)
        if spent(case) < known.epsilon:
            found.append("ε shrank")
    return [f"{how} at {known.asked[how][at]}: {trouble}" for trouble in found]


def test_a_full_or_failing_disk_stops_the_run_and_nothing_is_unpaid(cases):
    known, ends = cases["sum"], Counter()
    for how in ("full", "broken"):
        for at in np.linspace(0, len(known.asked[how]) - 1, 3).astype(int).tolist():
            assert troubles(known, at, how, ends) == []
    assert set(ends) & {"refused PrivacyError", "refused ConfigError", "failed OSError"}


@pytest.mark.trust
@pytest.mark.parametrize("kind", ["sum", "list"])
def test_a_disk_that_refuses_any_call_stops_the_run_and_nothing_is_unpaid(cases, kind, card):
    known, ends = cases[kind], Counter()
    # In list mode the same calls come five times as often, so some of them will do.
    step = {("sum", "full"): 1, ("sum", "broken"): 1, ("list", "full"): 5, ("list", "broken"): 5}
    places = [
        (how, at) for how in known.asked for at in range(0, len(known.asked[how]), step[kind, how])
    ]
    bad = [trouble for how, at in places for trouble in troubles(known, at, how, ends)]
    said = ", ".join(f"{count} {name}" for name, count in sorted(ends.items()))
    card(
        f"disk full or failing, {kind} mode",
        "stops with an error, nothing unpaid, goes on identically",
        f"{len(places)} calls ({said}), {len(bad)} troubles",
        not bad,
    )
    assert bad == []
