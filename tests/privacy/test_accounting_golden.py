"""Golden values at δ = 10⁻⁵, from charges as in a ledger; a difference needs an explanation.

What the paper's whole table costs, and the σ it would need, stands in tests/paper.
"""

from __future__ import annotations

import pytest

from cslr.privacy.accounting import Charge, epsilon_of

DELTA = 1e-5
FAST = 1e-3  # interval of the privacy losses: ε is still good to five digits
SIGMA, Q = 1.45, 0.3


def releases(rounds: int, blocks: int = 1, q: float = Q) -> list[Charge]:
    """``blocks`` statistics with noise of their own in each round, behind one coin."""
    return [
        Charge(f"task {n} {block}", n, "replay", SIGMA, q)
        for n in range(rounds)
        for block in range(blocks)
    ]


@pytest.mark.parametrize(
    ("rounds", "blocks", "expected"),
    [(4, 1, "2.62"), (200, 1, "18.9"), (1, 4, "4.79"), (200, 4, "62.3")],
    ids=["joint, 4 releases", "joint, 200", "four blocks, 1 round", "four blocks, 200"],
)
def test_what_a_third_of_the_clients_spends_against_the_public(rounds, blocks, expected):
    spent = epsilon_of(releases(rounds, blocks), DELTA, "public", interval=FAST)
    assert f"{spent:.3g}" == expected


@pytest.mark.parametrize(("rounds", "expected"), [(4, "6.4"), (7, "8.9")])
@pytest.mark.parametrize("q", [Q, 1.0])
def test_what_everybody_spends_against_the_roster(rounds, expected, q):
    assert f"{epsilon_of(releases(rounds, q=q), DELTA, 'roster'):.2g}" == expected


def test_amplifying_every_block_alone_would_be_too_cheap():
    """The value of a known mistake: four blocks behind one coin cost 4.79."""
    alone = [Charge(f"block {n}", n, "replay", SIGMA, Q) for n in range(4)]
    assert f"{epsilon_of(alone, DELTA, 'public', interval=FAST):.3g}" == "2.62"
