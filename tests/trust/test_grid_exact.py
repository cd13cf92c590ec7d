"""Released numbers are grid points, and no grid point proves anything.

Float noise betrays a sum through the gaps between floats: some outputs can be reached from one sum
and not from its neighbour (Mironov 2012, "On significance of the least significant bits for
differential privacy"). The attack here asks that of every coordinate, first of float noise to show
that it works, then of ours.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from cslr.privacy.accounting import Charge
from cslr.privacy.mechanism import noise_in_steps, release, release_each
from cslr.privacy.values import _SEAL, Grid, Summed, bound, plain_sum

COORDINATES = 300_000
SIGMA = 1.45
CLIENTS = 20


def steps_of(values: np.ndarray, grid: Grid) -> np.ndarray:
    """The nearest grid point of each value."""
    return np.rint(values / (grid.bound / grid.steps)).astype(np.int64)


def off_grid(values: np.ndarray, grid: Grid) -> int:
    """How many are no grid point, to the last bit."""
    return int(np.sum(grid.decode(steps_of(values, grid)) != values))


def contributions(size: int, seed: int, clients: int = CLIENTS) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(seed)).normal(size=(clients, size))


def released(summed: Summed, make_ledger, sigma: float | None = SIGMA) -> np.ndarray:
    return release(summed, Charge("task 0", 0, "replay", sigma), make_ledger()).value


# -- on the grid -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0.2, 1.0, math.pi, 1e-9, 1e9])
@pytest.mark.parametrize("steps", [2**20, 999_983, 2**24])
def test_every_released_coordinate_is_a_grid_point(make_ledger, size, steps):
    grid = Grid(size, steps)
    bounded = bound(contributions(2_000, 1), grid)
    one = released(plain_sum([bounded]), make_ledger)
    each = release_each([bounded], Charge("task 0 list", 1, "replay", SIGMA), make_ledger()).value
    assert off_grid(one, grid) == 0
    assert off_grid(each, grid) == 0


def test_float_noise_is_off_the_grid():
    grid = Grid(1.0)
    noisy = SIGMA * np.random.Generator(np.random.PCG64(2)).standard_normal(1_000)
    assert off_grid(noisy, grid) > 990


def test_a_grid_point_is_decoded_to_a_double_of_its_own():
    """Two points that became one double, or one that became two, would not be a grid."""
    for grid in (Grid(0.2), Grid(math.pi, 999_983), Grid(1e-9, 2**24)):
        far = np.array([2**52 - 2, 2**40, 2**20, 1, 0])
        points = np.unique(np.concatenate([far, far + 1, -far, -far - 1]))
        assert steps_of(grid.decode(points), grid).tolist() == points.tolist()


@pytest.mark.trust
def test_no_coordinate_of_many_is_off_the_grid(make_ledger, card):
    grid = Grid(0.2)
    bounded = bound(contributions(COORDINATES, 3), grid)
    one = released(plain_sum([bounded]), make_ledger)
    some = bound(contributions(COORDINATES // 10, 4, 10), grid)
    each = release_each([some], Charge("task 0 list", 1, "replay", SIGMA), make_ledger()).value
    off = off_grid(one, grid), off_grid(each, grid)
    total = f"{one.size:,}"
    card(
        "coordinates off the grid",
        "0",
        f"{off[0]} of {total} in a sum, {off[1]} of {each.size:,} in messages",
        off == (0, 0),
    )
    assert off == (0, 0)


# -- the precision attack --------------------------------------------------------------------------


def neighbours(values: np.ndarray, reach: int) -> list[np.ndarray]:
    """The floats from ``reach`` below to ``reach`` above."""
    found, down, up = [values], values, values
    for _ in range(reach):
        down, up = np.nextafter(down, -np.inf), np.nextafter(up, np.inf)
        found += [down, up]
    return found


def proves_another_sum(outputs: np.ndarray, claimed: np.ndarray, sigma: float) -> np.ndarray:
    """Whether no float g gives fl(claimed + fl(σ g)) = output: then the sum was another one.

    Sound: where the noise is small beside the output many noises round to it, and it is left
    undecided. Elsewhere at most two do, and all floats near them are tried.
    """
    noise = outputs - claimed
    reachable = np.abs(noise) < np.abs(outputs)  # or undecided
    for candidate in neighbours(noise, 3):
        lands = claimed + candidate == outputs
        for g in neighbours(candidate / sigma, 3):
            reachable |= lands & (sigma * g == candidate)
    return ~reachable


def proves_another_sum_on_the_grid(
    outputs: np.ndarray, claimed: np.ndarray, scale: float, grid: Grid
) -> np.ndarray:
    """The same question of a release on the grid: no integer noise within 8 σ leads there."""
    noise = steps_of(outputs, grid) - claimed
    reachable = (grid.decode(claimed + noise) == outputs) & (np.abs(noise) <= 8 * scale)
    return ~reachable


def worlds(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Twenty clients with the one that is asked about, and without."""
    vectors = contributions(size, seed) / math.sqrt(size)
    absent = vectors.copy()
    absent[0] = 0.0
    return vectors, absent


def float_release(vectors: np.ndarray, seed: int) -> np.ndarray:
    """What most libraries do."""
    noise = np.random.Generator(np.random.PCG64(seed)).standard_normal(vectors.shape[1])
    return vectors.sum(axis=0) + SIGMA * noise


def test_the_attack_never_accuses_the_true_sum():
    _, absent = worlds(20_000, 5)
    outputs = float_release(absent, 6)
    assert not proves_another_sum(outputs, absent.sum(axis=0), SIGMA).any()


def test_the_attack_breaks_float_noise_and_finds_nothing_on_the_grid(make_ledger):
    assert float_noise_broken(20_000) > 20
    assert grid_noise_broken(20_000, make_ledger) == 0


def float_noise_broken(size: int) -> int:
    """Coordinates of one release that prove a client absent."""
    present, absent = worlds(size, 5)
    outputs = float_release(absent, 6)
    return int(proves_another_sum(outputs, present.sum(axis=0), SIGMA).sum())


def grid_noise_broken(size: int, make_ledger) -> int:
    grid = Grid(1.0)
    present, absent = (plain_sum([bound(world, grid)]) for world in worlds(size, 5))
    outputs = released(absent, make_ledger)
    scale = noise_in_steps(SIGMA, grid.steps)
    return int(proves_another_sum_on_the_grid(outputs, present.total(_SEAL), scale, grid).sum())


@pytest.mark.trust
def test_the_attack_on_many_coordinates(make_ledger, card):
    broken = float_noise_broken(COORDINATES)
    ours = grid_noise_broken(COORDINATES, make_ledger)
    card(
        "precision attack: coordinates that prove a client absent",
        "0",
        f"{ours} of {COORDINATES:,}; the same attack on float noise: {broken:,}",
        ours == 0 and broken > 100,
    )
    assert ours == 0
    assert broken > 100


def test_the_attack_on_the_grid_would_find_float_noise_there(make_ledger):
    """Integer sums do not help if the noise is a float."""
    grid = Grid(1.0)
    present, absent = (plain_sum([bound(world, grid)]).total(_SEAL) for world in worlds(1_000, 5))
    noise = SIGMA * np.random.Generator(np.random.PCG64(6)).standard_normal(1_000)
    outputs = grid.decode(absent) + noise
    scale = noise_in_steps(SIGMA, grid.steps)
    assert proves_another_sum_on_the_grid(outputs, present, scale, grid).sum() > 990
