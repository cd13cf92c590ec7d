"""What a request says about itself, and a release that is made once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cslr.paper_constants import PaperConstants
from cslr.protocol.head import Family, Head
from cslr.protocol.ports import Examples, Request


def one_row_each(world) -> Examples:
    """Four units of one row."""
    people = world.population
    mask = np.ones((4, 1), dtype=bool)
    return Examples(people.z[:4, None], people.labels[:4, None], mask, tuple(range(4)))


@pytest.fixture
def request_of_rows(world) -> Request:
    return world.agreement().request(0, (0, 1))


def test_units_of_one_row_add_what_their_label_and_coordinates_say(world, request_of_rows):
    assert request_of_rows.by_row(one_row_each(world))


@pytest.mark.parametrize(
    "change",
    [
        {"names": {0: np.zeros((2, 1), dtype=np.int64)}},
        {"paper": PaperConstants()},
        {"candidates": np.zeros((2, 5, 8))},
        {"head": Head(np.zeros((24, 2)), np.zeros(2), np.zeros((2, 4)), np.zeros(4))},
        {"groups": ((0, 1), (2,))},
    ],
    ids=lambda change: next(iter(change)),
)
def test_where_more_than_a_row_settles_what_is_added_units_are_not_told_by_rows(
    world, request_of_rows, change
):
    assert not replace(request_of_rows, **change).by_row(one_row_each(world))


def test_neither_several_rows_nor_lists_nor_modes_nor_targets_are_settled_by_a_row(world):
    rows = one_row_each(world)
    plain = world.agreement().request(0, (0, 1))
    assert not plain.by_row(world.examples(0))
    assert not replace(plain, learner=replace(plain.learner, size=2)).by_row(rows)
    assert not world.agreement(sub_modes=2).request(0, (0, 1)).by_row(rows)
    assert not world.agreement(family="intents").request(0, (0, 1)).by_row(rows)


@pytest.mark.parametrize(
    ("second_moments", "by_row"), [("shared", True), ("diagonal", True), ("full", False)]
)
def test_a_matrix_of_a_group_needs_all_its_rows(world, second_moments, by_row):
    request = world.agreement(second_moments=second_moments).request(0, (0, 1))
    assert request.by_row(one_row_each(world)) is by_row


def test_prototypes_of_a_group_are_its_own_modes_in_their_order(world):
    request = world.agreement(sub_modes=3).request(0, (1, 0))
    assert request.sub_modes == 3
    assert not request.one_mode
    for group in range(2):
        found = request.prototypes_of(group)
        np.testing.assert_array_equal(
            found.mean, request.prototypes.mean[3 * group : 3 * group + 3]
        )
        np.testing.assert_array_equal(
            found.covariance, request.prototypes.covariance[3 * group : 3 * group + 3]
        )


def test_one_mode_needs_no_matching_unless_the_server_named_entries(request_of_rows):
    assert request_of_rows.one_mode
    assert not replace(request_of_rows, names={}).one_mode


def test_a_family_is_that_of_the_agreement(request_of_rows):
    assert request_of_rows.family == Family("classification", 4)
