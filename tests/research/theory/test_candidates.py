"""The lists of simulated clients are those that devices make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cslr.config import with_settings
from cslr.data.stream import assign_clients
from cslr.data.streams import Rows
from cslr.errors import DataError
from cslr.research.theory.candidates import simulated_candidates
from cslr.seeding import Seeds


def test_a_list_of_one_is_the_mean_of_a_clients_rows_of_a_label(config, embedded):
    found = simulated_candidates(config, embedded)
    owners, _ = assign_clients(embedded.stream, config.stream, Seeds(13).at("partition"))
    labels = embedded.train.labels
    assert found.total == len({*zip(owners.tolist(), labels.tolist(), strict=True)})
    for place in range(0, len(found.ids), 7):
        task, label = divmod(int(found.ids[place]), 4)
        assert label in embedded.stream.tasks[task].labels
        mine = (owners == found.clients[place]) & (labels == label)
        mean = found.space.into(embedded.train.z[mine]).mean(axis=0)
        np.testing.assert_allclose(found.gaussians.mean[place], mean, atol=1e-9)


def test_sub_modes_have_ids_of_their_own(config, embedded):
    found = simulated_candidates(with_settings(config, {"replay.sub_modes": 2}), embedded)
    assert set(found.ids.tolist()) <= {
        2 * (4 * n + label) + j
        for n, task in enumerate(embedded.stream.tasks)
        for label in task.labels
        for j in (0, 1)
    }
    assert len(set(found.ids.tolist())) > 4


def test_many_candidates_are_represented_by_some(config, embedded):
    everything = simulated_candidates(config, embedded)
    some = simulated_candidates(config, embedded, most=10)
    assert (len(some.ids), some.total) == (10, everything.total)
    assert set(map(tuple, some.gaussians.mean)) <= set(map(tuple, everything.gaussians.mean))


def test_words_of_a_row_belong_to_its_client(config, embedded):
    """Two examples a row, as words of a sentence are: the same client holds both."""
    rows = np.arange(len(embedded.train.z) // 2)
    train = replace(
        embedded.train, rows=np.repeat(rows, 2), starts=np.arange(0, 2 * len(rows) + 1, 2)
    )
    stream = embedded.stream.train
    halved = replace(
        embedded.stream,
        train=Rows(stream.texts[::2], stream.answers[::2], stream.tasks[::2]),
    )
    found = simulated_candidates(config, replace(embedded, train=train, stream=halved))
    assert len(found.rows) == 2 * len(rows)


def test_without_train_rows_there_are_no_lists(config, embedded):
    empty = replace(
        embedded.stream,
        train=Rows((), (), np.zeros(0, dtype=np.int64), clients=np.zeros(0, dtype=np.int64)),
        partition="given",
    )
    with pytest.raises(DataError, match="no train rows"):
        simulated_candidates(config, replace(embedded, stream=empty))
