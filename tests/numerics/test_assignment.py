"""Ids from costs: against brute force, against POT, and whatever the order of the inputs."""

from __future__ import annotations

import subprocess
import sys
from itertools import permutations, product

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score

from cslr.numerics.assignment import entropic_transport, hungarian, nearest, stable_clusters


def costs(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=shape)


def total(cost: np.ndarray, ids: np.ndarray) -> float:
    return float(cost[np.arange(len(ids)), ids].sum())


def test_nearest_is_the_cheapest_and_ties_go_to_the_lower_mode():
    cost = np.array([[[2.0, 1.0, 1.0], [0.0, 0.0, 0.0]], [[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]]])
    np.testing.assert_array_equal(nearest(cost), [[1, 0], [2, 0]])
    assert nearest(cost).dtype == np.int64


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 5))
def test_hungarian_is_the_best_matching_there_is(seed, rows, modes):
    cost = costs(rows, modes, seed=seed)
    found = hungarian(cost)
    if rows <= modes:
        candidates = permutations(range(modes), rows)
    else:
        most = -(-rows // modes)
        every = product(range(modes), repeat=rows)
        candidates = (ids for ids in every if max(map(ids.count, ids)) <= most)
    best = min(total(cost, np.array(ids)) for ids in candidates)
    assert total(cost, found) == pytest.approx(best)
    assert np.bincount(found).max() <= max(1, -(-rows // modes))


def test_hungarian_takes_a_batch_one_matrix_at_a_time():
    cost = costs(2, 3, 4, 5)
    single = [[hungarian(matrix) for matrix in block] for block in cost]
    np.testing.assert_array_equal(hungarian(cost), single)


@given(st.integers(0, 10_000))
def test_permuting_the_list_permutes_the_hungarian_ids(seed):
    cost = costs(5, 3, seed=seed)
    order = np.random.default_rng(seed).permutation(5)
    np.testing.assert_array_equal(hungarian(cost[order]), hungarian(cost)[order])


@pytest.mark.parametrize("match", [nearest, hungarian])
def test_an_empty_list_has_no_ids(match):
    assert match(np.zeros((0, 3))).shape == (0,)
    assert match(np.zeros((2, 0, 3))).shape == (2, 0)
    assert match(np.zeros((0, 4, 3))).shape == (0, 4)


@pytest.mark.parametrize("regularisation", [0.01, 0.1, 1.0])
def test_transport_is_what_pot_says(regularisation):
    cost, rng = costs(3, 6, 4), np.random.default_rng(1)
    row, column = rng.dirichlet(np.ones(6), size=3), rng.dirichlet(np.ones(4), size=3)
    found = entropic_transport(cost, row, column, regularisation)
    for i in range(3):
        coupling = ot.sinkhorn(
            row[i],
            column[i],
            cost[i],
            regularisation,
            method="sinkhorn_stabilized",
            numItermax=20_000,
        )
        np.testing.assert_array_equal(found[i], coupling.argmax(axis=1))


def test_with_little_entropy_transport_is_the_hungarian_matching():
    cost = costs(5, 5, seed=3)
    uniform = np.ones(5)
    found = entropic_transport(cost, uniform, uniform, regularisation=1e-3)
    np.testing.assert_array_equal(found, hungarian(cost))


def test_the_scale_of_the_weights_does_not_matter():
    cost, row, column = costs(6, 4), costs(6, seed=1), costs(4, seed=2)
    np.testing.assert_array_equal(
        entropic_transport(cost, row, column, 0.1),
        entropic_transport(cost, 10 * row, 3 * column, 0.1),
    )


def test_permuting_the_list_permutes_the_transported_ids():
    cost, row, column = costs(6, 4), costs(6, seed=1), costs(4, seed=2)
    order = np.array([4, 2, 0, 5, 1, 3])
    found = entropic_transport(cost, row, column, 0.1)
    permuted = entropic_transport(cost[order], row[order], column, 0.1)
    np.testing.assert_array_equal(permuted, found[order])


def test_rows_without_weight_go_to_the_nearest_mode_and_move_nobody():
    cost, row, column = costs(5, 3), np.array([1.0, 0.0, 2.0, 0.0, 1.0]), np.ones(3)
    found = entropic_transport(cost, row, column, 0.1)
    some = row > 0
    np.testing.assert_array_equal(found[~some], nearest(cost)[~some])
    np.testing.assert_array_equal(
        found[some], entropic_transport(cost[some], row[some], column, 0.1)
    )
    np.testing.assert_array_equal(entropic_transport(cost, 0 * row, column, 0.1), nearest(cost))


def test_columns_without_weight_receive_nothing():
    found = entropic_transport(costs(8, 4), np.ones(8), np.array([1.0, 0.0, 1.0, 1.0]), 0.1)
    assert 1 not in found


def test_equal_couplings_go_to_the_lower_mode():
    ids = entropic_transport(np.zeros((2, 3, 4)), np.ones(3), np.ones(4), 1.0)
    np.testing.assert_array_equal(ids, 0)
    assert entropic_transport(np.zeros((0, 4)), np.ones(0), np.ones(4), 1.0).shape == (0,)


def test_importing_the_module_loads_neither_pot_nor_torch():
    code = "import sys, cslr.numerics.assignment; print({'ot', 'torch'} & set(sys.modules))"
    path = f"import sys; sys.path[:0] = {sys.path!r}; "
    command = [sys.executable, "-c", path + code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def blobs(sizes: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = rng.permutation(len(sizes))[:, None] * 10.0 + rng.uniform(size=(len(sizes), 2))
    truth = np.repeat(np.arange(len(sizes)), sizes)
    points = centres[truth] + rng.normal(size=(len(truth), 2))
    return cdist(points, points), truth


@settings(deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(1, 6), min_size=3, max_size=5))
def test_permuting_the_points_permutes_the_cluster_ids(seed, sizes):
    distance, _ = blobs(tuple(sizes), seed)
    order = np.random.default_rng(seed).permutation(len(distance))
    for clusters in (3, len(sizes)):
        found = stable_clusters(distance, clusters)
        permuted = stable_clusters(distance[np.ix_(order, order)], clusters)
        np.testing.assert_array_equal(permuted, found[order])


def test_clusters_alike_within_are_told_apart_by_their_place_whatever_the_order():
    distance = np.full((7, 7), 10.0)
    distance[6] = distance[:, 6] = [8.0, 8.0, 8.0, 9.0, 9.0, 9.0, 0.0]
    for first, sides in ((0, (0.1, 0.2, 0.3)), (3, (0.3, 0.2, 0.1))):
        upper = (first + np.array([0, 0, 1]), first + np.array([1, 2, 2]))
        distance[upper] = distance[upper[::-1]] = sides
    np.fill_diagonal(distance, 0.0)
    expected = np.array([0, 0, 0, 1, 1, 1, 2])
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(7)
        found = stable_clusters(distance[np.ix_(order, order)], 3)
        np.testing.assert_array_equal(found, expected[order])


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 15), st.integers(1, 5))
def test_clusters_are_those_of_scikit_learn(seed, points, clusters):
    x = np.random.default_rng(seed).normal(size=(points, 2))
    distance, clusters = cdist(x, x), min(points, clusters)
    known = AgglomerativeClustering(clusters, metric="precomputed", linkage="average")
    truth = known.fit_predict(distance)
    assert adjusted_rand_score(truth, stable_clusters(distance, clusters)) == 1.0


def test_clusters_are_the_blobs_with_the_larger_first():
    distance, truth = blobs((3, 9, 6), seed=1)
    found = stable_clusters(distance, 3)
    assert adjusted_rand_score(truth, found) == 1.0
    np.testing.assert_array_equal(np.bincount(found), [9, 6, 3])


def test_of_equal_sizes_the_tighter_is_first_and_then_the_more_central():
    line = np.array([0.0, 1.0, 100.0, 103.0, 300.0, 302.0])[:, None]
    np.testing.assert_array_equal(stable_clusters(cdist(line, line), 3), [0, 0, 2, 2, 1, 1])
    line = np.array([0.0, 11.0, 30.0])[:, None]
    np.testing.assert_array_equal(stable_clusters(cdist(line, line), 3), [1, 0, 2])


@given(st.integers(0, 10_000), st.integers(0, 9), st.integers(1, 12))
def test_there_are_exactly_as_many_clusters_as_asked_for(seed, points, clusters):
    x = np.random.default_rng(seed).integers(0, 3, size=(points, 2))  # many ties
    found = stable_clusters(cdist(x, x), clusters)
    assert found.shape == (points,)
    np.testing.assert_array_equal(np.unique(found), np.arange(min(points, clusters)))
    assert np.all(np.diff(np.bincount(found, minlength=1)) <= 0)


def test_wrong_arguments_are_refused_by_name():
    cost, row, column = costs(3, 2), np.ones(3), np.ones(2)
    for name, call in {
        "cost must have": lambda: nearest(np.zeros((3, 0))),
        "cost must be finite": lambda: hungarian(np.full((2, 2), np.nan)),
        "row_weights must have": lambda: entropic_transport(cost, np.ones(4), column, 1.0),
        "row_weights must be": lambda: entropic_transport(cost, -row, column, 1.0),
        "column_weights must have": lambda: entropic_transport(cost, row, 0 * column, 1.0),
        "regularisation": lambda: entropic_transport(cost, row, column, 0.0),
        "distance must have": lambda: stable_clusters(np.zeros((2, 3)), 1),
        "distance must be": lambda: stable_clusters(np.array([[0.0, 1.0], [2.0, 0.0]]), 1),
        "clusters": lambda: stable_clusters(np.zeros((2, 2)), 0),
    }.items():
        with pytest.raises(ValueError, match=name):
            call()
