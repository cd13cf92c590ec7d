"""Members that disappear in any phase: the sum of the survivors, exactly, or a clean end."""

from __future__ import annotations

import copy
import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.errors import SumAborted
from cslr.privacy.secure_sum import checks, intake, masks
from cslr.privacy.values import Noised

from .parties import PHASES, Parties, charge, exact, release

pytestmark = pytest.mark.usefixtures("remembered_signatures")
ROWS = np.random.default_rng(11).normal(size=(20, 3))
N, T = 5, 3


@pytest.fixture
def remembered_signatures(monkeypatch):
    """Twenty members check the same signatures: here each is checked once, with one result."""
    once = functools.lru_cache(maxsize=100_000)(masks.verifies)
    for module in (checks, intake):
        monkeypatch.setattr(module, "verifies", once)


class World:
    """Five members up to some phase. ``branch`` goes on from here, again and again."""

    def __init__(self, parties: Parties) -> None:
        self.parties = parties

    def branch(self) -> Parties:
        """The same parties once more; a member's state is frozen, so a shallow copy is apart."""
        parties = copy.copy(self.parties)
        parties.clients = [copy.copy(client) for client in self.parties.clients]
        parties.server = copy.deepcopy(self.parties.server)
        parties.noise = dict(self.parties.noise)
        return parties


def subsets(members):
    return itertools.chain.from_iterable(
        itertools.combinations(members, size) for size in range(len(members) + 1)
    )


def gone_after(present):
    """Every choice of who leaves now: the members of ``present`` that stay."""
    return (tuple(sorted(set(present) - set(lost))) for lost in subsets(present))


def run_every_pattern() -> dict[str, int]:
    """Each of five members leaves at shares, masked vector, consent or unmasking, or stays."""
    begun = Parties(N, T)
    begun.join()
    quorum, everybody = begun.terms.quorum, set(range(N))
    outcomes = {"exact": 0, "aborted": 0}
    for sharing in gone_after(range(N)):
        shared = World(begun).branch()
        shared.share(gone=everybody - set(sharing))
        if len(sharing) < quorum:
            outcomes["aborted"] += 4 ** len(sharing)
            with pytest.raises(SumAborted, match="shared their secrets"):
                shared.server.ask_masks(release())
            continue
        for sending in gone_after(sharing):
            masked = World(shared).branch()
            masked.mask(ROWS, release(), gone=everybody - set(sending))
            if len(sending) < quorum:
                outcomes["aborted"] += 3 ** len(sending)
                with pytest.raises(SumAborted, match="sent a masked vector"):
                    masked.server.ask_consent()
                continue
            for signing in gone_after(sending):
                signed = World(masked).branch()
                signed.consent(gone=everybody - set(signing))
                if len(signing) < quorum:
                    outcomes["aborted"] += 2 ** len(signing)
                    with pytest.raises(SumAborted, match="signed the set"):
                        signed.server.ask_unmask(charge(), signed.ledger)
                    continue
                for answering in gone_after(signing):
                    last = World(signed).branch()
                    absent = everybody - set(answering)
                    if len(answering) < T:
                        with pytest.raises(SumAborted, match="answered the unmasking"):
                            last.unmask(gone=absent)
                        outcomes["aborted"] += 1
                        continue
                    noised = last.unmask(gone=absent)
                    assert exact(noised) == last.expected(ROWS, sending)
                    assert noised.survivors == sending
                    outcomes["exact"] += 1
    assert sum(outcomes.values()) == 5**N
    # 4 of 5 must sign, 3 of those must answer: counted by hand below.
    assert outcomes["exact"] == by_hand(quorum, T)
    return outcomes


def test_all_3125_patterns_of_five_members_are_exact_or_cleanly_aborted():
    assert min(run_every_pattern().values()) > 0


def by_hand(quorum: int, threshold: int) -> int:
    """How many of the 3,125 patterns leave enough members in every phase."""
    count = 0
    for pattern in itertools.product(range(5), repeat=N):  # 0 shares … 3 unmasking, 4 stays
        left = [sum(when > phase for when in pattern) for phase in range(4)]
        count += min(left[:3]) >= quorum and left[3] >= threshold
    return count


def random_pattern(rng: np.random.Generator, number: int) -> dict[str, list[int]]:
    """10, 20 or 30 % of twenty members leave at phases drawn at random.

    At the keys in every tenth pattern only: it takes an epoch of its own.
    """
    phases = PHASES if number % 10 == 0 else PHASES[1:]
    gone: dict[str, list[int]] = {}
    for member in range(20):
        if rng.random() < (0.1, 0.2, 0.3)[number % 3]:
            gone.setdefault(phases[rng.integers(len(phases))], []).append(member)
    return gone


def run_random(patterns: int, seed: int) -> dict[str, int]:
    rng = np.random.default_rng(seed)
    outcomes = {"exact": 0, "aborted": 0}
    parties = Parties(20, 14, 4, most_sessions=10**6)
    for number in range(patterns):
        gone = random_pattern(rng, number)
        if number % 10 in (0, 1):
            parties.join(gone.get("keys", []), epoch=number + 1)
        try:
            noised = random_session(parties, 2 * number + 1, gone)
        except SumAborted:
            outcomes["aborted"] += 1
            assert sum(map(len, gone.values())) > 6
        else:
            outcomes["exact"] += 1
            late = {*gone.get("consent", ()), *gone.get("unmask", ())}
            survivors = set(range(20)) - (set().union(*gone.values()) - late)
            assert set(noised.survivors) == survivors
            assert exact(noised) == parties.expected(ROWS, survivors)
    return outcomes


def random_session(parties: Parties, session: int, gone: dict[str, list[int]]) -> Noised:
    """All of a session but the keys; who is gone from a phase stays away from the later ones."""
    lost = list(gone.get("keys", []))
    after = {}
    for phase in PHASES[1:]:
        lost = [*lost, *gone.get(phase, [])]
        after[phase] = lost
    parties.share(after["shares"], session=session)
    parties.mask(ROWS, release(), after["masked"])
    parties.consent(after["consent"])
    return parties.unmask(after["unmask"])


def test_random_patterns_of_twenty_members_are_exact_or_cleanly_aborted():
    assert min(run_random(200, 1).values()) > 10


@pytest.mark.slow
def test_a_thousand_random_patterns_of_twenty_members():
    assert min(run_random(1000, 3).values()) > 50


def test_three_exchanges_suffice_from_the_second_release_on():
    parties = Parties(5, 4)
    parties.join()
    parties.share()
    for number in range(4):
        wanted = release(f"task {number}", coordinates=2 + number)
        rows = np.random.default_rng(number).normal(size=(5, 2 + number))
        parties.mask(rows, wanted)
        parties.consent()
        assert exact(parties.unmask()) == parties.expected(rows, range(5))
        assert parties.server.session == number + 1


def test_who_missed_the_unmasking_is_back_after_new_shares():
    parties = Parties(5, 4)
    parties.session(ROWS, release(), {"unmask": [2]})
    parties.mask(ROWS, release("task 1"))
    parties.consent()
    assert parties.unmask().survivors == (0, 1, 3, 4)
    parties.share(session=9)
    parties.mask(ROWS, release("task 2"))
    parties.consent()
    noised = parties.unmask()
    assert noised.survivors == (0, 1, 2, 3, 4)
    assert exact(noised) == parties.expected(ROWS, range(5))


def test_an_aborted_session_is_followed_by_a_new_one():
    parties = Parties(5, 4)
    with pytest.raises(SumAborted, match="only 3 members sent a masked vector"):
        parties.session(ROWS, release(), {"masked": [0, 1]})
    before = dict(parties.noise)
    parties.share(session=2)
    parties.mask(ROWS, release())
    parties.consent()
    assert exact(parties.unmask()) == parties.expected(ROWS, range(5))
    assert all((before[i] != parties.noise[i]).any() for i in before)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(-(2**20), 2**20), min_size=3, max_size=3), st.integers(0, 4))
def test_the_sum_less_its_noise_is_the_sum_whatever_the_integers(column, lost):
    parties = Parties(5, 4)
    rows = np.array([column] * 5) / 2**21
    noised = parties.session(rows, release(), {"masked": [lost]})
    assert exact(noised) == parties.expected(rows, set(range(5)) - {lost})
