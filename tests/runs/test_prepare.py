"""What a run declares of its units, before anybody's rows are read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cslr.config import load_config
from cslr.data.stream import dirichlet_partition
from cslr.data.streams import load_stream
from cslr.protocol.step4_aggregate.contribution import MOST_ROWS, Units
from cslr.runs.prepare import FEW_ROWS, MANY_CLIENTS, _units


@pytest.fixture(scope="module")
def clinic():
    return load_stream("clinic", None)


def test_simulated_clients_share_the_rows_of_the_tasks_they_may_speak_in(clinic):
    config, rows, tasks = load_config(None, {}), len(clinic.train), len(clinic.tasks)
    every, one = replace(clinic, cap=None), replace(clinic, cap=1)
    for stream, count, expected in (
        (every, 10, rows // (10 * tasks)),
        (one, 10, rows // 10),
        (one, 2 * rows, 1),
    ):
        found = _units(config, stream, count)
        assert (found.count, found.rows) == (count, expected)


def test_of_clients_with_rows_of_their_own_only_their_number_is_known(clinic):
    config, own = load_config(None, {}), replace(clinic, partition="given")
    assert _units(config, own, MANY_CLIENTS) == Units(MANY_CLIENTS, FEW_ROWS)
    assert _units(config, own, MANY_CLIENTS - 1) == Units(MANY_CLIENTS - 1, MOST_ROWS)


def test_of_people_the_stream_says_how_many_rows_they_have(clinic):
    config = load_config(None, {"privacy.unit": "person"})
    stream = replace(clinic, rows_per_person=3, clients_per_person=2)
    assert _units(config, stream, 50) == Units(50, 3, 2)


def test_a_client_with_few_rows_has_few_tasks(clinic):
    """Against rows shared out as declared; the more rows, the nearer to all tasks."""
    config, stream, tasks = load_config(None, {}), clinic, len(clinic.tasks)
    found = [_units(config, stream, count).tasks for count in (2, 40, 200)]
    assert found == sorted(found, reverse=True)
    assert 0.9 * tasks < found[0] <= tasks
    rng = np.random.default_rng(0)
    owners = dirichlet_partition(stream.train.labels, 200, stream.alpha, rng, min_rows=0)
    held = len(np.unique(np.stack([owners, stream.train.tasks]), axis=1)[0]) / 200
    assert found[2] == pytest.approx(held, rel=0.25)
