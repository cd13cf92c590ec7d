"""Messages with a name: each is noised by itself, and nobody hides behind anybody else."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cslr.errors import BudgetExceeded, LedgerCorrupted
from cslr.privacy.accounting import Charge
from cslr.privacy.mechanism import recall, release_each, settle
from cslr.privacy.values import _SEAL, Grid, bound

LIST = Charge("task 0 list", 1, "replay", 2.0, 1.0, 0)


def answers(clients: int = 5, size: int = 40, bound_: float = 0.7, batches: int = 2):
    """Bounded vectors of some clients, in some batches, and the same decoded."""
    vectors = np.random.default_rng(3).normal(size=(clients, size))
    given = [bound(part, Grid(bound_)) for part in np.array_split(vectors, batches)]
    exact = np.concatenate([each.grid.decode(each.rows(_SEAL)) for each in given])
    return given, exact


def test_every_message_has_noise_of_its_own_at_the_scale_that_was_charged(make_ledger):
    """σ times the bound in every message; 2 % either way is noticed."""
    given, exact = answers(clients=8, size=20_000)
    z = (release_each(given, LIST, make_ledger(1000.0)).value - exact) / (2.0 * 0.7)
    for factor, honest in ((1.0, True), (0.98, False), (1.02, False)):
        lower = float(stats.chi2.cdf(np.sum((z / factor) ** 2), z.size))
        assert (1e-3 < lower < 1 - 1e-3) is honest
    alike = np.corrcoef(z) - np.eye(8)
    assert np.abs(alike).max() < 5 / np.sqrt(20_000)


def test_two_clients_that_say_the_same_are_not_noised_alike(make_ledger):
    same = bound(np.full((2, 40), 0.01), Grid(0.7))
    one, two = release_each([same], LIST, make_ledger(1000.0)).value
    assert np.all(one != two)


@pytest.mark.parametrize("q", [0.3, 0.999])
def test_a_charge_that_claims_amplification_is_refused_before_anything_is_paid(make_ledger, q):
    ledger = make_ledger(1000.0)
    with pytest.raises(ValueError, match="q must be 1"):
        release_each(answers()[0], Charge("task 0 list", 1, "replay", 2.0, q, 0), ledger)
    assert ledger.charges == ()


def test_the_clients_are_charged_once_and_not_once_each(make_ledger):
    """What one client's message costs is what it costs: the others say nothing about it."""
    ledger = make_ledger(1000.0)
    release_each(answers()[0], LIST, ledger)
    assert ledger.charges == (LIST,)


def test_without_noise_every_message_is_released_as_it_is_and_epsilon_is_infinite(make_ledger):
    given, exact = answers()
    ledger = make_ledger()
    released = release_each(given, Charge("task 0 list", 1, "replay", None, 1.0, 0), ledger)
    np.testing.assert_array_equal(released.value, exact)
    assert ledger.epsilon("replay", "roster") == np.inf


def test_beyond_the_budget_no_message_is_released(make_ledger):
    ledger = make_ledger(0.5)
    with pytest.raises(BudgetExceeded, match="Nothing was released"):
        release_each(answers()[0], LIST, ledger)
    assert ledger.charges == ()


def test_the_same_messages_again_get_the_same_noise_at_no_further_cost(make_ledger):
    ledger, (given, _) = make_ledger(1000.0), answers()
    first = release_each(given, LIST, ledger).value
    np.testing.assert_array_equal(release_each(given, LIST, ledger).value, first)
    assert len(ledger.charges) == 1
    release_each(answers(clients=4)[0], LIST, ledger)  # a client dropped meanwhile
    assert len(ledger.charges) == 2


def test_batches_change_nothing(make_ledger):
    one, three = (
        release_each(answers(batches=batches)[0], LIST, make_ledger(1000.0)).value
        for batches in (1, 3)
    )
    np.testing.assert_array_equal(one, three)


def test_kept_messages_are_recalled_only_as_they_were_released(make_ledger):
    ledger = make_ledger(1000.0)
    released = release_each(answers()[0], LIST, ledger)
    settle(released, "task 0 list", ledger)
    np.testing.assert_array_equal(
        recall(released.value, "task 0 list", ledger).value, released.value
    )
    with pytest.raises(LedgerCorrupted, match="differs from the one that was recorded"):
        recall(released.value[::-1].copy(), "task 0 list", ledger)
