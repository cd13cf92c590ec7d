"""Faults of the noise: too little of it, or noise that somebody could know."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np

from cslr.privacy.ledger.records import EphemeralKeys, SeededKeys, key_for_sum, tag_for_sum
from cslr.privacy.mechanism import discrete_gaussian, release_each
from cslr.privacy.values import _SEAL, Released

from .lab import everywhere, instead

SHARES, SURVIVING = 10, 7


def noise_times(factor: float) -> AbstractContextManager[None]:
    """Every draw comes from a narrower law than was asked for."""

    def fault(sigma, size, stream):
        return discrete_gaussian(factor * sigma, size, stream)

    return everywhere(discrete_gaussian, fault)


def shares_lost() -> AbstractContextManager[None]:
    """Ten clients bring a tenth of the variance each, three of them are lost.

    Today the aggregator draws all of the noise, so the loss is emulated where it draws; the sum of
    what is left is what a sum with lost shares would carry.
    """

    def fault(sigma, size, stream):
        share = sigma / math.sqrt(SHARES)
        return sum(discrete_gaussian(share, size, stream) for _ in range(SURVIVING))

    return everywhere(discrete_gaussian, fault)


def list_without_noise() -> AbstractContextManager[None]:
    """Lists are paid for and leave the device as they are."""

    def fault(answers, charge, ledger, senders=None):
        rows = np.concatenate([each.rows(_SEAL) for each in answers])
        ledger.charge(charge, lambda key: tag_for_sum(key, rows.ravel()))
        values = answers[0].grid.decode(rows)
        named = values if senders is None else np.column_stack([senders, values])
        return Released(named, _SEAL)

    return everywhere(release_each, fault)


@contextmanager
def seeded_by_round() -> Iterator[None]:
    """The noise follows from the name of the round, which everybody knows."""

    def fault(self, label, attempt, kept=b""):
        return hashlib.sha256(label.encode()).digest()

    def found(self, label, attempt):
        return fault(self, label, attempt), b""

    with (
        instead(SeededKeys, "fresh", fault),
        instead(EphemeralKeys, "fresh", fault),
        instead(EphemeralKeys, "recover", found),
        everywhere(key_for_sum, lambda key, total: key),
    ):
        yield


@contextmanager
def same_every_round() -> Iterator[None]:
    """One stream, begun anew for every release."""
    with (
        everywhere(key_for_sum, lambda key, total: bytes(32)),
        instead(SeededKeys, "noise_key", lambda self, key, total: bytes(32)),
    ):
        yield


@contextmanager
def same_for_two_sums() -> Iterator[None]:
    """A release is known by its name alone: another sum gets the key and the noise of the first."""
    with (
        everywhere(tag_for_sum, lambda key, total: hashlib.sha256(key).hexdigest()),
        everywhere(key_for_sum, lambda key, total: key),
    ):
        yield


def fresh_after_a_restart() -> AbstractContextManager[None]:
    """The same sum is recognised, not charged again, and noised anew."""
    times = itertools.count()

    def fault(key, total):
        return hashlib.sha256(key_for_sum(key, total) + bytes([next(times) % 256])).digest()

    return everywhere(key_for_sum, fault)
