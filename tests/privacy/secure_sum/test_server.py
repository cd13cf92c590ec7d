"""Hostile members: one named error each, and nothing of a refused message is kept."""

from __future__ import annotations

import math
import os
from dataclasses import replace

import numpy as np
import pytest

from cslr.errors import (
    AlreadySent,
    BadField,
    BadSignature,
    BudgetExceeded,
    FutureRound,
    OldRound,
    PrivacyError,
    SumAborted,
    UnknownClient,
    WrongKind,
    WrongShape,
    WrongTerms,
)
from cslr.privacy.noise_shares import share_scale
from cslr.privacy.secure_sum.codec import unsigned
from cslr.privacy.secure_sum.masks import sign
from cslr.privacy.secure_sum.messages import Consent, Keys, Masked, Shares, Unmasked

from .parties import SIGMA, Parties, charge, exact, release, rich_ledger, summed

ROWS = np.random.default_rng(8).normal(size=(5, 3))
KINDS = (Keys, Shares, Masked, Consent, Unmasked)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def answers(parties: Parties, kind: type) -> list:
    """The honest answers of all members to the request that ``kind`` answers, not yet taken."""
    server, clients = parties.server, parties.clients
    if kind is Keys:
        invitation = server.invite(1)
        return [client.join(invitation) for client in clients]
    parties.join()
    if kind is Shares:
        return [clients[i].share(request) for i, request in server.ask_shares(1).items()]
    parties.share()
    if kind is Masked:
        return [
            clients[i].mask(request, release(), summed(ROWS[i]), os.urandom(32))
            for i, request in server.ask_masks(release()).items()
        ]
    parties.mask(ROWS, release())
    if kind is Consent:
        return [clients[i].consent(request) for i, request in server.ask_consent().items()]
    parties.consent()
    requests = server.ask_unmask(charge(), parties.ledger)
    return [clients[i].unmask(request) for i, request in requests.items()]


def signed(parties: Parties, answer, by: int | None = None):
    """The same message with a valid signature of a member."""
    key = parties.identities[answer.sender if by is None else by]
    return replace(answer, signature=sign(key, parties.terms.digest, unsigned(answer)))


@pytest.fixture
def five() -> Parties:
    return Parties(5, 4)


@each_kind
def test_a_flipped_signature_or_body_is_refused(five, kind):
    honest = answers(five, kind)[0]
    spoilt = replace(honest, signature=bytes([honest.signature[0] ^ 1]) + honest.signature[1:])
    changed = {
        Keys: {"public": bytes(32)},
        Shares: {"commitment": bytes(32)},
        Masked: {"vector": bytes(24)},
        Consent: {"digest": bytes(32)},
        Unmasked: {"shares": (bytes(44),) * 5},
    }[kind]
    for bad in (spoilt, replace(honest, **changed)):
        with pytest.raises(BadSignature, match="not that of member 0"):
            five.server.take(bad)
    five.server.take(honest)  # not AlreadySent: the refused ones left no trace


@each_kind
def test_a_message_under_anothers_name_is_refused(five, kind):
    honest = answers(five, kind)[0]
    with pytest.raises(BadSignature, match="not that of member 1"):
        five.server.take(replace(honest, sender=1))
    with pytest.raises(BadSignature, match="not that of member 1"):
        five.server.take(signed(five, replace(honest, sender=1), by=0))
    with pytest.raises(UnknownClient, match="no member 5"):
        five.server.take(replace(honest, sender=5))


@each_kind
def test_the_same_bytes_again_count_once_and_other_bytes_are_refused(five, kind):
    honest = answers(five, kind)
    for answer in honest:
        five.server.take(answer)
        five.server.take(answer)
    changed = {
        Keys: {"public": b"\1" * 32},
        Shares: {"sealed": tuple(reversed(honest[0].sealed)) if kind is Shares else ()},
        Masked: {"vector": bytes(24)},
        Consent: {"digest": bytes(32)},
        Unmasked: {"shares": (bytes(44),) * 5},
    }[kind]
    with pytest.raises(AlreadySent, match="member 0 sent another answer before"):
        five.server.take(signed(five, replace(honest[0], **changed)))


def test_a_vector_sent_twice_is_added_once(five):
    for masked in answers(five, Masked):
        five.server.take(masked)
        five.server.take(masked)
    five.consent()
    noised = five.unmask()
    steps = release().grid.steps
    scale = share_scale(SIGMA, steps, 4, 1)
    assert np.abs(exact(noised)).max() < 5 * steps + 5 * 12 * scale


@each_kind
def test_messages_of_another_session_are_refused(five, kind):
    honest = answers(five, kind)[0]
    name = "epoch" if kind is Keys else "session"
    for number, error in ((0, OldRound), (2, FutureRound)):
        with pytest.raises(error, match=f"session {number}; 1 is going on"):
            five.server.take(signed(five, replace(honest, **{name: number})))


@each_kind
def test_a_message_in_another_phase_is_refused(kind):
    late, other = Parties(5, 4), Parties(5, 4)
    honest = answers(late, kind)[0]
    following = KINDS[(KINDS.index(kind) + 2) % 5]
    answers(other, following)
    number = "epoch" if kind is Keys else "session"
    strange = signed(other, replace(honest, sender=0, **{number: 1}))
    if (kind, 0) in other.server._seen:
        with pytest.raises(AlreadySent, match="member 0 sent another answer before"):
            other.server.take(strange)
    else:
        with pytest.raises((WrongKind, FutureRound), match=r"is awaited now|is going on"):
            other.server.take(strange)


def test_a_replay_of_an_older_session_is_refused(five):
    old = answers(five, Masked)
    five.share(session=2)
    five.server.ask_masks(release())
    with pytest.raises(OldRound, match="answer to session 1; 2 is going on"):
        five.server.take(old[0])


def test_who_was_not_asked_is_not_counted(five):
    five.join()
    five.share()
    requests = five.server.ask_masks(release())
    late = five.clients[4]
    masked = late.mask(requests[4], release(), summed(ROWS[4]), os.urandom(32))
    for i in range(4):
        one = five.clients[i].mask(requests[i], release(), summed(ROWS[i]), os.urandom(32))
        five.server.take(one)
    asked = five.server.ask_consent()
    assert set(asked) == {0, 1, 2, 3}
    with pytest.raises(WrongKind, match="no Masked is awaited now"):
        five.server.take(masked)
    consent = signed(five, Consent(1, 4, five.server._round.digest, ()))
    with pytest.raises(UnknownClient, match="member 4 was not asked"):
        five.server.take(consent)


@pytest.mark.parametrize("size", [0, 2, 4, 300])
def test_a_vector_of_another_size_is_refused(five, size):
    honest = answers(five, Masked)[0]
    with pytest.raises(WrongShape, match="bytes for 3 coordinates"):
        five.server.take(signed(five, replace(honest, vector=bytes(8 * size))))


def test_a_vector_for_another_release_is_refused(five):
    honest = answers(five, Masked)[0]
    with pytest.raises(WrongTerms, match="for another release"):
        five.server.take(signed(five, replace(honest, release=release("x").digest)))


def test_consent_to_another_set_is_refused(five):
    honest = answers(five, Consent)[0]
    with pytest.raises(WrongTerms, match="signed another set of survivors"):
        five.server.take(signed(five, replace(honest, digest=os.urandom(32))))


@pytest.mark.parametrize("count", [0, 3, 5, 200])
def test_another_number_of_sealed_shares_is_refused(five, count):
    honest = answers(five, Shares)[0]
    bad = replace(honest, sealed=(honest.sealed[0],) * count)
    with pytest.raises(WrongShape, match="sealed shares for 4 members"):
        five.server.take(signed(five, bad))


@pytest.mark.parametrize("count", [0, 3, 5])
def test_another_number_of_consent_tags_is_refused(five, count):
    honest = answers(five, Consent)[0]
    with pytest.raises(WrongShape, match="tags for 4 other survivors"):
        five.server.take(signed(five, replace(honest, tags=(bytes(16),) * count)))


@pytest.mark.parametrize("count", [0, 4, 6])
def test_another_number_of_unmasking_shares_is_refused(five, count):
    honest = answers(five, Unmasked)[0]
    with pytest.raises(WrongShape, match="shares for 5 members"):
        five.server.take(signed(five, replace(honest, shares=(bytes(44),) * count)))


def test_shares_of_somebody_else_do_not_come_with_an_answer(five):
    first, second = answers(five, Unmasked)[:2]
    with pytest.raises(BadField, match="member 0 sends shares of member 1"):
        five.server.take(signed(five, replace(first, following=second.following)))
    wrong = replace(first.following, session=9)
    with pytest.raises(OldRound, match="shares for session 9 instead of 2"):
        five.server.take(signed(five, replace(first, following=wrong)))


def test_lying_shares_end_the_session_instead_of_giving_a_wrong_sum(five):
    honest = answers(five, Unmasked)
    lie = replace(honest[0], shares=tuple(reversed(honest[0].shares)))
    five.server.take(signed(five, lie))
    for answer in honest[1:]:
        five.server.take(answer)
    with pytest.raises(SumAborted, match="do not fit together"):
        five.server.finish()


def test_shares_that_peers_cannot_open_cost_their_sender_the_round(five):
    """The peers refuse the session; a new one without that member goes through."""
    from cslr.errors import ForeignShare

    requests = {}
    five.join()
    for i, request in five.server.ask_shares(1).items():
        shares = five.clients[i].share(request)
        if i == 2:
            shares = signed(five, replace(shares, sealed=tuple(map(os.urandom, [116] * 4))))
        five.server.take(shares)
    requests = five.server.ask_masks(release())
    with pytest.raises(ForeignShare, match="member 2"):
        five.clients[0].mask(requests[0], release(), summed(ROWS[0]), os.urandom(32))
    five.share(gone=[2], session=2)
    five.mask(ROWS, release())
    five.consent()
    assert exact(five.unmask()) == five.expected(ROWS, [0, 1, 3, 4])


# -- before anything is unmasked -------------------------------------------------------------------


def test_what_the_ledger_cannot_afford_is_refused_before_unmasking(five):
    answers(five, Consent)
    for client in range(5):
        five.server.take(
            signed(five, Consent(1, client, five.server._round.digest, (bytes(16),) * 4))
        )
    with pytest.raises(BudgetExceeded, match=r"beyond its budget of 0\.1"):
        five.server.ask_unmask(charge(), rich_ledger(epsilon=0.1))
    assert five.server.ask_unmask(charge(), rich_ledger(epsilon=8.0))


def test_a_charge_that_claims_more_noise_than_the_clients_add_is_refused(five):
    answers(five, Consent)
    with pytest.raises(PrivacyError, match="claims a noise multiplier"):
        five.server.ask_unmask(charge(sigma=SIGMA * 1.01), rich_ledger())


def test_phases_have_an_order(five):
    for early in (five.server.ask_consent, five.server.finish):
        with pytest.raises(ValueError, match="comes after"):
            early()
    with pytest.raises(ValueError, match="ask_shares"):
        five.server.ask_masks(release())
    five.join()
    with pytest.raises(ValueError, match="epoch"):
        five.server.invite(1)
    five.share()
    with pytest.raises(ValueError, match="session"):
        five.server.ask_shares(1)


def test_the_noise_in_a_release_comes_with_it(five):
    noised = five.session(ROWS, release(), {"masked": [1]})
    assert noised.sigma == SIGMA
    assert math.isclose(noised.multiplier, SIGMA * math.sqrt(4 / 3), rel_tol=1e-9)
