"""The clip in integers against vectors made to break it, judged in wider arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cslr.privacy.values import _SEAL, STEPS, Grid, admit, bound, plain_sum

LARGEST, TINY = np.finfo(float).max, 5e-324
WIDTH = 24
Rows = np.ndarray
Family = Callable[[np.random.Generator, int, float], Rows]


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def gaussian(rng: np.random.Generator, count: int, size: float) -> Rows:
    return size * rng.normal(size=(count, WIDTH)) * 10.0 ** rng.uniform(-3, 3, (count, 1))


def huge(rng: np.random.Generator, count: int, size: float) -> Rows:
    return rng.choice([-LARGEST, LARGEST, 1e308, -1e308, 1e200], (count, WIDTH))


def denormal(rng: np.random.Generator, count: int, size: float) -> Rows:
    return rng.choice([TINY, -TINY, 3 * TINY, 0.0, -0.0, 1e-310], (count, WIDTH))


def mixed(rng: np.random.Generator, count: int, size: float) -> Rows:
    """Every order of magnitude in one row."""
    return rng.choice([-1.0, 1.0], (count, WIDTH)) * 10.0 ** rng.uniform(-323, 308, (count, WIDTH))


def equal(rng: np.random.Generator, count: int, size: float) -> Rows:
    """All coordinates alike, some with alternating signs, near √D of them at the bound."""
    signs = np.where(rng.random((count, 1)) < 0.5, 1.0, (-1.0) ** np.arange(WIDTH))
    return signs * (size / math.sqrt(WIDTH)) * (1 + rng.integers(-4, 5, (count, 1)) * 2.0**-52)


def single(rng: np.random.Generator, count: int, size: float) -> Rows:
    """One coordinate at the bound, a few units in the last place more or less."""
    rows = np.zeros((count, WIDTH))
    value = size * (1 + rng.integers(-4, 5, count) * 2.0**-52)
    rows[np.arange(count), rng.integers(WIDTH, size=count)] = rng.choice([-1.0, 1.0], count) * value
    return rows


def at_the_sphere(rng: np.random.Generator, count: int, size: float) -> Rows:
    """Norms within some units in the last place of the bound."""
    vectors = unit(rng.normal(size=(count, WIDTH)))
    return vectors * (size * (1 + rng.integers(-8, 9, (count, 1)) * 2.0**-52))


def at_a_step(rng: np.random.Generator, count: int, size: float) -> Rows:
    """Coordinates a hair below, on and above grid points, where truncation decides."""
    points = rng.integers(-STEPS // 6, STEPS // 6, (count, WIDTH)) * (size / STEPS)
    return points * (1 + rng.integers(-1, 2, (count, WIDTH)) * 2.0**-52)


FAMILIES: list[Family] = [
    gaussian,
    huge,
    denormal,
    mixed,
    equal,
    single,
    at_the_sphere,
    at_a_step,
]
GRIDS = [Grid(1.0), Grid(0.2), Grid(math.pi, 999_983), Grid(1e-300), Grid(1e300), Grid(3.0, 7)]


def exact_squares(rows: np.ndarray) -> np.ndarray:
    """In Python's integers, which cannot wrap around."""
    return np.square(rows.astype(object)).sum(axis=1)


def wanted(vectors: np.ndarray, grid: Grid) -> np.ndarray:
    """The clipped vectors in steps, in 80-bit floats: their squares do not overflow."""
    wide = vectors.astype(np.longdouble)
    norm = np.sqrt(np.square(wide).sum(axis=1, keepdims=True))
    shrink = np.minimum(1.0, grid.bound / np.where(norm > 0, norm, 1.0))
    return wide * shrink / grid.bound * grid.steps


def faults(vectors: np.ndarray, grid: Grid) -> dict[str, int]:
    """How many rows break each promise."""
    rows = bound(vectors, grid).rows(_SEAL)
    ideal = wanted(vectors, grid)
    # In exact arithmetic a clipped coordinate loses less than a step; a row that rounding left
    # over the bound is shrunk once more, by at most two.
    off = np.abs(rows - ideal).max(axis=1)
    decoded = np.linalg.norm(grid.decode(rows) / grid.bound, axis=1)
    return {
        "integer norm over the bound": int(np.sum(exact_squares(rows) > grid.steps**2)),
        "another direction": int(np.sum(off > 3)),
        "a coordinate grew": int(np.sum(np.abs(rows) > np.abs(ideal) * (1 + 1e-12) + 1e-9)),
        "a sign changed": int(np.sum(rows * np.sign(vectors) < 0)),
        "longer once decoded": int(np.sum(decoded > 1 + 1e-14)),
        "changed by who receives it": int(np.sum(admit(rows, grid).rows(_SEAL) != rows)),
    }


def needs_wide_floats() -> None:
    if np.finfo(np.longdouble).maxexp <= 1100:
        pytest.skip("long doubles are doubles here")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda each: each.__name__)
def test_hostile_vectors_keep_every_promise_of_the_clip(family):
    needs_wide_floats()
    rng = np.random.Generator(np.random.PCG64(7))
    for grid in GRIDS:
        assert set(faults(family(rng, 100, grid.bound), grid).values()) == {0}


@pytest.mark.trust
def test_a_hundred_thousand_hostile_vectors_keep_every_promise_of_the_clip(card):
    needs_wide_floats()
    rng = np.random.Generator(np.random.PCG64(8))
    total, found = 0, dict.fromkeys(faults(np.zeros((1, WIDTH)), GRIDS[0]), 0)
    for grid in GRIDS:
        for family in FAMILIES:
            vectors = family(rng, 2_100, grid.bound)
            total += len(vectors)
            for name, count in faults(vectors, grid).items():
                found[name] += count
    assert total > 100_000
    broken = {name: count for name, count in found.items() if count}
    card(
        "integer clip, hostile vectors",
        "norm ≤ bound in exact integers; direction kept",
        f"{sum(found.values())} faults in {total:,} vectors, {len(FAMILIES)} families, "
        f"{len(GRIDS)} grids",
        not broken,
    )
    assert not broken


@pytest.mark.parametrize("fault", ["round", "ceil", "no clip", "one bound per half"])
def test_a_careless_clip_would_be_found(fault):
    """The checks above, of clips that people do write."""
    rng = np.random.Generator(np.random.PCG64(9))
    grid = Grid(1.0)
    vectors = np.concatenate([family(rng, 200, 1.0) for family in (gaussian, at_the_sphere)])
    scaled = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1.0)
    if fault == "one bound per half":
        halves = vectors.reshape(-1, 2, WIDTH // 2)
        scaled = halves / np.maximum(np.linalg.norm(halves, axis=2, keepdims=True), 1.0)
        scaled = scaled.reshape(vectors.shape)
    rows = {
        "round": np.rint,
        "ceil": lambda x: np.sign(x) * np.ceil(np.abs(x)),
        "no clip": lambda x: np.trunc(vectors * grid.steps),
        "one bound per half": np.trunc,
    }[fault](scaled * grid.steps).astype(np.int64)
    assert np.sum(exact_squares(rows) > grid.steps**2) > 50


VALUES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([LARGEST, -LARGEST, TINY, -TINY, -0.0, 1.0, math.nextafter(1.0, 2.0)]),
)


@settings(deadline=None, max_examples=60)
@given(
    arrays(np.float64, st.tuples(st.just(3), st.integers(1, 9)), elements=VALUES),
    st.floats(1e-300, 1e300),
    st.integers(1, 2**24),
)
def test_whatever_hypothesis_thinks_of_keeps_every_promise_too(vectors, size, steps):
    needs_wide_floats()
    assert set(faults(vectors, Grid(size, steps)).values()) == {0}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("beside", [0.0, 1.0, LARGEST, TINY])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_one_number_that_is_not_finite_refuses_everything(bad, beside, dtype):
    vectors = np.full((3, 4), min(beside, float(np.finfo(dtype).max)), dtype=dtype)
    vectors[1, 2] = bad
    with pytest.raises(ValueError, match="client 1 is not finite"):
        bound(vectors, Grid(1.0))


def test_the_widest_clip_and_the_largest_crowd_stay_exact():
    """Squares fit 64 bits at any width, sums fit doubles for as many clients as are let in."""
    grid = Grid(1.0, 2**24)
    wide = bound(np.full((1, 2**18), LARGEST), grid).rows(_SEAL)
    assert int(exact_squares(wide)[0]) == int(np.einsum("ij,ij->i", wide, wide)[0])
    assert int(exact_squares(wide)[0]) <= grid.steps**2
    crowd = plain_sum([bound(np.full((10_000, 1), LARGEST), grid)] * 50)
    total = int(crowd.total(_SEAL)[0])
    assert total == 500_000 * grid.steps
    assert grid.decode(np.array([total]))[0] == 500_000.0
