"""Looks at the books: written before the noise, complete, durable, and reckoned right."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from cslr.privacy.ledger.book import Ledger
from cslr.privacy.mechanism import KeyStream

from .lab import CLIENTS, Crash, Drawer, Finding, Lab, instead

DELTA = 1e-5
BLOCKS = 4


def write_ahead(lab: Lab, seed: int) -> Finding:
    """When the first bit of a release's noise is drawn, its charge can be read from the disk."""
    room = lab.room()
    draw, streams, missing = KeyStream.words, [], []

    def watched(self, count):
        if not any(self is stream for stream in streams):
            streams.append(self)
        missing.append(len(streams) - len(Ledger.read(room / "ledger.jsonl").charges))
        return draw(self, count)

    with lab.ledger_in(room) as ledger, instead(KeyStream, "words", watched):
        lab.round(seed, "list", ledger, Drawer())
    return Finding(max(missing) > 0, f"{max(missing)} of {len(streams)} drawn before the charge")


def every_payload_is_charged(lab: Lab, seed: int) -> Finding:
    """As many charges of a name as different things were handed out under it, or more."""
    room, alike = lab.room(), np.ones(CLIENTS, dtype=bool)
    dropped = alike.copy()
    dropped[seed % CLIENTS] = False
    dying, living = Drawer(dies=True), Drawer()
    with lab.ledger_in(room) as ledger:
        lab.round(seed, "list", ledger, living)
        # Another federation would be needed for another task 0; another mode has other names.
        _until_it_dies(lab, seed, "separate", ledger, dying)
    with lab.ledger_in(room) as ledger:
        lab.round(seed, "separate", ledger, living, taking_part=dropped)
        charged = Counter(charge.label for charge in ledger.charges)
    payloads = Counter(label for label, _ in {*dying.handed, *living.handed})
    unpaid = payloads - charged
    return Finding(bool(unpaid), f"not charged: {', '.join(sorted(unpaid)) or 'nothing'}")


def ledger_survives(lab: Lab, seed: int) -> Finding:
    """After a crash the ledger begins with every record it held before."""
    before, after, _ = _interrupted(lab, seed)
    kept = after[: len(before)] == before
    return Finding(not kept, f"{len(before)} records before the crash, {len(after)} after")


def same_noise_after_restart(lab: Lab, seed: int) -> Finding:
    """A sum whose release was interrupted is released with the noise it had, at no new charge."""
    before, after, handed = _interrupted(lab, seed)
    different = len(set(handed))
    charges = [sum(record["kind"] == "charge" for record in each) for each in (before, after)]
    alarm = different != 1 or charges[0] != charges[1]
    return Finding(alarm, f"{different} results of one sum, charges {charges[0]} -> {charges[1]}")


def _interrupted(lab: Lab, seed: int) -> tuple[list[Any], list[Any], list[tuple[str, bytes]]]:
    """Records before and after a crash between charge and keep, and all that was handed out."""
    room, dying, living = lab.room(), Drawer(dies=True), Drawer()
    with lab.ledger_in(room) as ledger:
        _until_it_dies(lab, seed, "joint", ledger, dying)
        before = list(ledger.records)
    with lab.ledger_in(room) as ledger:
        lab.round(seed, "joint", ledger, living)
        after = list(ledger.records)
    return before, after, dying.handed + living.handed


def _until_it_dies(lab: Lab, seed: int, mode: str, ledger: Ledger, keep: Drawer) -> None:
    try:
        lab.round(seed, mode, ledger, keep)
    except Crash:
        return
    raise AssertionError("the round did not reach its end")


def accounts(lab: Lab, seed: int) -> Finding:
    """ε of one round of four sums behind one coin, from closed forms that share no code.

    Against someone who knows who took part: a Gaussian of multiplier σ/2. Against someone who does
    not: the same Gaussian behind a coin of q.
    """
    rng = np.random.default_rng([seed, 6])
    epsilon, q = rng.uniform(6.0, 12.0), rng.uniform(0.1, 0.5)
    ledger = lab.ledger(seed)
    lab.round(seed, "separate", ledger, Drawer(), epsilon, q)
    sigma = ledger.charges[0].sigma / math.sqrt(BLOCKS)
    claims = {"roster": (1.0, ledger.epsilon("replay", "roster"))}
    claims["public"] = (q, ledger.epsilon("replay", "public"))
    off = {
        adversary: claimed / _epsilon_by_hand(sigma, rate) - 1
        for adversary, (rate, claimed) in claims.items()
    }
    alarm = len(ledger.charges) != BLOCKS or any(not -1e-4 < each < 5e-3 for each in off.values())
    return Finding(alarm, ", ".join(f"{name} {100 * each:+.3f} %" for name, each in off.items()))


def _epsilon_by_hand(sigma: float, q: float) -> float:
    """The smallest ε at δ of a Gaussian behind a coin of q, the worse of both directions."""

    def excess(epsilon: float) -> float:
        return max(_removed(epsilon, sigma, q), _added(epsilon, sigma, q)) - DELTA

    return float(brentq(excess, 1e-9, 200.0, xtol=1e-10))


def _removed(epsilon: float, sigma: float, q: float) -> float:
    """E[(p − e^ε p₀)₊], p = (1 − q) N(0, σ²) + q N(1, σ²), p₀ = N(0, σ²): right of one point."""
    point = 0.5 + sigma**2 * math.log(math.expm1(epsilon) / q + 1.0)
    mixed = (1 - q) * norm.sf(point / sigma) + q * norm.sf((point - 1) / sigma)
    return float(mixed - math.exp(epsilon) * norm.sf(point / sigma))


def _added(epsilon: float, sigma: float, q: float) -> float:
    """The other direction: left of a point, if there is one."""
    inside = math.expm1(-epsilon) / q + 1.0
    if inside <= 0:
        return 0.0
    point = 0.5 + sigma**2 * math.log(inside)
    mixed = (1 - q) * norm.cdf(point / sigma) + q * norm.cdf((point - 1) / sigma)
    return float(norm.cdf(point / sigma) - math.exp(epsilon) * mixed)
