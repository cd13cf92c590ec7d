"""Ten thousand charges of few kinds are fast, and rounding kinds never lowers the cost."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from cslr.privacy import accounting
from cslr.privacy.accounting import Charge, epsilon_of, pld_epsilon

DELTA = 1e-5
MANY = 10_000


def charges(sigmas: np.ndarray, rates: np.ndarray) -> list[Charge]:
    """One release a round, σ and q by turns."""
    return [
        Charge(f"{i}", i, "replay", float(sigmas[i % len(sigmas)]), float(rates[i % len(rates)]))
        for i in range(MANY)
    ]


@pytest.mark.parametrize(
    ("sigmas", "rates"),
    [
        ([100.0], [0.3]),
        ([1.45], [0.3]),  # ε = 336
        ([0.8], [0.3]),  # ε = 1157
        ([80.0, 100.0, 120.0], [0.1, 0.3]),
        (np.linspace(50, 200, 10_000), [0.3]),
        (np.linspace(50, 200, 100), np.linspace(0.1, 1.0, 97)),
    ],
    ids=["same", "large", "larger", "few", "every σ another", "every σ and q another"],
)
@pytest.mark.parametrize("adversary", ["roster", "public"])
def test_ten_thousand_charges_are_composed_as_few_kinds(monkeypatch, sigmas, rates, adversary):
    """Every kind takes the accountant some 30 ms; knowing the roster, nothing is composed."""
    composed = []

    def event(rounds):
        composed.append(rounds)
        return event_of(rounds)

    event_of = accounting._event
    monkeypatch.setattr(accounting, "_event", event)
    spent = epsilon_of(charges(np.asarray(sigmas), np.asarray(rates)), DELTA, adversary)
    assert 0.1 < spent < 13_000
    assert len(composed) == (adversary == "public")
    assert all(len(kinds) <= 20 and kinds.total() == MANY for kinds in composed)


def test_many_kinds_are_made_alike_never_optimistically_and_not_far(monkeypatch):
    rounds = [(float(sigma), 0.3) for sigma in np.linspace(2, 3, 12)]
    exact = pld_epsilon(rounds, DELTA, 1e-3)
    monkeypatch.setattr(accounting, "_KINDS", 6)
    assert exact < pld_epsilon(rounds, DELTA, 1e-3) < 1.1 * exact


def test_each_kind_is_replaced_by_one_of_less_noise_and_a_higher_rate():
    rng = np.random.default_rng(1)
    for size in (30, 300, 3000):
        drawn = rng.uniform([0.5, 0.01], [50, 1.0], size=(size, 2))
        alike = accounting._alike(Counter(map(tuple, drawn.tolist())))
        assert len(alike) <= accounting._KINDS
        assert alike.total() == size
        assert all(0 < q <= 1 for _, q in alike)
        # Sorted by itself each column is on the safe side everywhere.
        less = sorted(s for (s, _), n in alike.items() for _ in range(n))
        more = sorted(q for (_, q), n in alike.items() for _ in range(n))
        assert (np.array(less) <= np.sort(drawn[:, 0])).all()
        assert (np.array(more) >= np.sort(drawn[:, 1])).all()


def test_however_coarse_the_public_is_never_charged_more_than_the_roster(monkeypatch):
    monkeypatch.setattr(accounting, "_KINDS", 1)
    rounds = [(2.0, 0.9), (2.2, 0.8), (5.0, 0.99), (9.0, 0.7), (2.1, 0.98), (3.0, 0.97)]
    mixed = [Charge(f"{i}", i, "replay", sigma, q) for i, (sigma, q) in enumerate(rounds)]
    public = epsilon_of(mixed, DELTA, "public", interval=1e-3)
    assert public == epsilon_of(mixed, DELTA, "roster")


def test_few_kinds_are_left_as_they_are():
    rounds = Counter({(2.0, 0.3): 4, (3.1, 1.0): 2})
    assert accounting._alike(rounds) == rounds
