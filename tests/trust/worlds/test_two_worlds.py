"""Two worlds that differ in one client: what carries no noise is the same, byte for byte."""

from __future__ import annotations

import random

import pytest

from .world import Case, Transcript, World, differences, ledger_kinds, moved, rows_of, without

pytestmark = pytest.mark.xdist_group("worlds")

LARGE, SINGLE = "c0", "c5"
METHODS = (
    "cslr",
    "dp-class-stats",
    "dp-stat-share",
    "dp-sgd",
    "fedcil",
    "cslr-noanchor",
    "cslr-nearestmean",
    "cslr-hungarian",
    "cslr-optimaltransport",
)
"""Every method that enforced privacy offers."""
TWO_MODES = ("--sub-modes", "2")
CASES = [
    *[
        Case(family, ("--method", method))
        for family in ("classification", "intents", "tagging")
        for method in METHODS
    ],
    Case(flags=("--head", "dp-fedavg", "--set", "head.rounds=2")),
    Case(flags=("--cap", "1")),
    Case(flags=("--set", "replay.clipping=separate")),
    Case(flags=TWO_MODES),
    Case(flags=("--evaluate", "private")),
    Case(flags=("--evaluate", "none")),
    Case(upgrade=True),
    Case("intents", upgrade=True),
]
QUICK = [
    Case("classification"),
    Case("intents", ("--cap", "1")),
    Case("tagging"),
    Case(flags=("--method", "dp-sgd")),
    Case(flags=("--evaluate", "private")),
    Case(upgrade=True),
]


@pytest.fixture
def play(tmp_path):
    """``play(case, rows)``: the transcript of one run."""

    def go(case: Case, rows) -> Transcript:
        world = World(tmp_path / "world", case, rows)
        if case.upgrade:
            world.run("--until", "1")
            world.call("upgrade", "run", "--encoder", "other", "--run-dir", "upgraded")
        else:
            world.run()
        transcript = world.end()
        assert [code for code, _, _ in transcript.exits] == [0] * len(transcript.exits), (
            transcript.exits
        )
        return transcript

    return go


def troubles(play, case: Case, client: str) -> list[str]:
    rows = rows_of(case.family)
    one, other = play(case, rows), play(case, without(rows, client))
    found = differences(one, other)
    return found if moved(one, other) else [*found, "no sum shows the difference"]


@pytest.mark.parametrize("client", [LARGE, SINGLE])
@pytest.mark.parametrize("case", QUICK, ids=str)
def test_a_client_moves_sums_by_their_bound_and_nothing_else(play, case, client):
    assert troubles(play, case, client) == []


@pytest.mark.trust
def test_no_case_shows_a_client_beyond_its_bound(play, card):
    cases = [(case, client) for case in CASES for client in (LARGE, SINGLE)]
    bad = [
        f"{case} without {client}: {trouble}"
        for case, client in cases
        for trouble in troubles(play, case, client)
    ]
    card(
        "two worlds, whole program",
        "nothing without noise differs, sums within their bound",
        f"{len(cases)} pairs of runs, {len(bad)} differences",
        not bad,
    )
    assert bad == []


def test_the_order_of_rows_changes_nothing_without_noise(play):
    case, rows = Case(), rows_of("classification")
    shuffled = random.Random(3).sample(rows, len(rows))
    one, other = play(case, rows), play(case, shuffled)
    assert differences(one, other) == []


def test_a_cache_of_other_rows_changes_nothing(tmp_path, play):
    """What an earlier run left in the cache, with or without a client's rows, plays no part."""
    case, rows = Case(), rows_of("classification")
    straight = play(case, without(rows, LARGE))
    world = World(tmp_path / "world", case, rows)
    world.run("--run-dir", "earlier")
    cache = world.root / "cache"
    kept = {path: path.read_bytes() for path in cache.rglob("*") if path.is_file()}
    world = World(tmp_path / "world", case, without(rows, LARGE))
    for path, content in kept.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    world.run()
    assert differences(straight, world.end()) == []


@pytest.mark.parametrize("death", ["task 0", "task 1"])
def test_rows_that_change_after_a_crash_do_not_show(tmp_path, death):
    """A release that was charged is finished from what was kept, whether rows changed or not."""
    rows, ends = rows_of("classification"), []
    for later in (rows, without(rows, LARGE)):
        world = World(tmp_path / "world", Case(), rows)
        assert world.run(dies_at=death) == -9
        world.write(later)
        assert world.run() == 0
        ends.append(world.end())
    found = differences(*ends)
    assert found == []
    assert ledger_kinds(ends[0]).count("charge") == 2
