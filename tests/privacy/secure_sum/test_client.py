"""A hostile server: every move gets its own refusal, and the member's state does not change."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from cslr import errors
from cslr.privacy.secure_sum import Release, SumClient
from cslr.privacy.secure_sum.codec import unsigned
from cslr.privacy.secure_sum.masks import Context, public_of, seal, sign
from cslr.privacy.secure_sum.messages import Consent, Invitation, Keys, PeerKey
from cslr.privacy.values import _SEAL, Grid

from .parties import GRID, Parties, charge, exact, release, summed

ROWS = np.random.default_rng(4).normal(size=(5, 3))


@pytest.fixture
def five() -> Parties:
    return Parties(5, 4)


def up_to(parties: Parties, phase: str):
    """The request that member 0 would get next."""
    parties.join()
    if phase == "share":
        return parties.server.ask_shares(1)[0]
    parties.share()
    if phase == "mask":
        return parties.server.ask_masks(release())[0]
    parties.mask(ROWS, release())
    if phase == "consent":
        return parties.server.ask_consent()[0]
    parties.consent()
    return parties.server.ask_unmask(charge(), parties.ledger)[0]


def mask(client: SumClient, request, wanted: Release | None = None, key: bytes | None = None):
    own = wanted or release()
    row = summed(np.zeros(own.coordinates), own.grid)
    return client.mask(request, own, row, key or os.urandom(32))


def refused(client: SumClient, error: type[errors.SumRefused], answer, *arguments) -> None:
    """Refused by this very name; the member's state is untouched and the message says why."""
    before = client.state()
    with pytest.raises(error, match=r"\w+ \w+.{20}") as caught:
        answer(*arguments)
    assert type(caught.value) is error
    assert client.state() == before


def tag_for(consent: Consent, alive: tuple[int, ...], receiver: int) -> bytes:
    """The tag of a consent to ``alive`` that is meant for ``receiver``."""
    others = [member for member in alive if member != consent.sender]
    return consent.tags[others.index(receiver)]


def swapped(parcels, place, **changes):
    return tuple(replace(p, **changes) if i == place else p for i, p in enumerate(parcels))


# -- the twelve moves ------------------------------------------------------------------------------


def test_1_one_member_both_alive_and_dropped(five):
    request = up_to(five, "consent")
    client = five.clients[0]
    bad = replace(request, dropped=(3,))
    refused(client, errors.AliveAndDropped, client.consent, bad)
    assert client.consent(request)


@pytest.mark.parametrize(
    "change", [{"alive": (0, 1, 2, 3, 3, 4)}, {"alive": (0, 1, 2, 4), "dropped": (3, 3)}]
)
def test_2_duplicate_members_among_the_survivors(five, change):
    request = up_to(five, "consent")
    client = five.clients[0]
    refused(client, errors.DuplicateMember, client.consent, replace(request, **change))


def test_2_duplicate_members_among_keys_parcels_and_consents(five):
    request = up_to(five, "share")
    client = five.clients[0]
    refused(
        client,
        errors.DuplicateMember,
        client.share,
        replace(request, keys=(*request.keys, request.keys[2])),
    )
    client.share(request)
    five = Parties(5, 4)
    request, client = up_to(five, "mask"), five.clients[0]
    doubled = replace(request, parcels=(*request.parcels, request.parcels[1]))
    refused(client, errors.DuplicateMember, mask, client, doubled)
    five = Parties(5, 4)
    request, client = up_to(five, "unmask"), five.clients[0]
    doubled = replace(request, consents=(*request.consents[:3], request.consents[0]))
    refused(client, errors.DuplicateMember, client.unmask, doubled)


def test_3_fewer_alive_than_the_threshold(five):
    request = up_to(five, "consent")
    client = five.clients[0]
    bad = replace(request, alive=(0, 1, 2), dropped=(3, 4))
    refused(client, errors.TooFewMembers, client.consent, bad)


def test_3_fewer_consents_than_the_threshold(five):
    request = up_to(five, "unmask")
    client = five.clients[0]
    bad = replace(request, consents=request.consents[:2])
    refused(client, errors.TooFewMembers, client.unmask, bad)


def test_4_a_set_that_shrinks_between_phases(five):
    request = up_to(five, "consent")
    client = five.clients[0]
    refused(client, errors.MembersChanged, client.consent, replace(request, alive=(0, 1, 2, 3)))


def test_4_fewer_share_than_the_threshold(five):
    request = up_to(five, "mask")
    client = five.clients[0]
    bad = replace(request, parcels=request.parcels[:3])
    refused(client, errors.TooFewMembers, mask, client, bad)


def test_5_different_sets_shown_to_different_members(five):
    """Split view: 0 signed {0,1,2,3,4}, the others {0,1,2,3}."""
    request = up_to(five, "consent")
    smaller = replace(request, alive=(0, 1, 2, 3), dropped=(4,))
    mine = five.clients[0].consent(request)
    theirs = [five.clients[i].consent(smaller) for i in (1, 2, 3)]
    from cslr.privacy.secure_sum.messages import UnmaskRequest

    told = {0: (0, 1, 2, 3, 4), **dict.fromkeys((1, 2, 3), (0, 1, 2, 3))}
    for client in five.clients[:2]:
        tags = tuple(
            (each.sender, tag_for(each, told[each.sender], client.number))
            for each in (mine, *theirs)
            if each.sender != client.number
        )
        bad = UnmaskRequest(1, tags, False)
        refused(client, errors.SplitView, client.unmask, bad)


def test_5_a_consent_that_the_server_signed_itself(five):
    request = up_to(five, "unmask")
    client = five.clients[0]
    bad = replace(request, consents=(*request.consents[:3], (4, os.urandom(16))))
    refused(client, errors.SplitView, client.unmask, bad)


def test_5_a_consent_meant_for_another_member_or_of_another_member(five):
    request = up_to(five, "unmask")
    client = five.clients[0]
    for_1 = five.server._round.consents[4][1]
    bad = replace(request, consents=(*request.consents[:3], (4, for_1)))
    refused(client, errors.SplitView, client.unmask, bad)
    of_3 = dict(request.consents)[3]
    bad = replace(request, consents=(*request.consents[:3], (4, of_3)))
    refused(client, errors.SplitView, client.unmask, bad)


def test_5_its_own_consent_is_not_counted_twice(five):
    request = up_to(five, "unmask")
    client = five.clients[0]
    bad = replace(request, consents=(*request.consents[:2], (0, bytes(16))))
    refused(client, errors.UnknownMember, client.unmask, bad)


def test_6_a_channel_key_substituted(five):
    request = up_to(five, "share")
    client = five.clients[0]
    own = public_of(os.urandom(32))
    keys = tuple(replace(k, public=own) if k.member == 3 else k for k in request.keys)
    refused(client, errors.BadPeerKey, client.share, replace(request, keys=keys))
    # Signed by an identity of the server's making, or by another member.
    body = unsigned(Keys(1, 3, own))
    for signer in (Ed25519PrivateKey.generate(), five.identities[2]):
        forged = PeerKey(3, own, sign(signer, five.terms.digest, body))
        keys = tuple(forged if k.member == 3 else k for k in request.keys)
        refused(client, errors.BadPeerKey, client.share, replace(request, keys=keys))


def test_6_a_mask_key_substituted(five):
    request = up_to(five, "mask")
    client = five.clients[0]
    for change in ({"mask_key": public_of(os.urandom(32))}, {"commitment": os.urandom(32)}):
        bad = replace(request, parcels=swapped(request.parcels, 2, **change))
        refused(client, errors.ForeignShare, mask, client, bad)


def test_6_a_key_of_small_order_is_refused_although_its_owner_sealed_it(five):
    request = up_to(five, "mask")
    client, peer = five.clients[0], five.clients[2]
    parcel = request.parcels[2]
    name = Context(five.terms.digest, 1).pair(b"share", 2, 0)
    channel = peer._channel(0, peer._state)
    sealed = seal(channel, name, bytes(88), bytes(32) + parcel.commitment)
    bad = swapped(request.parcels, 2, mask_key=bytes(32), sealed=sealed)
    refused(client, errors.BadPeerKey, mask, client, replace(request, parcels=bad))


def test_7_a_replayed_session(five):
    request = up_to(five, "unmask")
    five.server.take(five.clients[0].unmask(request))
    client = five.clients[0]
    old = five.server.ask_shares  # the server itself cannot go back; a hostile one sends again
    assert old
    keys = tuple(five.server._keys.values())
    from cslr.privacy.secure_sum.messages import ConsentRequest, ShareRequest

    refused(client, errors.SessionReplayed, client.share, ShareRequest(1, 1, keys))
    refused(client, errors.SessionReplayed, client.share, ShareRequest(0, 5, keys))
    refused(client, errors.SecondRequest, client.consent, ConsentRequest(1, (0, 1, 2, 3), (4,)))
    again = Invitation(1, 5, 4, 1, five.terms.digest)
    refused(client, errors.SessionReplayed, client.join, again)


def test_7_parcels_of_an_older_session(five):
    old = up_to(five, "mask")
    five.share(session=2)
    new = five.server.ask_masks(release())[0]
    client = five.clients[0]
    mixed = replace(new, parcels=(new.parcels[0], *old.parcels[1:]))
    refused(client, errors.ForeignShare, mask, client, mixed)
    refused(client, errors.SessionReplayed, mask, client, old)


def test_8_a_ciphertext_swapped_between_peers(five):
    request = up_to(five, "mask")
    client, parcels = five.clients[0], request.parcels
    bad = swapped(swapped(parcels, 1, sealed=parcels[2].sealed), 2, sealed=parcels[1].sealed)
    refused(client, errors.ForeignShare, mask, client, replace(request, parcels=bad))
    other = five.server._mask_request(3, release()).parcels[1].sealed  # meant for member 3
    bad = swapped(parcels, 1, sealed=other)
    refused(client, errors.ForeignShare, mask, client, replace(request, parcels=bad))


def test_9_its_own_channel_key_changed(five):
    request = up_to(five, "share")
    client = five.clients[0]
    keys = tuple(
        replace(k, public=public_of(os.urandom(32))) if k.member == 0 else k for k in request.keys
    )
    refused(client, errors.OwnKeyChanged, client.share, replace(request, keys=keys))
    without = replace(request, keys=request.keys[1:])
    refused(client, errors.OwnKeyChanged, client.share, without)


def test_9_its_own_mask_key_changed(five):
    request = up_to(five, "mask")
    client = five.clients[0]
    bad = swapped(request.parcels, 0, mask_key=public_of(os.urandom(32)))
    refused(client, errors.OwnKeyChanged, mask, client, replace(request, parcels=bad))


def test_10_an_unknown_member(five):
    request = up_to(five, "share")
    client = five.clients[0]
    stranger = PeerKey(5, public_of(os.urandom(32)), bytes(64))
    refused(
        client, errors.UnknownMember, client.share, replace(request, keys=(*request.keys, stranger))
    )
    five = Parties(5, 4)
    request, client = up_to(five, "mask"), five.clients[0]
    bad = swapped(request.parcels, 4, member=77)
    refused(client, errors.UnknownMember, mask, client, replace(request, parcels=bad))
    five = Parties(5, 4)
    request, client = up_to(five, "consent"), five.clients[0]
    refused(
        client, errors.UnknownMember, client.consent, replace(request, alive=(*request.alive, 9))
    )


def test_10_a_member_that_did_not_share_is_called_a_survivor(five):
    five.join()
    five.share(gone=[4])
    five.mask(ROWS, release())
    request, client = five.server.ask_consent()[0], five.clients[0]
    refused(client, errors.UnknownMember, client.consent, replace(request, alive=(0, 1, 2, 3, 4)))


def test_10_a_consent_of_somebody_who_did_not_survive(five):
    five.join()
    five.share()
    five.mask(ROWS, release(), gone=[4])
    five.consent()
    request, client = five.server.ask_unmask(charge(), five.ledger)[0], five.clients[0]
    bad = replace(request, consents=(*request.consents, (4, bytes(16))))
    refused(client, errors.UnknownMember, client.unmask, bad)


def test_11_a_second_unmask_request(five):
    request = up_to(five, "unmask")
    client = five.clients[0]
    client.unmask(request)
    refused(client, errors.SecondRequest, client.unmask, request)


def test_11_every_request_is_answered_once(five):
    request, client = up_to(five, "mask"), five.clients[0]
    mask(client, request)
    refused(client, errors.SecondRequest, mask, client, request)
    five = Parties(5, 4)
    request, client = up_to(five, "consent"), five.clients[0]
    client.consent(request)
    other = replace(request, alive=(0, 1, 2, 3), dropped=(4,))
    refused(client, errors.SecondRequest, client.consent, other)


def test_12_a_sum_of_two(five):
    identities = tuple(k.public_key().public_bytes_raw() for k in five.identities[:2])
    with pytest.raises(errors.TooFewMembers, match="at least 3 members, not 2"):
        replace(five.terms, identities=identities, threshold=2)
    request, client = up_to(five, "share"), five.clients[0]
    refused(client, errors.TooFewMembers, client.share, replace(request, keys=request.keys[:2]))


# -- the later ones --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change", [{"threshold": 3}, {"colluders": 2}, {"members": 6}, {"terms": bytes(32)}]
)
def test_lowered_terms_are_refused(five, change):
    client = five.clients[0]
    bad = replace(five.server.invite(1), **change)
    refused(client, errors.TermsDiffer, client.join, bad)


@pytest.mark.parametrize(
    "asked",
    [
        release(sigma=1.9),
        release(label="task 1"),
        release(coordinates=4),
        Release("task 0", 3, 2.0, Grid(1.0, 2**19)),
        Release("task 0", 3, 2.0, Grid(0.5)),
    ],
)
def test_another_sigma_label_size_or_grid_is_refused(five, asked):
    request, client = up_to(five, "mask"), five.clients[0]
    refused(client, errors.TermsDiffer, mask, client, replace(request, release=asked), release())


def test_one_noise_share_is_refused_in_a_second_session(five):
    request, client = up_to(five, "mask"), five.clients[0]
    key = os.urandom(32)
    mask(client, request, key=key)
    five.share(session=2)
    again = five.server.ask_masks(release())[0]
    refused(client, errors.NoiseShareReused, mask, client, again, release(), key)
    assert mask(client, again, key=os.urandom(32))


def test_endless_aborts_stop_at_the_number_of_sessions_allowed():
    five = Parties(5, 4, most_sessions=3)
    five.join()
    client = five.clients[0]
    for session in (1, 2, 3):
        five.share(session=session)
        mask(client, five.server.ask_masks(release())[0])
        assert client.sessions_left == 3 - session
    five.share(session=4)
    request = five.server.ask_masks(release())[0]
    refused(client, errors.SessionsSpent, mask, client, request)


def test_a_member_called_dropped_does_not_consent(five):
    request, client = up_to(five, "consent"), five.clients[0]
    bad = replace(request, alive=(1, 2, 3, 4), dropped=(0,))
    refused(client, errors.NotASurvivor, client.consent, bad)


def test_a_member_whose_shares_are_left_out_sends_nothing(five):
    request, client = up_to(five, "mask"), five.clients[0]
    bad = replace(request, parcels=request.parcels[1:])
    refused(client, errors.NotASurvivor, mask, client, bad)


def test_phases_cannot_be_skipped(five):
    consent, client = up_to(five, "consent"), five.clients[0]
    from cslr.privacy.secure_sum.messages import ConsentRequest, UnmaskRequest

    refused(client, errors.OutOfTurn, client.unmask, UnmaskRequest(1, (), False))
    refused(client, errors.OutOfTurn, client.consent, replace(consent, session=2))
    other = Parties(5, 4)
    up_to(other, "mask")
    client = other.clients[0]
    refused(client, errors.OutOfTurn, client.consent, ConsentRequest(1, (0, 1, 2, 3, 4), ()))


def test_a_session_that_was_given_up_is_never_unmasked(five):
    """Shares for session 2 were asked while session 1 waited for its consent."""
    request, client = up_to(five, "consent"), five.clients[0]
    five.share(session=2)
    refused(client, errors.SessionReplayed, client.consent, request)


def test_changed_keys_within_an_epoch_are_refused(five):
    request, client = up_to(five, "share"), five.clients[0]
    client.share(request)
    secret = X25519PrivateKey.generate().public_key().public_bytes_raw()
    signature = sign(five.identities[3], five.terms.digest, unsigned(Keys(1, 3, secret)))
    keys = tuple(PeerKey(3, secret, signature) if k.member == 3 else k for k in request.keys)
    refused(client, errors.BadPeerKey, client.share, replace(request, session=2, keys=keys))


def test_who_is_not_on_the_roster_takes_part_in_nothing(five):
    with pytest.raises(errors.UnknownMember, match="not among those of the secure sum's terms"):
        SumClient(five.terms, Ed25519PrivateKey.generate(), 3)


def test_a_vector_of_another_grid_or_size_is_the_callers_mistake(five):
    request, client = up_to(five, "mask"), five.clients[0]
    with pytest.raises(ValueError, match="grid"):
        client.mask(request, release(), summed(np.zeros(3), Grid(2.0)), os.urandom(32))
    with pytest.raises(ValueError, match="coordinates"):
        client.mask(request, release(), summed(np.zeros(4), GRID), os.urandom(32))


def test_every_refusal_is_a_privacy_error_that_says_nothing_about_the_vector():
    for name in errors.__all__:
        kind = getattr(errors, name)
        if issubclass(kind, errors.SumRefused):
            assert issubclass(kind, errors.PrivacyError)


# -- what leaves a member --------------------------------------------------------------------------


def test_a_masked_vector_says_nothing_about_the_row(five):
    """The same zeros in two sessions: other masks, other noise; no word in common."""
    request, client = up_to(five, "mask"), five.clients[0]
    first = mask(client, request)
    five.share(session=2)
    second = mask(client, five.server.ask_masks(release())[0])
    words = [np.frombuffer(each.vector, dtype="<u8") for each in (first, second)]
    assert not set(words[0].tolist()) & set(words[1].tolist())


def test_consents_are_for_one_session_one_release_and_one_set(five):
    request = up_to(five, "consent")
    first = five.clients[0].consent(request)
    other = Parties(5, 4)
    assert isinstance(first, Consent)
    assert first.digest != other_digest(other)


def other_digest(parties: Parties) -> bytes:
    request = up_to(parties, "consent")
    return parties.clients[0].consent(request).digest


def test_members_with_nothing_to_say_send_zeros_and_noise(five):
    noised = five.session(np.zeros((5, 3)), release(), {})
    expected = sum(five.noise.values())
    assert exact(noised) == expected.tolist()
    assert np.all(noised.total(_SEAL) != 0)
