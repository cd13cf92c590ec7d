"""Looks at the noise: is there as much as is charged, and is it new every time?"""

from __future__ import annotations

import math
import os

import numpy as np

from cslr.audit import conforms, two_worlds
from cslr.privacy import mechanism
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.records import EphemeralKeys
from cslr.privacy.plan import Budget, calibrate
from cslr.privacy.values import _SEAL, Grid, Summed, bound, plain_sum
from cslr.seeding import Seeds

from .lab import Finding, Lab, instead

LEVEL = 1e-8
"""Probability of a false alarm of one look."""
STANDARD_DEVIATIONS = 6.5
"""Of a correlation: beyond them with probability 1e-10."""
COORDINATES = 4096
WORLDS = 250
SIGMA = 1.5
GRID = Grid(2.0)


def conformance_of_sums(lab: Lab, seed: int) -> Finding:
    """What is left of a release without its exact sum has the σ that stands in the ledger."""
    rng, ledger = np.random.default_rng(seed), lab.ledger(seed)
    grid, sigma = Grid(rng.uniform(0.1, 10.0)), rng.uniform(0.6, 4.0)
    summed = plain_sum([bound(rng.standard_normal((1, lab.draws)), grid)])
    released = mechanism.release(summed, Charge("task 0", 0, "replay", sigma), ledger)
    return _compare(released.value, summed.total(_SEAL), grid, ledger)


def conformance_of_lists(lab: Lab, seed: int) -> Finding:
    """The same for messages that every device noises by itself."""
    rng, ledger = np.random.default_rng(seed), lab.ledger(seed)
    grid, sigma = Grid(rng.uniform(0.1, 10.0)), rng.uniform(0.6, 4.0)
    answers = [bound(rng.standard_normal((4, 10_000)), grid) for _ in range(2)]
    released = mechanism.release_each(answers, Charge("a message", 0, "replay", sigma), ledger)
    return _compare(
        released.value, np.concatenate([each.rows(_SEAL) for each in answers]), grid, ledger
    )


def _compare(released: np.ndarray, exact: np.ndarray, grid: Grid, ledger: Ledger) -> Finding:
    """Residuals in steps against the charge; (σS)² + 16 steps² is the promise, spelt out here."""
    (charge,) = ledger.charges
    claimed = math.sqrt((charge.sigma * grid.steps) ** 2 + 16.0)
    residuals = np.rint(released * (grid.steps / grid.bound)) - exact
    found = conforms(residuals, claimed, LEVEL)
    return Finding(found.alarm, f"σ is {found.ratio:.4f} of the claimed one")


def freshness(lab: Lab, seed: int) -> Finding:
    """No two noises have anything in common, unless both name and sum are the same."""
    one, other = _sum_of(seed, clients=3), _sum_of(seed, clients=2)
    ledger = lab.ledger(0, keys=EphemeralKeys(lab.room()))
    # After an interruption a client is gone: the same name, another sum.
    first, dropped = (_noise(each, "task 0", ledger) for each in (one, other))
    lists = mechanism.release_each(
        [bound(np.full((2, COORDINATES), 0.01), GRID)],
        Charge("a message", 1, "replay", SIGMA),
        ledger,
    ).value
    pairs = {
        "two rounds": (first, _noise(one, "task 1", ledger)),
        "two sums of one name": (first, dropped),
        "two sums under one key": _under_one_key(lab, seed, one, other),
        "two simulations": tuple(_noise(one, "task 0", lab.ledger(seed + n)) for n in (0, 1000)),
        "two federations with keys of the system": tuple(
            _noise(one, "task 0", lab.ledger(0, keys=EphemeralKeys(lab.room()))) for _ in range(2)
        ),
        "two messages": (lists[0], lists[1]),
    }
    alike = {name: _alike(*pair) for name, pair in pairs.items()}
    worst = max(alike, key=lambda name: alike[name])
    limit = STANDARD_DEVIATIONS / math.sqrt(COORDINATES)
    return Finding(alike[worst] > limit, f"{worst}: correlation {alike[worst]:.3f}")


def _under_one_key(lab: Lab, seed: int, one: Summed, other: Summed) -> tuple[np.ndarray, ...]:
    """Two noises whose keys are the same bytes, as if the system's entropy repeated itself."""
    with instead(os, "urandom", lambda size: seed.to_bytes(size, "big")):
        return tuple(
            _noise(each, "task 0", lab.ledger(0, keys=EphemeralKeys(lab.room())))
            for each in (one, other)
        )


def _alike(one: np.ndarray, two: np.ndarray) -> float:
    """The size of their correlation; noise that is none is like any other."""
    if not (one.std() and two.std()):
        return 1.0
    return abs(float(np.corrcoef(one, two)[0, 1]))


def black_box(lab: Lab, seed: int) -> Finding:
    """With and without one client, some hundred times: nobody tells them apart beyond the claim.

    The only look that knows nothing of the inside, and so the one that sees least: so many runs
    find halved noise four times in five, so no fault of the noise's size is left to it.
    """
    plan = calibrate(Budget(4.0), releases=1)
    found = two_worlds(plan, WORLDS, Seeds(seed), confidence=1 - LEVEL)
    return Finding(not found.holds, f"ε of at least {found.lower:.2f}, {found.claimed:.2f} claimed")


def _sum_of(seed: int, clients: int) -> Summed:
    vectors = np.random.default_rng([seed, 2]).standard_normal((3, COORDINATES))
    return plain_sum([bound(vectors[:clients], GRID)])


def _noise(summed: Summed, label: str, ledger: Ledger) -> np.ndarray:
    """(D,) what a release adds to its sum."""
    charge = Charge(label, 0, "replay", SIGMA)
    released = mechanism.release(summed, charge, ledger).value
    return released - summed.total(_SEAL) * (GRID.bound / GRID.steps)
