"""Shamir's secret sharing, vectorised over shares and secrets (Shamir 1979).

A secret of 32 bytes is eleven limbs of 24 bits; each limb is the constant term of a polynomial of
degree t − 1 over the integers modulo p = 2³¹ − 1 whose other coefficients are uniform. Products of
two residues fit into 64 bits, so NumPy does all points and limbs at once.

Guarantee: any t shares give the secret; t − 1 of them have the same distribution for every secret.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["PRIME", "SECRET_BYTES", "SHARE_BYTES", "are_shares", "combine", "split"]

PRIME: Final = 2**31 - 1
SECRET_BYTES: Final = 32
_LIMB_BITS: Final = 24
_LIMBS: Final = 11
SHARE_BYTES: Final = 4 * _LIMBS
_P: Final = np.uint64(PRIME)

Words = NDArray[np.uint64]


def split(secrets: Sequence[bytes], points: Sequence[int], threshold: int) -> list[list[bytes]]:
    """``result[i][k]``: the share of secret k at point i.

    points: different numbers in 1 … p − 1, one for each holder.
    """
    _check_points(points)
    if not 1 <= threshold <= len(points):
        raise ValueError(f"threshold must lie in 1..{len(points)}, not {threshold}")
    constant = np.concatenate([_limbs(secret) for secret in secrets])  # (k·11,)
    rising = _uniform((threshold - 1) * len(constant)).reshape(threshold - 1, len(constant))
    x = np.array(points, dtype=np.uint64)[:, None]
    values = np.zeros((len(points), len(constant)), dtype=np.uint64)
    for coefficients in rising:  # Horner, from the highest power down
        values = (values * x + coefficients) % _P
    values = (values * x + constant) % _P
    stored = values.astype("<u4").reshape(len(points), len(secrets), _LIMBS)
    return [[share.tobytes() for share in row] for row in stored]


def combine(shares: Sequence[Sequence[bytes]], points: Sequence[int]) -> list[bytes | None]:
    """The secrets of ``shares[i][k]`` at point i, from exactly t points.

    None where the shares do not fit together. Not every mismatch is detected, so compare a secret
    with its commitment.
    """
    _check_points(points)
    stored = np.frombuffer(b"".join(b"".join(row) for row in shares), dtype="<u4")
    values = stored.astype(np.uint64).reshape(len(points), -1)  # (t, k·11)
    total = np.zeros(values.shape[1], dtype=np.uint64)
    for weight, row in zip(_weights(points), values, strict=True):
        total = (total + row * np.uint64(weight)) % _P
    return [_secret(limbs) for limbs in total.reshape(-1, _LIMBS)]


def are_shares(shares: Sequence[bytes]) -> bool:
    """Whether each share consists of residues modulo p, in the form that ``split`` returns."""
    if any(len(share) != SHARE_BYTES for share in shares):
        return False
    return bool((np.frombuffer(b"".join(shares), dtype="<u4") < PRIME).all())


def _check_points(points: Sequence[int]) -> None:
    if not points or len(set(points)) != len(points):
        raise ValueError("points must be different, and at least one")
    if not all(0 < point < PRIME for point in points):
        raise ValueError("points must lie in 1..2^31 - 2")


def _weights(points: Sequence[int]) -> list[int]:
    """Lagrange's weights at 0: Π_j x_j / (x_j − x_i) over the other points."""
    weights = []
    for x in points:
        above = below = 1
        for other in points:
            if other != x:
                above = above * other % PRIME
                below = below * (other - x) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights


def _limbs(secret: bytes) -> Words:
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret must have {SECRET_BYTES} bytes, not {len(secret)}")
    parts = np.frombuffer(secret + b"\0", dtype=np.uint8).reshape(_LIMBS, 3).astype(np.uint64)
    limbs: Words = parts[:, 0] | parts[:, 1] << np.uint64(8) | parts[:, 2] << np.uint64(16)
    return limbs


def _secret(limbs: Words) -> bytes | None:
    if (limbs >> np.uint64(_LIMB_BITS)).any():
        return None
    data = limbs.astype("<u4").view(np.uint8).reshape(_LIMBS, 4)[:, :3].tobytes()
    return data[:SECRET_BYTES] if data[SECRET_BYTES:] == b"\0" else None


def _uniform(count: int) -> Words:
    """Uniform residues from the operating system; 2³¹ − 1 itself is drawn again."""
    drawn = np.frombuffer(os.urandom(4 * count), dtype="<u4").astype(np.uint64) >> np.uint64(1)
    while (again := np.flatnonzero(drawn == _P)).size:
        drawn[again] = _uniform(again.size)
    return drawn
