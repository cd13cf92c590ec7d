"""Dirichlet partitions: complete, deterministic, skewed by alpha, and errors with a remedy."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cslr.data.stream import describe_partition, dirichlet_partition
from cslr.errors import ConfigError, DataError
from cslr.seeding import Seeds

LABELS = np.repeat(np.arange(4), 250)


@given(
    st.lists(st.integers(0, 5), min_size=0, max_size=80),
    st.integers(1, 12),
    st.floats(1e-3, 1e3),
    st.integers(0, 2**32),
)
def test_every_row_goes_to_one_client(
    labels: list[int], clients: int, alpha: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    client_of_row = dirichlet_partition(
        np.array(labels, dtype=np.int64), clients, alpha, rng, min_rows=0
    )
    assert client_of_row.shape == (len(labels),)
    assert client_of_row.dtype == np.int64
    assert ((client_of_row >= 0) & (client_of_row < clients)).all()


def test_the_same_stream_of_randomness_gives_the_same_partition() -> None:
    one = dirichlet_partition(LABELS, 20, 0.5, Seeds(13).at("partition"))
    two = dirichlet_partition(LABELS, 20, 0.5, Seeds(13).at("partition"))
    other = dirichlet_partition(LABELS, 20, 0.5, Seeds(17).at("partition"))
    np.testing.assert_array_equal(one, two)
    assert (one != other).any()


def test_every_client_holds_the_least_number_of_rows() -> None:
    for seed in range(20):
        client_of_row = dirichlet_partition(LABELS, 20, 0.5, Seeds(seed).at("partition"), 5)
        assert np.bincount(client_of_row, minlength=20).min() >= 5


def test_small_alpha_concentrates_labels_and_large_alpha_evens_them() -> None:
    skewed = dirichlet_partition(LABELS, 10, 0.05, np.random.default_rng(1), min_rows=0)
    even = dirichlet_partition(LABELS, 10, 1e4, np.random.default_rng(1))
    assert describe_partition(skewed, LABELS, 10)["labels_per_client"]["median"] < 4
    sizes = describe_partition(even, LABELS, 10)["rows_per_client"]
    assert 90 <= sizes["min"] <= sizes["max"] <= 110


def test_realised_shares_have_the_moments_of_a_dirichlet() -> None:
    clients, alpha = 5, 0.5
    labels = np.zeros(2_000, dtype=np.int64)
    rng = np.random.default_rng(5)
    shares = np.array(
        [
            np.bincount(dirichlet_partition(labels, clients, alpha, rng, 0), minlength=clients)
            for _ in range(2_000)
        ]
    ) / len(labels)
    variance = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    np.testing.assert_allclose(shares.mean(axis=0), 1 / clients, atol=0.02)
    np.testing.assert_allclose(shares.var(axis=0), variance, rtol=0.12)


def test_rows_are_shuffled_before_they_are_cut() -> None:
    client_of_row = dirichlet_partition(LABELS[:250], 2, 50.0, np.random.default_rng(3))
    assert (np.diff(client_of_row) != 0).sum() > 50


def test_a_client_left_with_too_few_rows_is_named_with_remedies() -> None:
    with pytest.raises(
        DataError, match=r"client \d+ held \d+ rows.*--clients.*--alpha.*--min-rows 0"
    ):
        dirichlet_partition(LABELS, 40, 0.01, np.random.default_rng(0), retries=3)


def test_more_clients_than_rows_is_refused_at_once() -> None:
    with pytest.raises(
        DataError,
        match=r"10 rows are not enough for 8 clients with at least 2 rows each.*--clients",
    ):
        dirichlet_partition(LABELS[:10], 8, 1.0, np.random.default_rng(0), retries=10**9)


@pytest.mark.parametrize(
    ("clients", "alpha", "min_rows", "named"),
    [
        (0, 1.0, 2, "--clients"),
        (3, 0.0, 2, "--alpha"),
        (3, -1.0, 2, "--alpha"),
        (3, float("nan"), 2, "--alpha"),
        (3, float("inf"), 2, "--alpha"),
        (3, 1.0, -1, "--min-rows"),
    ],
)
def test_a_setting_out_of_range_is_named(
    clients: int, alpha: float, min_rows: int, named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        dirichlet_partition(LABELS, clients, alpha, np.random.default_rng(0), min_rows)


def test_labels_that_are_not_one_a_row_are_a_value_error() -> None:
    with pytest.raises(ValueError, match="labels"):
        dirichlet_partition(LABELS.reshape(2, -1), 3, 1.0, np.random.default_rng(0))
    with pytest.raises(ValueError, match="retries"):
        dirichlet_partition(LABELS, 3, 1.0, np.random.default_rng(0), retries=0)


def test_the_description_counts_rows_and_labels_and_is_json() -> None:
    described = describe_partition(np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 0, 5, 1]), 4)
    assert described == {
        "rows_per_client": {"min": 0.0, "median": 1.5, "max": 3.0},
        "labels_per_client": {"min": 0.0, "median": 1.5, "max": 2.0},
    }
    assert json.loads(json.dumps(described)) == described
