"""Covariances with shared effects: what dense matrices give, by less work."""

from __future__ import annotations

import numpy as np
import pytest

from cslr.numerics.linear_algebra import FactoredCovariances, Groups, factored, grouped, membership

R = 5


def some_effects(count: int, values: int = 12) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Groups of all, of pairs, two factors in between: the first ``count``, and their variances."""
    place, rng = np.arange(values), np.random.default_rng(2)
    effects = [membership(0 * place), membership(place // 2), rng.standard_normal((values, 2))]
    return effects[:count], [rng.uniform(0.0, 3.0, R) for _ in effects[:count]]


def dense(diagonal, effects, amounts) -> np.ndarray:
    covariance = np.stack([np.diag(each) for each in diagonal])
    for factors, amount in zip(effects, amounts, strict=True):
        covariance += amount[:, None, None] * (factors @ factors.T)
    return covariance


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("least", [1e-8, 0.1])
def test_everything_is_what_a_dense_inverse_gives(count, least):
    rng = np.random.default_rng(1)
    diagonal, vectors = rng.uniform(least, 1.0, (R, 12)), rng.standard_normal((R, 12))
    effects, amounts = some_effects(count)
    found, inverse = factored(diagonal, effects, amounts), dense(diagonal, effects, amounts)
    sign, log_determinant = np.linalg.slogdet(inverse)
    inverse = np.linalg.inv(inverse)
    assert (sign > 0).all()
    np.testing.assert_allclose(found.log_determinant, log_determinant, rtol=1e-10)
    expected = np.matmul(inverse, vectors[..., None])[..., 0]
    np.testing.assert_allclose(found.solve(vectors), expected, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(
        found.diagonal_of_inverse(), np.diagonal(inverse, axis1=1, axis2=2), rtol=1e-7, atol=1e-7
    )
    for trace, factors in zip(found.traces(), effects, strict=True):
        shared = factors @ factors.T
        np.testing.assert_allclose(
            trace, np.einsum("dij,ji->d", inverse, shared), rtol=1e-6, atol=1e-7
        )


def numbers(found: FactoredCovariances) -> int:
    arrays = (found.precision, found.within, found.core, found.factors)
    return sum(array.size for array in arrays)


@pytest.mark.parametrize("tasks", [8, 64])
def test_numbers_grow_with_the_values_and_not_with_their_square(tasks):
    """Labels that no two tasks share: one effect of all. Counted, not timed; dense: r K²."""
    one, two = (
        numbers(factored(np.ones((R, values)), *some_effects(1, values)))
        for values in (64 * tasks, 2 * 64 * tasks)
    )
    assert two < 2.01 * one


def test_directions_some_at_a_time_are_all_directions(monkeypatch):
    diagonal = np.random.default_rng(1).uniform(0.1, 1.0, (R, 12))
    whole = factored(diagonal, *some_effects(3))
    monkeypatch.setattr("cslr.numerics.linear_algebra.NUMBERS", 1)
    np.testing.assert_array_equal(factored(diagonal, *some_effects(3)).core, whole.core)


# -- disjoint groups ---------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("least", [1e-8, 0.1])
@pytest.mark.parametrize("mixed", [False, True], ids=["in order", "in any order"])
def test_groups_give_what_they_would_give_as_factors(count, least, mixed):
    rng = np.random.default_rng(1)
    diagonal, vectors = rng.uniform(least, 1.0, (R, 12)), rng.standard_normal((R, 12))
    of = np.array([0, 0, 0, 1, 2, 2, 3, 3, 3, 3, 4, 4])
    of = rng.permutation(of) if mixed else of
    amount, (effects, amounts) = rng.uniform(0.1, 3.0, R), some_effects(count)
    found = grouped(diagonal, Groups(of), amount, effects, amounts)
    expected = factored(diagonal, [*effects, membership(of)], [*amounts, amount])
    for ours, theirs in (
        (found.log_determinant, expected.log_determinant),
        (found.solve(vectors), expected.solve(vectors)),
        (found.diagonal_of_inverse(), expected.diagonal_of_inverse()),
        (found.trace_of_groups(), expected.traces()[-1]),
        (np.array(found.traces()), np.array(expected.traces()[:-1])),
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("size", [2, 8])
def test_numbers_grow_with_groups_and_not_with_their_square(size):
    def numbers_of(groups: int) -> int:
        of = np.repeat(np.arange(groups), size)
        effects, amounts = some_effects(1, len(of))
        found = grouped(np.ones((R, len(of))), Groups(of), np.ones(R), effects, amounts)
        return sum(array.size for array in vars(found).values() if isinstance(array, np.ndarray))

    assert numbers_of(1024) < 2.01 * numbers_of(512)
