"""Secret sharing against plain integer arithmetic, and what too few shares say."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cslr.privacy.secure_sum import shamir
from cslr.privacy.secure_sum.shamir import PRIME, are_shares, combine, split

SECRETS = [bytes(range(32)), b"\xff" * 32, bytes(32)]


def by_hand(shares: list[bytes], points: list[int]) -> bytes:
    """Lagrange at 0 in Python's integers, limb by limb, with exact fractions as num/den."""
    limbs = []
    for limb in range(11):
        total = 0
        for i, x in enumerate(points):
            y = int.from_bytes(shares[i][4 * limb : 4 * limb + 4], "little")
            term = y
            for other in points[:i] + points[i + 1 :]:
                term = term * other * pow(other - x, PRIME - 2, PRIME) % PRIME  # Fermat
            total = (total + term) % PRIME
        limbs.append(total)
    return sum(limb << (24 * i) for i, limb in enumerate(limbs)).to_bytes(33, "little")[:32]


def test_every_choice_of_three_of_five_gives_the_secrets_by_both_computations():
    points = [1, 2, 3, 4, 5]
    shares = split(SECRETS, points, 3)
    for chosen in itertools.permutations(range(5), 3):
        at = [points[i] for i in chosen]
        assert combine([shares[i] for i in chosen], at) == SECRETS
        for k, secret in enumerate(SECRETS):
            assert by_hand([shares[i][k] for i in chosen], at) == secret


@settings(deadline=None, max_examples=40)
@given(
    st.binary(min_size=32, max_size=32),
    st.lists(st.integers(1, PRIME - 1), min_size=1, max_size=12, unique=True),
    st.data(),
)
def test_any_t_points_give_any_secret(secret, points, data):
    t = data.draw(st.integers(1, len(points)))
    shares = split([secret], points, t)
    chosen = data.draw(st.permutations(range(len(points))))[:t]
    assert combine([shares[i] for i in chosen], [points[i] for i in chosen]) == [secret]


def test_too_few_shares_do_not_give_the_secret():
    shares = split([SECRETS[0]], [1, 2, 3], 3)
    assert combine(shares[:2], [1, 2]) != [SECRETS[0]]


def test_t_minus_one_shares_fit_every_secret():
    """For any candidate there is exactly one last share: the ones at hand say nothing."""
    shares = split([SECRETS[0]], [1, 2, 3], 3)
    for candidate in SECRETS:
        limb = int.from_bytes(candidate[:3], "little")
        y1, y2 = (int.from_bytes(shares[i][0][:4], "little") for i in (0, 1))
        # The weights at 0 of the points 1, 2, 3 are 3, −3, 1.
        y3 = (limb - 3 * y1 + 3 * y2) % PRIME
        third = y3.to_bytes(4, "little") + shares[2][0][4:]
        combined = combine([shares[0], shares[1], [third]], [1, 2, 3])[0]
        assert combined is not None
        assert combined[:3] == candidate[:3]


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_a_single_share_is_uniform_whatever_the_secret(secret):
    values = np.concatenate(
        [np.frombuffer(split([secret], [1, 2], 2)[0][0], dtype="<u4") for _ in range(3000)]
    )
    counts = np.histogram(values, bins=64, range=(0, PRIME))[0]
    assert stats.chisquare(counts).pvalue > 1e-6


def test_coefficients_are_fresh():
    assert split([SECRETS[0]], [1, 2], 2) != split([SECRETS[0]], [1, 2], 2)


def test_the_one_word_outside_the_field_is_drawn_again(monkeypatch):
    words = iter([b"\xff" * 8, bytes(8)])
    monkeypatch.setattr(os, "urandom", lambda count: next(words)[:count])
    assert shamir._uniform(2).tolist() == [0, 0]


def test_shares_that_do_not_fit_are_not_taken_for_a_secret():
    shares = split([SECRETS[1]], [1, 2], 2)
    spoilt = bytes(44)
    assert combine([shares[0], [spoilt]], [1, 2]) != [SECRETS[1]]


@pytest.mark.parametrize(
    ("points", "threshold"), [([1, 1], 2), ([0, 1], 2), ([1, PRIME], 2), ([1, 2], 3), ([1], 0)]
)
def test_impossible_arguments_are_refused(points, threshold):
    with pytest.raises(ValueError, match=r"points|threshold"):
        split([bytes(32)], points, threshold)


def test_a_secret_has_32_bytes():
    with pytest.raises(ValueError, match="32 bytes"):
        split([bytes(31)], [1, 2], 2)


def test_residues_are_told_from_other_words():
    assert are_shares([bytes(44)] * 3)
    assert are_shares([])
    assert not are_shares([bytes(44), bytes(43)])
    assert not are_shares([bytes(44), PRIME.to_bytes(4, "little") + bytes(40)])
