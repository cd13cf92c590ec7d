"""Release a sum: the charge is on disk before the noisy value is public.

Guarantee: with sensitivity S = ``grid.steps`` (the bound of one client's row) and multiplier σ,
the noise is a discrete Gaussian of variance (σS)² + 16 steps². By Peikert (2010, Theorem 3.1) that
is, up to 10⁻¹³⁰ in distribution, a continuous Gaussian of standard deviation σS rounded at random
to the grid, so the release costs no more than the continuous mechanism the ledger charges for.
Where clients add the noise themselves (``noise_shares``), ``publish`` charges and draws nothing.

The noise ``N_Z(0, σ²)``, P[x] ∝ exp(−x² / 2σ²) on the integers, is drawn from a cryptographic
stream by the rejection sampler of Canonne, Kamath and Steinke (2020, Algorithms 1 and 3),
vectorised. We write it ourselves because no library offers it both vectorised and on a keyed
stream: OpenDP draws one number at a time from the operating system, NumPy's generators are not
cryptographic. Every probability is compared with 64 fresh bits, so a draw differs from the exact
law by less than 2⁻⁴⁸ in total variation: negligible against δ = 10⁻⁵ even over 10⁶ coordinates.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.errors import PrivacyError
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.records import Unfinished, tag_for_sum
from cslr.privacy.values import _SEAL, Bounded, Grid, Noised, Released, Summed

__all__ = [
    "LEAST_SIGMA",
    "KeyStream",
    "charge_share",
    "check_claim",
    "discrete_gaussian",
    "finish",
    "noise_in_steps",
    "poisson_cohort",
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
    """Refuse a multiplier that this grid cannot realise, before anything is charged."""
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

    senders: the sender of each row; if given, the result is (b, 1 + D) with that number in front.

    Each client's noise protects that client only, so every client bears the whole charge. A message
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
    # The noise is scaled to this grid; for a row on another grid it could be too little.
    if any(each.grid != grid for each in answers):
        raise ValueError("answers must all be on the same grid")
    rows = np.concatenate([each.rows(_SEAL) for each in answers])
    _check_scale(charge, grid)
    names = None if senders is None else np.array(senders, dtype=np.int64)
    unfinished = Unfinished(rows, grid, names)
    key = ledger.charge(charge, lambda key: tag_for_sum(key, rows.ravel()), unfinished.as_bytes())
    return Released(_noised(unfinished, charge, key, ledger), _SEAL)


def settle(released: Released[FloatArray], label: str, ledger: Ledger) -> None:
    """The released vector is safe on disk: record its digest and delete the noise key."""
    ledger.settle(label, _digest(released.value))


def recall(vector: FloatArray, label: str, ledger: Ledger) -> Released[FloatArray]:
    """A vector released earlier, read back from where it was kept; costs nothing again.

    Refused unless the ledger holds its charge and, once settled, its very digest.
    """
    ledger.confirm(label, _digest(vector))
    return Released(vector, _SEAL)


def _digest(vector: FloatArray) -> str:
    return hashlib.sha256(np.ascontiguousarray(vector, dtype="<f8").ravel().data).hexdigest()


# -- discrete Gaussian noise and participation coins -----------------------------------------------

MOST_SIGMA: Final = 2**40
"""Grid steps: up to here a draw takes its low bits and its sign from one word."""

_GEOMETRIC: Final = np.array(
    [math.floor(math.exp(-j) * 2**64) for j in range(1, 45)], dtype=np.uint64
)[::-1]
"""⌊2⁶⁴ e⁻ʲ⌋, j = 44 … 1: the number of them above a uniform word is geometric(1 − 1/e)."""

CLOSE: Final = 2.0**-16
"""A coin whose word is nearer to its probability than this is decided in double precision."""

BLOCK: Final = 1 << 15
"""Numbers that are computed at a time."""

_ZEROS: Final = memoryview(bytes(8 * BLOCK))

Words: TypeAlias = NDArray[np.uint64]
Kind: TypeAlias = type[np.float32] | type[np.float64]
_Numbers = TypeVar("_Numbers", Words, IntArray)


class KeyStream:
    """64-bit words of AES-256-CTR under one key. The same key gives the same words."""

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ValueError(f"key must have 32 bytes, not {len(key)}")
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def words(self, count: int) -> Words:
        """The next ``count`` words."""
        drawn = np.empty(count + 2, dtype="<u8")  # the cipher may ask for room beyond its output
        room = drawn.data.cast("B")
        for part in _blocks(count):
            size = 8 * (min(part.stop, count) - part.start)
            self._cipher.update_into(_ZEROS[:size], room[8 * part.start :])
        return drawn[:count].astype(np.uint64, copy=False)


def discrete_gaussian(sigma: float, size: int, stream: KeyStream) -> IntArray:
    """``size`` independent draws of N_Z(0, σ²), σ in grid steps.

    The proposal is a discrete Laplace whose scale is a power of two near σ, so that its uniform
    part is exactly some bits of the stream.
    """
    if not (math.isfinite(sigma) and sigma >= 1):
        raise ValueError(f"sigma must be at least one grid step and finite, not {sigma}")
    if sigma > MOST_SIGMA:
        raise ValueError(f"sigma must be at most 2^40 grid steps, not {sigma}")
    bits = max(1, round(math.log2(sigma)))
    accepts = partial(_acceptance, sigma, bits)
    drawn: list[IntArray] = []
    missing = size
    while missing:
        proposals = _discrete_laplace(bits, 2 * missing + 64, stream)
        accepted = _chosen(_coins(accepts, proposals, stream), proposals)[:missing]
        drawn.append(accepted)
        missing -= len(accepted)
    return np.concatenate(drawn) if drawn else np.zeros(0, dtype=np.int64)


def _discrete_laplace(bits: int, candidates: int, stream: KeyStream) -> IntArray:
    """P[x] ∝ exp(−|x| / 2^bits): about 0.6 of ``candidates`` survive."""
    words = stream.words(candidates)
    words = _chosen(_coins(partial(_survival, bits), words, stream), words)
    signed: IntArray = np.empty(len(words), dtype=np.int64)
    once = np.empty(len(words), dtype=np.bool_)
    for part in _blocks(len(words)):
        size = (words[part] >> np.uint64(64 - bits)).view(np.int64)
        size += _geometric(stream.words(len(size))) << bits
        negative = (words[part] & np.uint64(1)).view(np.int64)
        np.multiply(size, 1 - 2 * negative, out=signed[part])
        # Reject −0: with both signs zero would be twice as likely.
        np.greater_equal(size, negative, out=once[part])
    return signed if once.all() else _chosen(once, signed)


def _survival(bits: int, words: Words, kind: Kind) -> FloatArray:
    """exp(−x / 2^bits), x the first ``bits`` bits of each word."""
    fraction: FloatArray = (words >> np.uint64(64 - bits)).view(np.int64).astype(kind)
    fraction *= kind(-(2.0**-bits))
    np.exp(fraction, out=fraction)
    return fraction


def _acceptance(sigma: float, bits: int, proposals: IntArray, kind: Kind) -> FloatArray:
    """exp(−(|x| − σ² / 2^bits)² / 2σ²) of each proposal x."""
    excess: FloatArray = np.abs(proposals).astype(kind)
    excess -= kind(sigma**2 / 2**bits)
    excess /= kind(sigma)
    excess *= excess
    excess *= kind(-0.5)
    np.exp(excess, out=excess)
    return excess


def _coins(
    probability: Callable[[Any, Kind], FloatArray], numbers: Words | IntArray, stream: KeyStream
) -> BoolArray:
    """Independent coins with the probabilities of ``numbers``, each decided by 64 bits.

    In single precision a probability is within 2⁻¹⁹ of its value. That decides every coin whose
    word is farther than ``CLOSE`` from it; the others, one in 30,000, are decided in double
    precision, so every coin has the outcome that double precision gives it.
    """
    happens = np.empty(len(numbers), dtype=np.bool_)
    for part in _blocks(len(numbers)):
        words = stream.words(len(numbers[part]))
        above = probability(numbers[part], np.float32)
        above -= (words >> np.uint64(40)).view(np.int64).astype(np.float32) * np.float32(2**-24)
        here = np.greater(above, 0.0, out=happens[part])
        close = np.flatnonzero(np.abs(above) < CLOSE)
        here[close] = _happens(probability(numbers[part][close], np.float64), words[close])
    return happens


def _happens(probability: FloatArray, words: Words) -> BoolArray:
    """Whether each coin succeeds, decided by a word of its own."""
    threshold = np.minimum(probability * 2.0**64, 2.0**64 - 2048)
    certain = probability >= 1.0
    happens: BoolArray = (words < threshold.astype(np.uint64)) | certain
    return happens


def _geometric(words: Words) -> IntArray:
    """P[x] = (1 − 1/e) e⁻ˣ: how many of ``_GEOMETRIC`` lie above each word."""
    found = _by_first_bits()[(words >> np.uint64(48)).view(np.int64)]
    unclear = np.flatnonzero(found < 0)
    found[unclear] = _thresholds_above(words[unclear])
    return found


@cache
def _by_first_bits() -> IntArray:
    """(2¹⁶,) the draw of all words that begin with these 16 bits; −1 where it is not the same."""
    first = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
    least = _thresholds_above(first + np.uint64((1 << 48) - 1))
    return np.where(_thresholds_above(first) == least, least, -1)


def _thresholds_above(words: Words) -> IntArray:
    return len(_GEOMETRIC) - np.searchsorted(_GEOMETRIC, words, side="right").astype(np.int64)


def _chosen(chosen: BoolArray, numbers: _Numbers) -> _Numbers:
    """``numbers[chosen]``, block by block, so that no index of all of them is in memory."""
    kept = np.empty(np.count_nonzero(chosen), dtype=numbers.dtype)
    end = 0
    for part in _blocks(len(numbers)):
        some = np.compress(chosen[part], numbers[part])
        begin, end = end, end + len(some)
        kept[begin:end] = some
    return kept


def _blocks(length: int) -> Iterator[slice]:
    """Slices of so few numbers that what is computed of them stays in the processor's cache."""
    return (slice(begin, begin + BLOCK) for begin in range(0, length, BLOCK))


def poisson_cohort(clients: int, q: float, coins: KeyStream) -> BoolArray:
    """(clients,) True where the client participates, by a coin each; all of them at q = 1.

    Only such independent (Poisson) coins earn the amplification that the ``public`` adversary is
    charged with; a cohort of fixed size does not, and coins that can be recomputed from a published
    seed earn nothing. Where privacy is enforced the key of the stream is random, from the operating
    system, and not kept.
    """
    if not 0 < q <= 1:
        raise ValueError(f"q must lie in (0, 1], not {q}")
    if q == 1:
        return np.ones(clients, dtype=np.bool_)
    return coins.words(clients) < np.uint64(int(q * 2**64))
