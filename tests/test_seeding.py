"""Streams addressed by name: the path decides, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.seeding import Seeds

# Names come from this code and from labels; control characters separate them within.
NAME = st.text(st.characters(min_codepoint=32, max_codepoint=1000), max_size=5)
PATHS = st.lists(NAME | st.integers(-(10**6), 10**6), max_size=4).map(tuple)


@settings(deadline=None)
@given(st.integers(0, 2**32), PATHS)
def test_the_same_path_gives_the_same_stream(seed, path):
    first, second = Seeds(seed).at(*path), Seeds(seed).at(*path)
    assert first.integers(2**63, size=4).tolist() == second.integers(2**63, size=4).tolist()


@settings(deadline=None)
@given(PATHS, PATHS)
def test_different_paths_give_different_streams(one, other):
    """In particular 1 is not "1", and ("a", "b") is not ("ab",)."""
    assert (Seeds(13).digest(*one) == Seeds(13).digest(*other)) is (one == other)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), PATHS)
def test_different_seeds_give_different_streams(one, other, path):
    assert (Seeds(one).digest(*path) == Seeds(other).digest(*path)) is (one == other)


@settings(deadline=None)
@given(PATHS, PATHS)
def test_going_down_a_path_in_steps_is_going_down_at_once(first, second):
    assert Seeds(7).under(*first).digest(*second) == Seeds(7).digest(*first, *second)


def test_the_order_of_calls_does_not_matter():
    seeds = Seeds(13)
    forward = [seeds.at("client", i).normal() for i in range(5)]
    backward = [seeds.at("client", i).normal() for i in reversed(range(5))]
    assert forward == backward[::-1]
    assert len(set(forward)) == 5


def test_drawing_from_one_stream_leaves_the_others_alone():
    seeds = Seeds(13)
    expected = seeds.at("b").normal()
    seeds.at("a").normal(size=1000)
    assert seeds.at("b").normal() == expected


@pytest.mark.parametrize("global_seed", [0, 1])
def test_the_global_generator_is_neither_read_nor_moved(global_seed):
    np.random.seed(global_seed)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    assert Seeds(13).at("task", 2).integers(10**6) == 427751
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_neighbouring_streams_are_not_correlated():
    draws = np.stack([Seeds(13).at("client", i).normal(size=4000) for i in range(12)])
    off = np.corrcoef(draws)[~np.eye(12, dtype=bool)]
    assert np.abs(off).max() < 5 / np.sqrt(4000)


def test_the_streams_of_a_seed_never_change():
    """Published figures are rebuilt from their seeds."""
    assert Seeds(13).digest("task", 2).hex()[:16] == "cd1a8d0d0cf41015"
    assert Seeds(13).at("task", 2).integers(10**6, size=3).tolist() == [427751, 110553, 829173]


def test_seeds_are_values():
    assert Seeds(13).under("a") == Seeds(13, ("a",))
    with pytest.raises(AttributeError, match="seed"):
        Seeds(13).seed = 17  # type: ignore[misc]
