"""The printed ε against accountants of other hands, for every shipped plan and over a grid.

Shipped are the distinct plans of every experiment file, of every method on the embedded streams,
and of the commands in the README; each as it is promised (against the roster, everybody takes part)
and as it would be with a third of the clients in each round, against the public.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product

import mpmath
import numpy as np
import pytest

from cslr.privacy.accounting import (
    RDP_ORDERS,
    Charge,
    epsilon_of,
    gaussian_epsilon,
    pld_epsilon,
    rdp_epsilon,
)
from cslr.privacy.plan import Budget, Plan, Schedule, calibrate
from cslr.privacy.renyi import renyi_costs

from .shipped import EMBEDDED, EXPERIMENTS, TASKS, shipped_plans

pytestmark = pytest.mark.trust

Rounds = tuple[tuple[float, float], ...]
DELTA = 1e-5
FAST = 1e-3  # interval of the privacy losses: for σ < 3, ε is still good to four digits


@pytest.fixture(scope="module")
def plans() -> tuple[Plan, ...]:
    """Every distinct plan with noise; `cslr plan` of the README among them."""
    return shipped_plans()


def rounds_of(plan: Plan, q: float | None = None) -> Rounds:
    """The (σ, q) of every coin of the ``cap`` tasks of one client; all tasks of a plan are alike.

    q: another participation rate for what can be amplified.
    """
    coins: dict[int, list[Charge]] = {}
    for charge in plan.charges():
        if charge.task < plan.cap:
            coins.setdefault(charge.round, []).append(charge)
    lists = {charge.round for charge in plan.charges() if " list " in charge.label}
    return tuple(
        (
            sum(charge.sigma**-2 for charge in behind) ** -0.5,
            behind[0].q if q is None or coin in lists else q,
        )
        for coin, behind in coins.items()
    )


@pytest.fixture(scope="module")
def shipped(plans) -> tuple[Rounds, ...]:
    """Rounds of every plan: as promised, and with a third of the clients."""
    return tuple(dict.fromkeys(rounds_of(plan, q) for plan in plans for q in (None, 0.3)))


GRID: tuple[tuple[Rounds, float], ...] = tuple(
    (((sigma, q),) * releases, delta)
    for sigma, q, releases, delta in [
        *product((0.73, 1.45, 2.81), (0.1, 0.3, 0.9), (1, 4), (1e-5,)),
        *product((3.2, 20.0), (0.01, 0.3), (50, 200), (1e-5, 1e-7)),
        (0.5, 0.3, 2, 1e-4),
        (1.45, 0.3, 200, 1e-5),
        (0.725, 0.3, 200, 1e-5),
    ]
)


def kinds_of(many: Iterable[Rounds]) -> list[tuple[float, float]]:
    return sorted({kind for rounds in many for kind in rounds})


def test_the_number_of_tasks_is_what_the_traces_say():
    for trace in (EXPERIMENTS / "traces").glob("*.jsonl"):
        with trace.open(encoding="utf-8") as file:
            heading = json.loads(file.readline())
        name = heading["config"]["stream"]["name"]
        assert name in EMBEDDED or TASKS[name][0] == len(heading["tasks"])


def quadrature(sigma: float, q: float, order: float, other: bool = False) -> float:
    """D_α by mpmath in 18 digits; ``other``: the clients' direction exchanged."""
    with mpmath.workdps(18):
        s, p, a = mpmath.mpf(sigma), mpmath.mpf(q), mpmath.mpf(order)
        power = 1 - a if other else a

        def integrand(x: mpmath.mpf) -> mpmath.mpf:
            ratio = mpmath.log(1 - p + p * mpmath.exp((2 * x - 1) / (2 * s**2)))
            return mpmath.exp(power * ratio - x**2 / (2 * s**2))

        ends = (-11 * s - a, 11 * s) if other else (-11 * s, a + 11 * s)
        whole = mpmath.quad(integrand, mpmath.linspace(*ends, 7), method="gauss-legendre")
        return float(mpmath.log(whole / (s * mpmath.sqrt(2 * mpmath.pi))) / (a - 1))


def test_renyi_costs_are_those_of_an_independent_quadrature(shipped, card):
    """At fractional orders too, where dp-accounting is up to a few percent high or gives up."""
    kinds = kinds_of([*shipped, *(rounds for rounds, _ in GRID)])
    orders = [1.02, 1.5, 2, 3.7, 8, 21.9, 64]
    worst = 0.0
    for place, (sigma, q) in enumerate(kinds):
        some = orders[place % 2 :: 2]
        costs = renyi_costs(sigma, q, some)
        exact = np.array([quadrature(sigma, q, order) for order in some])
        worst = max(worst, float(np.abs(costs / exact - 1).max()))
        # The other direction of neighbours never costs more, so one of them is enough.
        assert quadrature(sigma, q, some[1], other=True) <= costs[1] * (1 + 1e-12)
    figure = f"{worst:.0e}, {len(kinds)} pairs of σ and q"
    card("RDP against quadrature", "within 1e-6", figure, worst < 1e-6)
    assert worst < 1e-6


def test_renyi_costs_are_those_of_opacus_at_the_same_orders(shipped, card):
    analysis = pytest.importorskip("opacus.accountants.analysis.rdp")
    kinds = kinds_of([*shipped, *(rounds for rounds, _ in GRID)])
    orders = [float(order) for order in RDP_ORDERS[::15]]
    worst = 0.0
    for sigma, q in kinds:
        costs = renyi_costs(sigma, q, orders)
        theirs = analysis.compute_rdp(q=q, noise_multiplier=sigma, steps=1, orders=orders)
        worst = max(worst, float(np.abs(costs / theirs - 1).max()))
    figure = f"{worst:.0e}, {len(kinds)} pairs × {len(orders)} orders"
    card("RDP against Opacus", "within 1e-6", figure, worst < 1e-6)
    assert worst < 1e-6


@pytest.mark.filterwarnings("ignore:Optimal order is the (smallest|largest) alpha:UserWarning")
def test_renyi_epsilon_is_that_of_opacus(shipped):
    """The conversion as well: both use that of Canonne, Kamath and Steinke."""
    analysis = pytest.importorskip("opacus.accountants.analysis.rdp")
    orders = RDP_ORDERS[::10]
    for rounds in shipped[1::6]:  # every other is amplified
        assert any(q < 1 for _, q in rounds)
        costs = sum(
            count * analysis.compute_rdp(q=q, noise_multiplier=sigma, steps=1, orders=orders)
            for (sigma, q), count in Counter(rounds).items()
        )
        theirs, _ = analysis.get_privacy_spent(orders=orders, rdp=costs, delta=DELTA)
        assert rdp_epsilon(rounds, DELTA, orders) == pytest.approx(theirs, rel=1e-6)


def test_the_pld_is_the_closed_form_where_everybody_takes_part(plans, card):
    multiples = Counter(rounds_of(plan) for plan in plans)
    worst = 0.0
    for rounds in multiples:
        mu = math.sqrt(sum(sigma**-2 for sigma, _ in rounds))
        closed = gaussian_epsilon(mu, DELTA)
        worst = max(worst, abs(pld_epsilon(rounds, DELTA) / closed - 1))
    figure = f"{worst:.0e}, {len(multiples)} plans"
    card("PLD against closed form", "within 1e-6 at q = 1", figure, worst < 1e-6)
    assert worst < 1e-6


def bracket(rounds: Rounds, delta: float) -> tuple[float, float]:
    """What the PRV accountant proves of ε (Gopi, Lee and Wutschitz 2021)."""
    prv = pytest.importorskip("prv_accountant")
    kinds = Counter(rounds)
    variables = [
        prv.GaussianMechanism(sigma) if q == 1 else prv.PoissonSubsampledGaussianMechanism(q, sigma)
        for sigma, q in kinds
    ]
    counts = list(kinds.values())
    accountant = prv.PRVAccountant(
        prvs=variables, max_self_compositions=counts, eps_error=0.01, delta_error=delta / 1000
    )
    low, _, high = accountant.compute_epsilon(delta, counts)
    return low, high


@pytest.fixture(scope="module")
def priced(shipped) -> list[tuple[Rounds, float, float]]:
    """ε of all rounds, by the function that ledgers use; coarser where losses are large."""
    found = []
    for rounds, delta in [*((each, DELTA) for each in shipped), *GRID]:
        charges = [Charge(f"{i}", i, "replay", *kind) for i, kind in enumerate(rounds)]
        interval = FAST if all(sigma < 3 for sigma, _ in rounds) else None
        found.append((rounds, delta, epsilon_of(charges, delta, "public", interval=interval)))
    return found


@pytest.mark.filterwarnings("ignore::RuntimeWarning:prv_accountant")
def test_epsilon_lies_in_the_bracket_of_the_prv_accountant(priced, card):
    inside, room = 0, math.inf
    for rounds, delta, epsilon in priced:
        low, high = bracket(rounds, delta)
        inside += low <= epsilon <= high
        room = min(room, epsilon - low, high - epsilon)
    figure = f"{inside} of {len(priced)}, least distance to an end {room:.4f}"
    card("inside PRV bracket", "all, ±0.01", figure, inside == len(priced))
    assert inside == len(priced)


def test_renyi_is_never_below_pld(priced, card):
    orders = RDP_ORDERS[::2]
    ratios = [rdp_epsilon(rounds, delta, orders) / epsilon for rounds, delta, epsilon in priced]
    figure = f"RDP / PLD {min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)} cases"
    card("RDP ≥ PLD", "never below", figure, min(ratios) >= 1)
    assert min(ratios) >= 1
    assert max(ratios) < 2


def calibrated() -> list[Plan]:
    """σ over a grid of promises, rates, caps and schedules."""
    both = Schedule(replay=1, lists=1, head=50)
    paper = Schedule(replay=4, lists=1)
    cases: Sequence[tuple[float, float, str, int, float, int | None, Schedule]] = [
        *product((1.0, 4.0, 8.0), (1e-5, 1e-7), ("roster",), (1, 7), (1.0,), (None, 1), (both,)),
        *product((1.0, 4.0, 8.0), (1e-5,), ("public",), (4,), (0.3,), (None, 2), (Schedule(),)),
        *product((4.0,), (1e-6,), ("public",), (1, 50), (0.1, 0.9), (None,), (Schedule(),)),
        *product((4.0,), (1e-5,), ("public",), (4,), (0.3,), (None, 1), (paper, both)),
    ]
    return [
        calibrate(Budget(epsilon, delta, adversary), releases, q, cap, schedule, q)
        for epsilon, delta, adversary, releases, q, cap, schedule in cases
    ]


@pytest.mark.filterwarnings("ignore::RuntimeWarning:prv_accountant")
def test_calibrated_noise_spends_the_promise_and_no_more(plans, card):
    shares = []
    for plan in [*plans, *calibrated()]:
        budget = plan.budget
        spent = epsilon_of(plan.charges(), budget.delta, budget.adversary, cap=plan.cap)
        shares.append(spent / budget.epsilon)
        # And by another hand, as far as it can tell.
        if budget.adversary == "public":
            low, high = bracket(rounds_of(plan), budget.delta)
            assert low <= budget.epsilon
            assert high >= 0.995 * budget.epsilon
    figure = f"{min(shares):.4f} ε to {max(shares):.6f} ε, {len(shares)} plans"
    holds = min(shares) >= 0.995 and max(shares) <= 1
    card("calibrated σ", "lands in [0.995 ε, ε]", figure, holds)
    assert holds
