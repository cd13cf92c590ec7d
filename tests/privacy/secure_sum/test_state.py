"""A member that is ended in any phase and started again goes on, and answers nothing twice."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from cslr.errors import NoiseShareReused, SecondRequest, SumStateCorrupted
from cslr.privacy.secure_sum import SumClient
from cslr.privacy.secure_sum.state import ClientState

from .parties import PHASES, Parties, charge, exact, release, summed

ROWS = np.random.default_rng(2).normal(size=(5, 3))


@pytest.mark.parametrize("phase", PHASES)
def test_all_members_restarted_after_a_phase_give_the_same_sum(phase):
    parties = Parties(5, 4)
    steps = {
        "keys": parties.join,
        "shares": parties.share,
        "masked": lambda: parties.mask(ROWS, release(), gone=[3]),
        "consent": parties.consent,
        "unmask": parties.unmask,
    }
    noised = None
    for name, step in steps.items():
        noised = step()
        if name == phase:
            for member in range(5):
                parties.restart(member)
    assert noised is not None
    assert exact(noised) == parties.expected(ROWS, [0, 1, 2, 4])
    # The next session's secrets, which came with the last answer, survived too.
    parties.mask(ROWS, release("task 1"))
    parties.consent()
    assert exact(parties.unmask()) == parties.expected(ROWS, [0, 1, 2, 4])


def test_a_restarted_member_answers_nothing_twice():
    parties = Parties(5, 4)
    parties.join()
    parties.share()
    request = parties.server.ask_masks(release())[0]
    key = os.urandom(32)
    parties.clients[0].mask(request, release(), summed(ROWS[0]), key)
    parties.restart(0)
    with pytest.raises(SecondRequest, match="answered already"):
        parties.clients[0].mask(request, release(), summed(ROWS[0]), os.urandom(32))
    parties.share(session=2)
    parties.restart(0)
    again = parties.server.ask_masks(release())[0]
    with pytest.raises(NoiseShareReused, match="used in another session"):
        parties.clients[0].mask(again, release(), summed(ROWS[0]), key)


def test_a_second_unmasking_is_refused_after_a_restart():
    parties = Parties(5, 4)
    parties.join()
    parties.share()
    parties.mask(ROWS, release())
    parties.consent()
    request = parties.server.ask_unmask(charge(), parties.ledger)[0]
    parties.clients[0].unmask(request)
    parties.restart(0)
    with pytest.raises(SecondRequest, match="unmasked already"):
        parties.clients[0].unmask(request)


def test_sessions_stay_counted_across_restarts():
    parties = Parties(5, 4, most_sessions=7)
    parties.session(ROWS, release(), {})
    parties.restart(0)
    assert parties.clients[0].sessions_left == 6


def test_secrets_of_a_finished_session_are_gone():
    parties = Parties(5, 4)
    parties.join()
    parties.share()
    before = json.loads(parties.clients[0].state().partition(b"\n")[2])["session"]
    parties.mask(ROWS, release())
    parties.consent()
    parties.unmask(prepare=False)
    after = parties.clients[0].state().decode()
    assert before["mask_secret"] not in after
    assert before["seed"] not in after


def test_damage_is_found_wherever_it_is():
    parties = Parties(3, 3)
    parties.join()
    state = parties.clients[0].state()
    for place in range(0, len(state), 7):
        flipped = state[:place] + bytes([state[place] ^ 1]) + state[place + 1 :]
        with pytest.raises(SumStateCorrupted, match="is damaged"):
            SumClient(parties.terms, parties.identities[0], 5, flipped)
        with pytest.raises(SumStateCorrupted, match="is damaged"):
            SumClient(parties.terms, parties.identities[0], 5, state[:place])


def test_a_state_of_other_terms_is_refused():
    parties, others = Parties(3, 3), Parties(3, 3)
    with pytest.raises(SumStateCorrupted, match="other terms"):
        SumClient(parties.terms, parties.identities[0], 5, others.clients[0].state())


def test_a_state_comes_back_as_it_was_in_every_phase():
    parties = Parties(5, 4)
    for step in (
        parties.join,
        parties.share,
        lambda: parties.mask(ROWS, release()),
        parties.consent,
    ):
        step()
        state = parties.clients[1]._state
        assert ClientState.from_bytes(state.as_bytes(bytes(32)), bytes(32)) == state
