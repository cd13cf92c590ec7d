"""Release a sum: the charge is on disk before the noisy value is public.

Guarantee: with sensitivity S = ``grid.steps`` (the bound of one client's row) and multiplier σ,
the noise is a discrete Gaussian of variance (σS)² + 16 steps². By Peikert (2010, Theorem 3.1) that
is, up to 10⁻¹³⁰ in distribution, a continuous Gaussian of standard deviation σS rounded at random
to the grid, so the release costs no more than the continuous mechanism the ledger charges for.
Where clients add the noise themselves (``noise_shares``), ``publish`` charges and draws nothing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.errors import PrivacyError
from cslr.privacy.accounting import Charge
from cslr.privacy.grid import Grid
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.keys import Unfinished
from cslr.privacy.noise import MOST_SIGMA, KeyStream, discrete_gaussian, tag_for_sum
from cslr.privacy.values import _SEAL, Bounded, Noised, Released, Summed

__all__ = [
    "LEAST_SIGMA",
    "charge_share",
    "check_claim",
    "finish",
    "noise_in_steps",
    "publish",
    "recall",
    "release",
    "release_each",
    "settle",
]

LEAST_SIGMA: Final = 2**12
"""Grid steps: below this the grid is too coarse to be accounted as continuous."""

_ROUNDING_VARIANCE: Final = 16.0
"""Steps²: the share of the variance that rounds at random, four steps of standard deviation."""


def noise_in_steps(sigma: float, steps: int) -> float:
    """Standard deviation of the discrete noise, in grid steps, that multiplier σ asks for."""
    scale = math.sqrt((sigma * steps) ** 2 + _ROUNDING_VARIANCE)
    if scale < LEAST_SIGMA:
        raise ValueError(f"sigma = {sigma:g} is below the minimum of {LEAST_SIGMA} grid steps")
    if scale > MOST_SIGMA:
        raise ValueError(f"sigma = {sigma:g} is above the maximum of 2^40 grid steps")
    return scale


def release(summed: Summed, charge: Charge, ledger: Ledger) -> Released[FloatArray]:
    """Charge, then noise, then decode. The charge is durable before a single bit is drawn.

    With ``charge.sigma`` None nothing is added and the ledger says ε = ∞.
    """
    _check_drawn_here(charge)
    total = summed.total(_SEAL)
    _check_scale(charge, summed.grid)
    unfinished = Unfinished(total, summed.grid)
    key = ledger.charge(charge, lambda key: tag_for_sum(key, total), unfinished.as_bytes())
    return Released(_noised(unfinished, charge, key, ledger), _SEAL)


def publish(noised: Noised, charge: Charge, ledger: Ledger) -> Released[FloatArray]:
    """Charge, then decode: the clients added the noise, so nothing is drawn.

    Refused where the charge claims more noise than honest clients are sure to have added. The
    server of a secure sum asks ``ledger.afford`` before anything is unmasked; after an
    interruption ``finish`` returns the same release.
    """
    check_claim(noised.sigma, charge)
    charge = replace(charge, noise="clients", carried=noised.multiplier)
    total = noised.total(_SEAL)
    unfinished = Unfinished(total, noised.grid, noised=True)
    ledger.charge(charge, lambda key: tag_for_sum(key, total), unfinished.as_bytes())
    return Released(noised.grid.decode(total), _SEAL)


def check_claim(sigma: float, charge: Charge) -> None:
    """Refuse a charge with a larger multiplier than the clients' noise of ``sigma`` has."""
    if charge.sigma is not None and not charge.sigma <= sigma:
        raise PrivacyError(
            f"the charge of {charge.label!r} claims a noise multiplier of {charge.sigma:g}, but "
            f"the clients guarantee {sigma:g}. Charge the multiplier of their terms"
        )


def charge_share(share: Summed, charge: Charge, ledger: Ledger) -> bytes:
    """On a client: pay for taking part in one session, and get the key of its noise share.

    The charge is on disk in the client's own ledger before its masked vector exists. A retry is
    another session: it is charged again and gets another key.
    """
    charge = replace(charge, noise="clients")
    total = share.total(_SEAL)
    _check_scale(charge, share.grid)
    key = ledger.charge(charge, lambda key: tag_for_sum(key, total))
    return ledger.noise_key(key, total)


def finish(charge: Charge, ledger: Ledger) -> Released[FloatArray] | None:
    """The release of this charge that an interruption left unfinished, if there is one.

    It is made of the sum that was kept beside its key, so no client is asked again and nothing
    depends on rows as they are now. None: nothing was charged, or what was kept is lost.
    """
    interrupted = ledger.interrupted(charge)
    if interrupted is None:
        return None
    key, content, tag = interrupted
    unfinished = Unfinished.from_bytes(content)
    if unfinished is None or tag_for_sum(key, unfinished.total.ravel()) != tag:
        return None
    return Released(_noised(unfinished, charge, key, ledger), _SEAL)


def _check_drawn_here(charge: Charge) -> None:
    """Refuse to draw noise for a charge that says the clients added it."""
    if charge.noise == "clients":
        raise ValueError(
            f"the charge of {charge.label!r} says that clients add the noise; publish their sum"
        )


def _check_scale(charge: Charge, grid: Grid) -> None:
    """What cannot be noised is refused before it is charged."""
    if charge.sigma is not None:
        noise_in_steps(charge.sigma, grid.steps)


def _noised(unfinished: Unfinished, charge: Charge, key: bytes, ledger: Ledger) -> FloatArray:
    """The sum, or each of several vectors, with noise, in the units of the bound."""
    total: IntArray = unfinished.total
    if charge.sigma is not None and not unfinished.noised:
        scale = noise_in_steps(charge.sigma, unfinished.grid.steps)
        stream = KeyStream(ledger.noise_key(key, total.ravel()))
        total = total + discrete_gaussian(scale, total.size, stream).reshape(total.shape)
    values = unfinished.grid.decode(total)
    return values if unfinished.senders is None else np.column_stack([unfinished.senders, values])


def release_each(
    answers: Sequence[Bounded], charge: Charge, ledger: Ledger, senders: Sequence[int] | None = None
) -> Released[FloatArray]:
    """(b, D) every client's own vector with noise of its own: what a device does before it sends.

    senders: who sent which; given, the result is (b, 1 + D) with that number in front.

    Each client's noise protects that client only, so each bears the whole charge, and the message
    has its sender's name, so the charge must not claim amplification.
    """
    if charge.q != 1:
        raise ValueError(
            "charge.q must be 1: a message released under its sender's name is not amplified by "
            "sampling"
        )
    _check_drawn_here(charge)
    if not answers:
        raise ValueError("answers must not be empty")
    grid = answers[0].grid
    # The noise is as wide as this grid asks for; on a finer one it would be too little.
    if any(each.grid != grid for each in answers):
        raise ValueError("answers must all be on the same grid")
    rows = np.concatenate([each.rows(_SEAL) for each in answers])
    _check_scale(charge, grid)
    names = None if senders is None else np.array(senders, dtype=np.int64)
    unfinished = Unfinished(rows, grid, names)
    key = ledger.charge(charge, lambda key: tag_for_sum(key, rows.ravel()), unfinished.as_bytes())
    return Released(_noised(unfinished, charge, key, ledger), _SEAL)


def settle(released: Released[FloatArray], label: str, ledger: Ledger) -> None:
    """The released vector is safe on disk: note its digest and forget the noise key."""
    ledger.settle(label, _digest(released.value))


def recall(vector: FloatArray, label: str, ledger: Ledger) -> Released[FloatArray]:
    """A vector released earlier, read back from where it was kept; costs nothing again.

    Refused unless the ledger holds its charge and, once settled, its very digest.
    """
    ledger.confirm(label, _digest(vector))
    return Released(vector, _SEAL)


def _digest(vector: FloatArray) -> str:
    return hashlib.sha256(np.ascontiguousarray(vector, dtype="<f8").tobytes()).hexdigest()
