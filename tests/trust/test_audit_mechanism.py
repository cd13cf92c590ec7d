"""The mechanism against the strongest attack there is: the bound comes close to the claim."""

from __future__ import annotations

import pytest

from cslr.audit import two_worlds
from cslr.privacy.plan import Budget, calibrate
from cslr.seeding import Seeds

pytestmark = pytest.mark.trust


@pytest.mark.parametrize("epsilon", [4.0, 8.0])
def test_two_worlds_show_most_of_the_claim_and_no_more(card, epsilon):
    """With other noise an honest mechanism would fail in 1 of 1,000: that is the confidence."""
    plan = calibrate(Budget(epsilon), releases=2)
    found = two_worlds(plan, runs=10_000, seeds=Seeds(13).under(f"{epsilon:g}"), confidence=0.999)
    holds = 0.85 * epsilon <= found.lower <= found.claimed
    card(
        f"empirical ε, mechanism, ε = {epsilon:g}",
        f"in [{0.85 * epsilon:g}, {epsilon:g}]",
        f"{found.lower:.2f} (10⁴ runs of each world, 99.9 % confidence)",
        holds,
    )
    assert found.claimed == pytest.approx(epsilon, abs=1e-6)
    assert holds
