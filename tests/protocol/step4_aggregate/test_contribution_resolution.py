"""The resolution of a release follows from declared numbers and the plan alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cslr.privacy.plan import Budget, Unit, calibrate
from cslr.protocol.step4_aggregate.contribution import (
    FEW_UNITS,
    LEAST_TIED,
    MOST_NOISE,
    MOST_ROWS,
    PER_DIRECTION,
    TIED_NORM,
    Units,
    expected_weight,
    resolve,
)

VARIANCES = np.geomspace(3e-2, 3e-4, 384)


def plan(epsilon: float, releases: int = 4, unit: Unit = "person"):
    return calibrate(Budget(epsilon, unit=unit), releases, cap=1)


def test_silos_with_many_rows_keep_the_resolution_of_few_units():
    silos = plan(4.0, unit="client")
    assert resolve(Units(20), silos, 4, VARIANCES, True) == FEW_UNITS
    assert resolve(Units(5000, MOST_ROWS), silos, 4, VARIANCES, True) == FEW_UNITS


@pytest.mark.parametrize(("rows", "labels", "full"), [(8, 1, 8), (8, 4, 2), (16, 4, 4), (9, 40, 1)])
def test_of_people_with_many_rows_a_label_counts_fully_from_its_share_of_them(rows, labels, full):
    found = resolve(Units(5000, rows), plan(4.0), labels, VARIANCES, True)
    assert found == replace(FEW_UNITS, full_weight=full)


def test_few_small_units_keep_it_too():
    assert resolve(Units(20, rows=1), plan(4.0), 1, VARIANCES, True) == FEW_UNITS


@pytest.mark.parametrize("rows", [1, 3])
def test_a_small_unit_counts_fully_from_the_rows_it_is_expected_to_have(rows):
    found = resolve(Units(12_000, rows), plan(4.0), 1, VARIANCES, True)
    assert found.full_weight == found.simulated_rows == rows
    assert found.simulated_labels == 1
    assert found.weight_scale > FEW_UNITS.weight_scale


def test_more_people_or_less_noise_release_a_matrix_in_more_directions():
    def directions(people: int, epsilon: float) -> int:
        return resolve(Units(people, 1), plan(epsilon), 1, VARIANCES, True).tied

    assert directions(500, 1.0) == 0
    assert LEAST_TIED <= directions(12_000, 1.0) < directions(12_000, 4.0)
    assert directions(12_000, 4.0) <= directions(12_000, math.inf) == len(VARIANCES)


def test_directions_are_those_whose_entries_exceed_their_noise():
    units, fixed = Units(3_000, 1), plan(4.0, releases=9)
    noise = fixed.sigma * TIED_NORM * math.sqrt(9 / 2) / 3_000
    expected = int((noise <= MOST_NOISE * VARIANCES).sum())
    assert LEAST_TIED < expected < len(VARIANCES)
    assert resolve(units, fixed, 1, VARIANCES, True).tied == expected


def test_a_matrix_has_no_more_directions_than_units_can_tell_even_without_noise():
    def directions(people: int) -> int:
        return resolve(Units(people, 1), plan(math.inf), 1, VARIANCES, True).tied

    assert directions(int(PER_DIRECTION * LEAST_TIED) - 1) == 0
    assert directions(int(PER_DIRECTION * 100)) == 100
    assert directions(int(PER_DIRECTION * 500)) == len(VARIANCES)


@pytest.mark.parametrize(("rows", "labels", "expected"), [(1, 4, 62.5), (2, 4, 125), (5, 4, 250)])
def test_a_unit_shares_its_weight_among_tasks_and_labels(rows, labels, expected):
    assert expected_weight(Units(1_000, rows), plan(4.0), labels) == expected


def test_a_person_in_several_clients_leaves_fewer_directions():
    one, three = (
        resolve(Units(12_000, 1, clients), plan(4.0), 1, VARIANCES, True).tied for clients in (1, 3)
    )
    assert three < one


def test_no_matrix_is_sent_where_it_may_not_be():
    assert resolve(Units(12_000, 1), plan(4.0), 1, VARIANCES, False).tied == 0


def test_a_unit_of_one_row_has_one_of_a_tasks_labels():
    assert FEW_UNITS.share_of_labels(5) == 1.0
    small = resolve(Units(12_000, 1), plan(4.0), 2, VARIANCES, True)
    assert small.share_of_labels(2) == 0.5
    assert small.share_of_labels(1) == 1.0


def test_a_matrix_counts_units_only_in_the_tasks_they_have_rows_of():
    """With a cap of four tasks a unit contributes to one only, if it has rows of one."""
    budget = calibrate(Budget(4.0), releases=4, cap=4)
    found = [
        resolve(Units(4_000, 1, tasks=tasks), budget, 1, VARIANCES, True).tied
        for tasks in (None, 1.0, 2.5, 4.0)
    ]
    assert found[0] == found[1] < found[2] < found[3]
    assert Units(10, 3).heard(2) == 2
    assert Units(10, 1, tasks=0.2).heard(2) == 1


def test_units_that_take_part_in_more_tasks_give_modes_more_weight():
    """q N units in every round, each in ``cap`` of the tasks."""
    fixed = calibrate(Budget(4.0), releases=4, q=0.5, cap=2)
    assert expected_weight(Units(1_000, 3), fixed, labels_per_task=2) == 0.5 * 1_000 * 2 / 4
