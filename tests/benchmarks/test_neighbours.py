"""Neighbour graphs: their shape, and the probabilities of what can go wrong with them."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.neighbours import (
    Neighbourhood,
    least_neighbourhood,
    neighbour_graph,
    risks_of,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("n", "degree"), [(3, 2), (10, 4), (101, 20)])
def test_every_member_has_k_different_neighbours_and_is_a_neighbour_of_each(n, degree):
    graph = neighbour_graph(n, degree, np.random.default_rng(1))

    pairs = {(member, int(other)) for member in range(n) for other in graph[member]}

    assert len(pairs) == n * degree
    assert all((other, member) in pairs and other != member for member, other in pairs)


def test_a_graph_is_cut_only_by_runs_of_half_its_degree():
    n, degree = 24, 6
    graph = neighbour_graph(n, degree, np.random.default_rng(2))
    rng = np.random.default_rng(3)

    for _ in range(300):
        removed = set(rng.choice(n, size=2 * (degree // 2) - 1, replace=False).tolist())
        assert is_connected(graph, removed)  # two runs of k/2 would be needed


def is_connected(graph: np.ndarray, removed: set[int]) -> bool:
    """Whether the members that are left reach each other."""
    left = set(range(len(graph))) - removed
    reached, ahead = set(), [min(left)]
    while ahead:
        member = ahead.pop()
        if member not in reached:
            reached.add(member)
            ahead += [int(other) for other in graph[member] if other in left]
    return reached == left


def test_bounds_hold_for_simulated_graphs():
    n, shape, corrupt, dropped, times = 60, Neighbourhood(8, 4), 0.2, 0.2, 1500
    rng = np.random.default_rng(4)
    found = np.zeros(3)
    for _ in range(times):
        graph = neighbour_graph(n, shape.degree, rng)
        is_bad, is_gone = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        is_bad[: round(corrupt * n)] = True
        is_gone[-round(dropped * n) :] = True
        removed = set(np.flatnonzero(is_bad | is_gone).tolist())
        found += [
            (is_bad[graph].sum(axis=1) >= shape.threshold).any(),
            not is_connected(graph, removed),
            ((~is_gone)[graph].sum(axis=1) < shape.threshold).any(),
        ]

    risks = risks_of(n, shape, corrupt, dropped)

    bounds = 2.0 ** np.array([risks.exposed, risks.split, risks.lost])
    assert (found / times <= bounds + 0.02).all()
    assert found[0] > 0  # of bounds that nothing ever comes near this would be no test
    assert found[2] > 0


def test_without_corruption_nobody_is_exposed():
    assert risks_of(100, Neighbourhood(10, 3), 0.0, 0.1).exposed == -math.inf


@pytest.mark.parametrize("n", [300, 10_000])
def test_the_least_neighbourhood_keeps_its_promise_and_two_neighbours_fewer_do_not(n):
    shape = least_neighbourhood(n, 0.1, 0.2)
    risks = risks_of(n, shape, 0.1, 0.2)

    assert max(risks.exposed, risks.split) <= -40
    assert risks.lost <= -30
    fewer = [
        risks_of(n, Neighbourhood(shape.degree - 2, t), 0.1, 0.2)
        for t in range(1, shape.degree - 1)
    ]
    assert not any(max(each.exposed, each.split) <= -40 and each.lost <= -30 for each in fewer)


def test_neighbours_grow_with_the_logarithm_of_members():
    degrees = [least_neighbourhood(10**power, 0.1, 0.2).degree for power in (3, 4, 5, 6, 7)]
    assert degrees == sorted(degrees)
    assert degrees[-1] < 2 * degrees[0]


def test_few_members_are_told_to_use_the_complete_graph():
    with pytest.raises(ValueError, match="use the complete one"):
        least_neighbourhood(4, 0.1, 0.2)


@pytest.mark.parametrize(("degree", "threshold"), [(3, 2), (0, 1), (100, 2), (4, 5), (4, 0)])
def test_impossible_neighbourhoods_are_refused(degree, threshold):
    with pytest.raises(ValueError, match=r"degree|threshold"):
        risks_of(50, Neighbourhood(degree, threshold), 0.1, 0.1)


def test_a_simulated_sum_with_dropouts_is_exact():
    script = ROOT / "benchmarks" / "neighbour_sums.py"
    sizes = ["--members", "40", "--coordinates", "8", "--degree", "10", "--threshold", "5"]

    done = subprocess.run(
        [sys.executable, str(script), *sizes], capture_output=True, text=True, check=True
    )

    assert "| 40 | 10, 5 | 8 |" in done.stdout
