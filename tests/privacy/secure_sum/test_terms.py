"""What can be agreed on, and what cannot."""

from __future__ import annotations

import dataclasses

import pytest

from cslr.errors import ConfigError, TooFewMembers
from cslr.privacy.mechanism import MOST_SIGMA
from cslr.privacy.secure_sum.terms import MOST_MEMBERS, Release, SumTerms
from cslr.privacy.values import Grid

from .parties import GRID, release


def terms(n: int, t: int, c: int, federation: str = "clinics") -> SumTerms:
    return SumTerms(federation, tuple(i.to_bytes(32, "big") for i in range(n)), t, c)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_sum_of_fewer_than_three_is_refused(n):
    with pytest.raises(TooFewMembers, match="at least 3 members, not"):
        terms(n, 2, 1)


@pytest.mark.parametrize(("t", "c"), [(6, 1), (1, 1), (3, 0), (3, 3), (2, 4), (5, 5)])
def test_thresholds_that_protect_nobody_are_refused(t, c):
    with pytest.raises(ConfigError, match="colluders and threshold must satisfy"):
        terms(5, t, c)


def test_a_key_that_occurs_twice_is_refused():
    with pytest.raises(ConfigError, match="different"):
        SumTerms("clinics", (bytes(32), bytes(32), b"\1" * 32), 2, 1)


@pytest.mark.parametrize(
    ("n", "t", "c", "quorum"),
    [(5, 3, 1, 4), (5, 4, 1, 4), (20, 14, 4, 14), (100, 67, 10, 67), (3, 2, 1, 3), (20, 8, 1, 11)],
)
def test_two_sets_of_survivors_cannot_both_find_a_quorum(n, t, c, quorum):
    agreed = terms(n, t, c)
    assert agreed.quorum == quorum
    # Honest members sign one set each, colluders both.
    assert 2 * (agreed.quorum - c) > n - c


def test_everything_that_was_agreed_is_in_the_digest():
    digests = {terms(*numbers).digest for numbers in ((5, 4, 1), (5, 3, 1), (6, 4, 1), (6, 4, 2))}
    digests.add(terms(5, 4, 1, "banks").digest)
    assert len(digests) == 5


def test_everything_about_a_release_is_in_its_digest():
    base = release()
    changes = [{"label": "task 1"}, {"coordinates": 4}, {"sigma": 1.9}, {"grid": Grid(2.0)}]
    changes.append({"grid": Grid(1.0, 2**19)})
    others = {dataclasses.replace(base, **change).digest for change in changes}
    assert len(others | {base.digest}) == 6


@pytest.mark.parametrize(
    ("label", "coordinates", "sigma", "told"),
    [
        ("", 3, 1.0, "a label must have 1 to 256 bytes"),
        ("x" * 257, 3, 1.0, "a label must have 1 to 256 bytes"),
        ("x", 0, 1.0, "coordinates must lie in"),
        ("x", 2**24 + 1, 1.0, "coordinates must lie in"),
        ("x", 3, 0.0, "sigma must be positive"),
    ],
)
def test_a_release_that_makes_no_sense_is_refused(label, coordinates, sigma, told):
    with pytest.raises(ConfigError, match=told):
        Release(label, coordinates, sigma, GRID)


def test_no_sum_that_can_be_agreed_on_leaves_64_bits():
    """The longest draw is 45 · 2^bits with 2^bits near the scale, which is at most 2^40."""
    largest = MOST_MEMBERS * (64 * MOST_SIGMA + 2**24)
    assert largest < 2**62
    with pytest.raises(ValueError, match="2\\^40"):
        terms(5, 4, 1).share_scale(Release("x", 3, 2.0**21, GRID))
