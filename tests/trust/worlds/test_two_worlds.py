"""Two worlds that differ in one client: what carries no noise is the same, byte for byte."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace

import numpy as np
import pytest

from .world import (
    Case,
    Transcript,
    World,
    differences,
    gone,
    ledger_kinds,
    moved,
    rows_of,
    without,
)

pytestmark = pytest.mark.xdist_group("worlds")

LARGE, SINGLE, TESTED = "c0", "c5", "c1"
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
    Case(flags=TWO_MODES),
    Case(flags=("--evaluate", "private")),
    Case(flags=("--evaluate", "none")),
    Case("intents", ("--evaluate", "private")),
    Case("tagging", ("--evaluate", "private")),
    Case(flags=("--q", "0.5")),
    Case(flags=("--q", "0.97")),
    Case(flags=("--set", "replay.release=pooled")),
    Case(flags=("--set", "replay.release=select")),
    Case(flags=("--set", 'encoders=["minilm","other"]', "--set", "replay.coordinates=mapped")),
    Case(upgrade=True),
    Case("intents", upgrade=True),
    Case("tagging", upgrade=True),
]
QUICK = [
    Case("classification"),
    Case("intents", ("--cap", "1")),
    Case("tagging"),
    Case(flags=("--method", "dp-sgd")),
    Case(flags=("--evaluate", "private")),
    Case(upgrade=True),
]


def troubles(play, case: Case, client: str) -> list[str]:
    rows = rows_of(case.family)
    one, other = play(case, rows), play(case, without(rows, client))
    found = differences(one, other)
    # Its coin leaves this client out at 0.5, and lets it take part at 0.97.
    left_out = case.flags == ("--q", "0.5") and client == SINGLE
    if left_out or moved(one, other):
        return found
    return [*found, "no sum shows the difference"]


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


def test_a_cache_of_other_rows_changes_nothing(place, play):
    """What an earlier run left in the cache, with or without a client's rows, plays no part."""
    case, rows = Case(), rows_of("classification")
    straight = play(case, without(rows, LARGE))
    world = World(place, case, rows)
    world.run("--run-dir", "earlier")
    cache = world.root / "cache"
    kept = {path: path.read_bytes() for path in cache.rglob("*") if path.is_file()}
    world = World(place, case, without(rows, LARGE))
    for path, content in kept.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    world.run()
    assert differences(straight, world.end()) == []


def test_a_client_that_is_gone_with_its_test_rows_leaves_the_same_files(play):
    """What the screen shows is about test rows and differs; files, messages and codes do not."""
    rows = rows_of("classification")
    one, other = (_unseen(play(Case(), each)) for each in (rows, gone(rows, TESTED)))
    assert differences(one, other) == []


AFTERWARDS = {
    "large client without train rows": lambda rows: without(rows, LARGE),
    "client with test rows gone": lambda rows: gone(rows, TESTED),
    "rows of a new client": lambda rows: [*rows, {**rows[0], "client": "c7"}],
}
PAID = ("--evaluate", "private")


@pytest.mark.parametrize("afterwards", AFTERWARDS)
@pytest.mark.parametrize(
    ("case", "death"),
    [(Case(), "task 0"), (Case(), "task 1"), (Case(flags=PAID), "evaluation")],
    ids=str,
)
def test_rows_that_change_after_a_crash_do_not_show(tmp_path, case, death, afterwards):
    """A release that was charged is finished from what was kept, whether rows changed or not."""
    rows, ends = rows_of("classification"), []
    for later in (rows, AFTERWARDS[afterwards](rows)):
        world = World(tmp_path / "world", case, rows)
        assert world.run(dies_at=death) == -9
        world.write(later)
        assert world.run() == 0
        ends.append(_unseen(world.end()))
    assert differences(*ends) == []
    assert ledger_kinds(ends[0]).count("charge") == (3 if case.flags else 2)


def test_a_cache_that_is_lost_after_a_crash_does_not_show(tmp_path):
    rows, ends = rows_of("classification"), []
    for lost in (False, True):
        world = World(tmp_path / "world", Case(), rows)
        assert world.run(dies_at="task 1") == -9
        if lost:
            shutil.rmtree(world.root / "cache")
            world.write(without(rows, LARGE))
        assert world.run() == 0
        ends.append(world.end())
    assert differences(*ends) == []


def test_an_interrupted_release_is_finished_before_an_upgrade(tmp_path):
    """Its sum was made under the old encoder; released under the new one it would mean nothing."""
    rows, ends = rows_of("classification"), []
    upgrade = ("upgrade", "run", "--encoder", "other", "--run-dir", "upgraded")
    for later in (rows, without(rows, LARGE)):
        world = World(tmp_path / "world", Case(), rows)
        assert world.run(dies_at="task 1") == -9
        world.write(later)
        assert world.call(*upgrade) == 2
        assert "interrupted after 'task 1' was charged" in world.transcript.exits[-1][2]
        assert not (world.root / "upgraded").exists()
        assert world.run() == 0
        assert world.call(*upgrade) == 0
        ends.append(world.end())
    assert differences(*ends) == []
    assert ledger_kinds(ends[0]).count("charge") == 2


def test_an_upgrade_that_was_interrupted_goes_on(tmp_path):
    world = World(tmp_path / "world", Case(), rows_of("classification"))
    upgrade = ("upgrade", "run", "--encoder", "other", "--run-dir", "upgraded")
    assert world.run("--until", "1") == 0
    assert world.call(*upgrade, dies_at="task 1") == -9
    assert world.call(*upgrade) == 0
    before, after = (world.transcript.sums[f"task 1/{attempt}"][0] for attempt in (0, 1))
    assert np.array_equal(before, after)
    assert ledger_kinds(world.end()).count("charge") == 2


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (lambda rows: [], "no valid train row"),
        (lambda rows: [*rows, {**rows[0], "label": "L9"}], "not as declared"),
        (lambda rows: [{**rows[0], "client": f"c{n}"} for n in range(9)], "rows of 9 clients"),
    ],
    ids=["no rows", "a bad row", "more clients than declared"],
)
def test_rows_that_are_refused_leave_nothing_behind(tmp_path, bad, told):
    """A refusal tells its holder about rows, so nobody else may learn of it."""
    world = World(tmp_path / "world", Case(), bad(rows_of("classification")))
    before = set(world.end().files)
    assert world.run() == 2
    assert told in world.transcript.exits[-1][2]
    assert set(world.end().files) == before


def _unseen(transcript: Transcript) -> Transcript:
    """Without what the screen of the rows' holder shows: figures on test rows are exact there."""
    return replace(transcript, exits=[(code, "", err) for code, _, err in transcript.exits])
