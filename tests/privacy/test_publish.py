"""The last arrow where the clients added the noise: charge, publish, draw nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cslr.errors import BudgetExceeded, PrivacyError
from cslr.privacy import mechanism
from cslr.privacy.accounting import Charge
from cslr.privacy.mechanism import charge_share, finish, publish, recall, settle
from cslr.privacy.values import _SEAL, Grid, Noised

GRID = Grid(2.0)
CHARGE = Charge("task 0", 0, "replay", 2.0)


@pytest.fixture
def noised() -> Noised:
    total = np.arange(-20, 20, dtype=np.int64) * 1000
    return Noised(total, GRID, 2.0, 2.5, (0, 1, 2, 4), _SEAL)


def test_what_is_published_is_what_the_clients_made(opened, noised, monkeypatch):
    monkeypatch.setattr(mechanism, "discrete_gaussian", None)  # whoever draws, fails
    ledger = opened()
    released = publish(noised, CHARGE, ledger)
    assert released.value.tolist() == GRID.decode(noised.total(_SEAL)).tolist()
    assert ledger.charges == (replace(CHARGE, noise="clients", carried=2.5),)
    assert ledger.carried("task 0") == 2.5
    settle(released, "task 0", ledger)
    assert recall(released.value, "task 0", ledger).value.tolist() == released.value.tolist()


def test_a_release_that_cannot_be_afforded_is_refused(opened, noised):
    ledger = opened(epsilon=0.1)
    with pytest.raises(BudgetExceeded, match=r"beyond its budget of 0\.1"):
        ledger.afford(CHARGE)
    with pytest.raises(BudgetExceeded, match=r"beyond its budget of 0\.1"):
        publish(noised, CHARGE, ledger)
    assert ledger.charges == ()


def test_asking_whether_it_can_be_afforded_writes_nothing(opened, path):
    ledger = opened()
    before = path.read_bytes()
    ledger.afford(CHARGE)
    assert path.read_bytes() == before


def test_a_charge_may_not_claim_more_noise_than_there_is(opened, noised):
    ledger = opened()
    with pytest.raises(PrivacyError, match=r"claims a noise multiplier of 2\.5"):
        publish(noised, Charge("task 0", 0, "replay", 2.5), ledger)
    assert ledger.charges == ()


def test_a_charge_that_claims_less_is_fine(opened, noised):
    assert publish(noised, Charge("task 0", 0, "replay", 1.9), opened()).value.shape == (40,)


def test_an_interrupted_publication_is_finished_without_drawing(opened, noised, monkeypatch):
    released = publish(noised, CHARGE, opened())
    monkeypatch.setattr(mechanism, "discrete_gaussian", None)
    reopened = opened()
    again = finish(CHARGE, reopened)
    assert again is not None
    assert again.value.tolist() == released.value.tolist()
    assert len(reopened.charges) == 1


def test_a_noised_sum_cannot_be_read_by_accident(noised):
    with pytest.raises(TypeError, match="seal"):
        noised.total()
    with pytest.raises(AttributeError, match="value"):
        noised.value = 1
    assert "object at" in repr(noised)


# -- on the client ---------------------------------------------------------------------------------


def test_a_client_pays_before_it_has_a_noise_key_and_again_for_every_retry(opened, summed):
    ledger = opened()
    first = charge_share(summed, CHARGE, ledger)
    assert ledger.charges == (replace(CHARGE, noise="clients"),)
    second = charge_share(summed, CHARGE, ledger)
    assert len(ledger.charges) == 2
    assert len({first, second}) == 2
    assert len(first) == 32


def test_a_server_that_aborts_without_end_is_stopped_by_the_clients_budget(opened, summed):
    ledger = opened(epsilon=4.0)

    def endless_aborts() -> None:
        for _ in range(100):
            charge_share(summed, CHARGE, ledger)

    with pytest.raises(BudgetExceeded, match="beyond its budget of 4"):
        endless_aborts()
    assert 1 <= len(ledger.charges) < 10
    assert ledger.epsilon("end_to_end", "roster") <= 4.0


def test_noise_too_fine_for_the_grid_is_refused_before_it_is_paid(opened, summed):
    ledger = opened(epsilon=math.inf)
    with pytest.raises(ValueError, match="below the minimum of 4096"):
        charge_share(summed, Charge("task 0", 0, "replay", 1e-4), ledger)
    assert ledger.charges == ()
