"""Which client holds which rows: a person's rows stay together, and seeds are reproducible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cslr.config import Config, StreamConfig
from cslr.data.stream import RESAMPLED_ROWS, assign_clients
from cslr.data.streams import Label, Rows, Stream, Task, load_stream
from cslr.errors import ConfigError
from cslr.protocol.head import Family
from cslr.runs.embedded import EmbeddedRows, EmbeddedStream
from cslr.runs.prepare import population_of
from cslr.seeding import Seeds

LABELS, TASKS = 4, 2


def some_rows(n: int = 120, people: int | None = None, clients: int | None = None) -> Rows:
    """Two tasks of two labels each; a person has rows of one task."""
    rng = np.random.default_rng(0)
    who = rng.integers(people or n, size=n)
    tasks = who % TASKS
    labels = 2 * tasks + rng.integers(2, size=n)
    return Rows(
        tuple(f"text {i}" for i in range(n)),
        tuple((int(label),) for label in labels),
        tasks,
        1000 - 7 * who if people else None,  # in no order and not without gaps
        rng.integers(clients, size=n) if clients else None,
    )


def stream_of(rows: Rows, **more: object) -> Stream:
    settings = {"clients": 6, "alpha": 1.0, **more}
    return Stream(
        name="by hand",
        labels=tuple(Label(f"label {i}", "a label") for i in range(LABELS)),
        tasks=(Task("first", (0, 1)), Task("second", (2, 3))),
        train=rows,
        test=rows,
        public=("a public sentence",),
        scenarios=("class",),
        **settings,
    )


def held_by(stream: Stream, seed: int = 0, **config: object) -> tuple[np.ndarray, np.ndarray]:
    return assign_clients(stream, StreamConfig(**config), np.random.default_rng(seed))


PARTITIONS = {
    "dirichlet": stream_of(some_rows()),
    "people": stream_of(some_rows(people=30)),
    "task": stream_of(some_rows(), partition="task"),
    "given": stream_of(some_rows(clients=6), partition="given"),
}
EACH = pytest.mark.parametrize("stream", PARTITIONS.values(), ids=PARTITIONS.keys())


@EACH
def test_every_row_is_held_once_by_a_registered_client(stream):
    clients, rows = held_by(stream)
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(stream.train)))
    assert clients.shape == rows.shape
    assert clients.min() >= 0
    assert clients.max() < stream.clients


@EACH
def test_the_same_stream_of_numbers_gives_the_same_holding(stream):
    one, two = held_by(stream), held_by(stream)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["dirichlet", "people", "task"])
def test_another_stream_of_numbers_gives_another_holding(name):
    (clients, rows), (others, other_rows) = (held_by(PARTITIONS[name], seed) for seed in (0, 1))
    assert not np.array_equal(clients[np.argsort(rows)], others[np.argsort(other_rows)])


# -- by Dirichlet shares ---------------------------------------------------------------------------


def test_the_configuration_may_ask_for_another_number_of_clients():
    clients, _ = held_by(PARTITIONS["dirichlet"], clients=9)
    assert set(clients.tolist()) == set(range(9))


def test_every_client_holds_the_rows_it_must():
    clients, _ = held_by(PARTITIONS["dirichlet"], min_rows=5)
    assert np.bincount(clients, minlength=6).min() >= 5


def test_small_alpha_makes_clients_that_know_few_labels():
    stream = PARTITIONS["dirichlet"]

    def labels_per_client(alpha: float) -> float:
        clients, rows = held_by(stream, alpha=alpha, min_rows=0)
        known = stream.train.labels[rows]
        return float(np.mean([len(set(known[clients == i])) for i in np.unique(clients)]))

    assert labels_per_client(0.05) < labels_per_client(50.0) == LABELS


def test_a_label_is_shared_out_anew_in_every_task():
    """The same label in another task is another kind of row: its holders are others."""
    n = 400
    rows = Rows(tuple(map(str, range(n))), ((0,),) * n, np.arange(n) % 2)
    stream = replace(
        stream_of(some_rows()), train=rows, tasks=(Task("a", (0,)), Task("b", (0,))), test=rows
    )
    clients, held = held_by(stream, alpha=0.2, min_rows=0)
    counts = [np.bincount(clients[rows.tasks[held] == task], minlength=6) for task in (0, 1)]
    assert np.abs(counts[0] - counts[1]).max() > n / 20


@pytest.mark.parametrize("seed", range(5))
def test_people_are_never_parted(seed):
    stream = PARTITIONS["people"]
    clients, rows = held_by(stream, seed)
    assert len({(p, c) for p, c in zip(stream.train.people[rows], clients, strict=True)}) == len(
        np.unique(stream.train.people)
    )


def test_people_of_a_kind_are_shared_out_by_its_own_shares():
    """With a small alpha nearly all whose first row is of a label and task go to one client."""
    stream = PARTITIONS["people"]
    clients, rows = held_by(stream, alpha=0.01)
    people, first = np.unique(stream.train.people, return_index=True)
    owner = dict(zip(stream.train.people[rows].tolist(), clients.tolist(), strict=True))
    kinds = stream.train.labels[first]
    for kind in np.unique(kinds):
        owners = [owner[person] for person in people[kinds == kind].tolist()]
        assert np.bincount(owners).max() >= 0.8 * len(owners)


def test_people_are_never_parted_where_clients_are_within_a_task_either():
    stream = stream_of(some_rows(people=30), partition="task")
    clients, rows = held_by(stream)
    for person in np.unique(stream.train.people):
        assert len(np.unique(clients[stream.train.people[rows] == person])) == 1


def test_the_embedded_desk_keeps_its_people_together():
    stream = load_stream("desk", None)
    clients, rows = held_by(stream)
    for person in np.unique(stream.train.people):
        assert len(np.unique(clients[stream.train.people[rows] == person])) == 1


# -- within one task -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 5, 6, 20])
def test_every_client_is_within_one_task(count):
    stream = PARTITIONS["task"]
    clients, rows = held_by(stream, clients=count)
    np.testing.assert_array_equal(stream.train.tasks[rows], clients % TASKS)
    assert set(clients.tolist()) == set(range(count))


def test_the_embedded_ward_has_every_client_within_one_task():
    stream = load_stream("ward", None)
    clients, rows = held_by(stream)
    for client in np.unique(clients):
        assert len(np.unique(stream.train.tasks[rows[clients == client]])) == 1


def test_the_clients_of_a_task_hold_equally_many_rows():
    stream = PARTITIONS["task"]
    clients, _ = held_by(stream)
    sizes = np.bincount(clients, minlength=6)
    for task in range(TASKS):
        assert np.ptp(sizes[task::TASKS]) <= 1


@pytest.mark.parametrize("count", [7, 50])
def test_more_clients_than_reported_draw_their_rows_with_replacement(count):
    stream = PARTITIONS["task"]
    clients, rows = held_by(stream, clients=count)
    assert len(rows) == count * RESAMPLED_ROWS
    np.testing.assert_array_equal(np.bincount(clients), RESAMPLED_ROWS)
    assert len(np.unique(rows)) < len(rows)
    assert rows.max() < len(stream.train)
    again = held_by(stream, clients=count)
    np.testing.assert_array_equal(again[1], rows)


def test_a_client_draws_no_more_rows_than_its_task_has():
    few = stream_of(some_rows(n=12), partition="task", clients=2)
    clients, rows = held_by(few, clients=4)
    sizes = np.bincount(few.train.tasks, minlength=TASKS)
    np.testing.assert_array_equal(np.bincount(clients), sizes[[0, 1, 0, 1]])
    np.testing.assert_array_equal(few.train.tasks[rows], clients % TASKS)


def test_fewer_clients_than_tasks_are_refused():
    with pytest.raises(ConfigError, match=r"2 tasks .* --clients must be at least 2, not 1"):
        held_by(PARTITIONS["task"], clients=1)


# -- given -----------------------------------------------------------------------------------------


def test_given_clients_are_taken_as_they_are():
    stream = PARTITIONS["given"]
    clients, rows = held_by(stream)
    np.testing.assert_array_equal(clients, stream.train.clients)
    np.testing.assert_array_equal(rows, np.arange(len(stream.train)))


def test_given_clients_must_be_given():
    with pytest.raises(ValueError, match=r"rows\.clients"):
        held_by(stream_of(some_rows(), partition="given"))


# -- from rows to examples -------------------------------------------------------------------------


def words_of(stream: Stream, lengths: np.ndarray) -> EmbeddedStream:
    """A study in which row i has ``lengths[i]`` words, each known by its number."""
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    total, tags = int(starts[-1]), Family("tagging", LABELS)
    of_row = np.repeat(np.arange(len(lengths)), lengths)
    outputs = np.arange(total) % tags.outputs
    examples = EmbeddedRows(
        z=np.arange(total, dtype=np.float64)[:, None],
        labels=tags.label_of_output()[outputs],
        targets=tags.targets(outputs[:, None].tolist()),
        tasks=stream.train.tasks[of_row],
        rows=of_row,
        starts=starts,
    )
    nothing = np.zeros((0, 1))
    return EmbeddedStream(stream, tags, "none", examples, examples, nothing, nothing, 0.0)


@pytest.mark.parametrize("count", [6, 40], ids=["once", "resampled"])
def test_who_holds_a_sentence_holds_its_words(count):
    stream = PARTITIONS["task"]
    lengths = np.random.default_rng(1).integers(1, 7, size=len(stream.train))
    embedded, config = words_of(stream, lengths), Config(stream=StreamConfig(clients=count))
    people = population_of(config, embedded, seed=13)
    assert people.count == count
    clients, rows = assign_clients(stream, config.stream, Seeds(13).at("partition"))
    expected = [
        (client, word)
        for client, row in zip(clients, rows, strict=True)
        for word in range(embedded.train.starts[row], embedded.train.starts[row + 1])
    ]
    found = list(zip(people.clients.tolist(), people.held.tolist(), strict=True))
    assert found == expected
    np.testing.assert_array_equal(people.targets, embedded.train.targets)


def test_a_population_has_targets_also_where_a_label_settles_them():
    """If a mode is about several labels, only its target says about which."""
    stream = PARTITIONS["dirichlet"]
    embedded = words_of(stream, np.ones(len(stream.train), dtype=np.int64))
    plain = replace(embedded, family=Family("classification", LABELS))
    for each in (plain, embedded):
        people = population_of(Config(), each, seed=13)
        np.testing.assert_array_equal(people.targets, each.train.targets)
