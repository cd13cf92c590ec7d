"""A node's own rows: its part of all rows, with the same addresses."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cslr.errors import ConfigError
from cslr.runs.deployment.node_rows import _held, check_encoder


def test_a_part_has_its_own_rows_and_its_units_keep_their_addresses(world):
    everybody = world.told("intents").population
    rows = np.flatnonzero(np.isin(everybody.clients, [4, 9]))
    part = _held(everybody, rows, 1)
    np.testing.assert_array_equal(part.z, everybody.z[rows])
    np.testing.assert_array_equal(part.labels, everybody.labels[rows])
    np.testing.assert_array_equal(part.tasks, everybody.tasks[rows])
    np.testing.assert_array_equal(part.targets, everybody.targets[rows])
    np.testing.assert_array_equal(part.clients, everybody.clients[rows] == 9)
    np.testing.assert_array_equal(part.addresses, everybody.addresses[[4, 9]])
    assert part.count == 2


def test_a_part_without_rows_is_one_unit_that_is_nobody_elses(world):
    """Its address decides about coins: two empty nodes, or one and a unit, must not share it."""
    everybody = world.population
    empty = [_held(everybody, np.zeros(0, dtype=np.int64), part) for part in range(5)]
    assert [each.count for each in empty] == [1] * 5
    assert [len(each.z) for each in empty] == [0] * 5
    addresses = [int(each.addresses[0]) for each in empty]
    assert len(set(addresses)) == 5
    assert not set(addresses) & set(everybody.addresses.tolist())
    assert all(each.targets is None for each in empty)


def test_a_node_with_another_encoder_than_was_agreed_on_is_refused():
    same = SimpleNamespace(encoder="minilm-1")
    check_encoder(same, same)
    with pytest.raises(ConfigError, match="runs the encoder minilm-1, and other-2 was agreed on"):
        check_encoder(same, SimpleNamespace(encoder="other-2"))
