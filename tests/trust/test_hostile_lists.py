"""Lists that are as wild as the inbox allows: the server's naming and its replay stay finite.

A list arrives with noise of its own, so its coordinates may lie far beyond the bound. Mode ids,
weights and moments are computed from it by the server: none of them can be sent.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cslr.federation.wire.codec import Question
from cslr.federation.wire.expected import Expected
from cslr.federation.wire.identity import Identity
from cslr.federation.wire.inbox import Inbox
from cslr.federation.wire.terms import terms_of
from cslr.privacy.mechanism import release
from cslr.privacy.plan import Budget, Schedule, calibrate
from cslr.privacy.values import _SEAL, Grid, bound
from cslr.protocol.list_mode import list_statistics, server_ids
from cslr.protocol.round import replay_of, sum_ask
from cslr.protocol.step3_match import MATCHERS

SIGMA = 2.0
GRID = Grid(0.8)
SPACE = "the digest of a public space"
TERMS = terms_of(GRID, SPACE, SIGMA)
PATTERNS = {
    "all at the top": lambda d: np.ones(d),
    "all at the bottom": lambda d: -np.ones(d),
    "by turns": lambda d: np.where(np.arange(d) % 2, 1.0, -1.0),
    "one spike": lambda d: (np.arange(d) == d // 2) * 1.0,
    "nothing": np.zeros,
    "weights at the bottom": lambda d: np.where(np.arange(d) < 4, -1.0, 1.0),
    "weights at the top": lambda d: np.where(np.arange(d) < 4, 1.0, -1.0),
    "random corners": lambda d: np.sign(np.random.default_rng(3).standard_normal(d)),
    "one step": lambda d: (np.arange(d) == 0) * 1e-9,
}


@pytest.fixture(scope="module")
def agreement(world):
    lists = {"release": "list", "pooled": True, "sub_modes": 4, "list_size": 4}
    return world.agreement(**lists, list_bound=0.8, bound=4.0)


def received(rows):
    """(b, D) the lists as a server decodes them, every one through the inbox."""
    asked = Question("clinics", "run 1", 1, "task 0 list", "list", TERMS)
    people = [Identity.new(f"client-{i:02d}") for i in range(len(rows))]
    keys = {person.client: person.public for person in people}
    inbox = Inbox(Expected(asked, rows.shape[1], GRID, SPACE, SIGMA), keys)
    for person, row in zip(people, rows, strict=True):
        assert inbox.accept(person.answer(asked, row[None])) == "accepted"
    return GRID.decode(np.stack(list(inbox.close_lists().values())))


def named(world, agreement, matcher, pattern, hostile):
    """(12, 1, 4) the server's names when the first ``hostile`` clients send the pattern."""
    request = replace(agreement, matcher=matcher).request(0, (0, 1))
    layout = agreement.list_layout(1)
    rows = bound(layout.pack(list_statistics(world.examples(0), request)), GRID).rows(_SEAL)
    farthest = Expected(Question("c", "r", 1, "l", "list", TERMS), 1, GRID, SPACE, SIGMA).farthest
    rows = rows.copy()
    rows[:hostile] = np.trunc(farthest * PATTERNS[pattern](layout.size)).astype(np.int64)
    return request, server_ids(layout.unpack(received(rows)), request)


QUICK = [name for name in MATCHERS if name != "optimal-transport"]
"""Transport takes its thousand iterations over such lists: it is asked less often."""


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(
    "matcher", [*QUICK, pytest.param("optimal-transport", marks=pytest.mark.trust)]
)
def test_every_list_of_every_client_gets_names_that_exist(world, agreement, matcher, pattern):
    for hostile in (1, 12):
        _, ids = named(world, agreement, matcher, pattern, hostile)
        assert ids.shape == (12, 1, 4)
        assert ids.dtype == np.int64
        assert set(np.unique(ids)) <= set(range(4))


@pytest.mark.parametrize("pattern", ["all at the top", "by turns", "random corners"])
@pytest.mark.parametrize("matcher", [name for name in QUICK if name != "signature"])
def test_where_names_are_given_one_by_one_a_wild_list_changes_nobody_elses(
    world, agreement, matcher, pattern
):
    _, wild = named(world, agreement, matcher, pattern, hostile=1)
    _, calm = named(world, agreement, matcher, "nothing", hostile=1)
    np.testing.assert_array_equal(wild[1:], calm[1:])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_replay_made_with_such_names_is_finite(world, agreement, make_ledger, pattern):
    request, ids = named(world, agreement, "signature", pattern, hostile=3)
    told = replace(request, names=dict(enumerate(ids)))
    plan = calibrate(Budget(4.0), 1, schedule=Schedule(replay=1, lists=1))
    cohort = world.population.cohort(0, np.ones(12, dtype=bool), cap=2)
    summed = cohort.total(sum_ask(told))
    released = release(summed, plan.charge("task 0", 0), make_ledger(math.inf))
    read = partial(agreement.read, request=told, plan=plan)
    replay = replay_of([released.map(told.layout.unpack).map(read)], agreement).value
    for name in ("weights", "mean", "centre", "relative", "targets"):
        assert np.isfinite(getattr(replay, name)).all(), name
    assert np.all(replay.weights >= 0)
    assert np.sum(replay.weights) == pytest.approx(1.0)
    assert np.all(replay.relative > 0)
