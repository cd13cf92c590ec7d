"""Where clients add the noise: δ that is set aside, spare sessions, and ε against the server."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cslr.errors import BudgetExceeded, ConfigError
from cslr.privacy.accounting import Charge, epsilon_of
from cslr.privacy.mechanism import charge_share, release
from cslr.privacy.noise_shares import reserved_delta
from cslr.privacy.plan import Budget, ClientNoise, calibrate
from cslr.privacy.values import Grid, bound, plain_sum

SHARES = ClientNoise(20, 14, 4, coordinates=386)


def test_server_epsilon_is_the_rosters_only_if_all_charges_are_the_clients():
    own = [Charge(f"task {n}", n, "replay", 2.0, noise="clients") for n in range(3)]
    assert epsilon_of(own, 1e-5, "server") == epsilon_of(own, 1e-5, "roster") < math.inf
    mixed = [*own, Charge("task 3", 3, "replay", 2.0)]
    assert epsilon_of(mixed, 1e-5, "server") == math.inf
    assert epsilon_of(mixed, 1e-5, "roster") < math.inf
    silent = [*own, Charge("task 3", 3, "replay", None, noise="clients")]
    assert epsilon_of(silent, 1e-5, "server") == math.inf


def test_the_samplers_error_is_set_aside_from_delta():
    assert SHARES.reserved == reserved_delta(20, 386) == 20 * 386 * 2.0**-48
    plan = calibrate(Budget(4.0), 4, clients=SHARES)
    (charge, *_) = plan.charges()
    assert charge.reserved == SHARES.reserved
    # What the plan promises holds at δ less what all its releases set aside, and barely.
    assert 0.9999 * 4 < plan.epsilon("roster") <= 4
    assert plan.unit > calibrate(Budget(4.0), 4).unit
    without = [replace(each, reserved=0.0) for each in plan.charges()]
    less = 1e-5 - 4 * SHARES.reserved
    assert plan.epsilon("roster") == epsilon_of(without, less, "roster")


def test_a_reserve_beyond_delta_costs_everything():
    charge = Charge("task 0", 0, "replay", 2.0, noise="clients", reserved=1e-5)
    assert epsilon_of([charge], 1e-5, "roster") == math.inf
    with pytest.raises(ConfigError, match="delta"):
        calibrate(Budget(4.0, 1e-12), 4, clients=replace(SHARES, coordinates=10**6))


def test_spare_sessions_have_room_in_the_budget(enforced_ledger):
    plan = calibrate(Budget(4.0), 3, cap=1, clients=replace(SHARES, spare=1))
    assert plan.sigma == pytest.approx(
        math.sqrt(2) * calibrate(Budget(4.0), 3, cap=1, clients=SHARES).sigma, rel=1e-6
    )
    ledger = enforced_ledger(4.0)
    ledger.fix_plan(plan, {})
    own = plain_sum([bound(np.ones((1, 3)), Grid(1.0))])
    keys = [charge_share(own, plan.charge("task 0", 0), ledger) for _ in range(2)]
    assert len(set(keys)) == 2
    charge_share(own, plan.charge("task 1", 1), ledger)  # other people: the cap is one task
    with pytest.raises(BudgetExceeded, match="beyond its budget of 4"):
        charge_share(own, plan.charge("task 0", 0), ledger)
    assert ledger.epsilon("end_to_end", "server") <= 4


def test_nobody_may_say_that_clients_noised_what_is_noised_here(make_ledger):
    own = plain_sum([bound(np.ones((1, 3)), Grid(1.0))])
    with pytest.raises(ValueError, match="publish their sum"):
        release(own, Charge("task 0", 0, "replay", 2.0, noise="clients"), make_ledger())


def test_older_ledgers_have_no_word_about_it(make_ledger):
    ledger = make_ledger()
    release(plain_sum([bound(np.ones((1, 3)), Grid(1.0))]), Charge("a", 0, "replay", 2.0), ledger)
    body = ledger.records[-1]["body"]
    assert not {"noise", "reserved", "carried"} & body.keys()
    assert ledger.carried("a") is None
    assert ledger.carried("b") is None
    assert "clients" not in calibrate(Budget(4.0), 2).as_dict()


def test_what_clients_do_not_offer_is_refused():
    with pytest.raises(ConfigError, match="q = 1"):
        calibrate(Budget(4.0), 2, 0.5, clients=SHARES)
    with pytest.raises(ConfigError, match="finite"):
        calibrate(Budget(math.inf), 2, clients=SHARES)
    for wrong in ({"colluders": 0}, {"threshold": 4}, {"threshold": 21}):
        with pytest.raises(ConfigError, match="1 ≤ c < t ≤ n"):
            replace(SHARES, **wrong)
    for wrong in ({"spare": -1}, {"coordinates": 0}):
        with pytest.raises(ConfigError, match="spare must be at least 0, and coordinates at least"):
            replace(SHARES, **wrong)
