"""What a member checks before it answers. A failed check raises a leaf of ``SumRefused``.

The server is trusted only to deliver messages: every key must be signed by the identity that this
member pinned, every set must consist of members of the phase before, and the terms must be its own.
A hostile server can end a session; it cannot make a member reveal more than the protocol does.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable, Collection, Sequence

from cslr.errors import (
    AliveAndDropped,
    BadPeerKey,
    DuplicateMember,
    MembersChanged,
    NotASurvivor,
    OutOfTurn,
    OwnKeyChanged,
    SecondRequest,
    SessionReplayed,
    SplitView,
    TermsDiffer,
    TooFewMembers,
    UnknownMember,
)
from cslr.privacy.secure_sum.codec import unsigned
from cslr.privacy.secure_sum.masks import body_digest, verifies
from cslr.privacy.secure_sum.messages import (
    ConsentRequest,
    Invitation,
    Keys,
    MaskRequest,
    Parcel,
    PeerKey,
    ShareRequest,
    UnmaskRequest,
)
from cslr.privacy.secure_sum.state import ClientState, Phase, SumSession
from cslr.privacy.secure_sum.terms import LEAST_MEMBERS, Release, SumTerms

__all__ = [
    "check_book",
    "check_consents",
    "check_invitation",
    "check_parcels",
    "check_release",
    "check_survivors",
    "consent_digest",
    "in_phase",
    "transcript_of",
]


def check_invitation(invitation: Invitation, terms: SumTerms, epoch: int) -> None:
    """Refuse an invitation to an old epoch or under other terms than the pinned ones."""
    offered = (invitation.members, invitation.threshold, invitation.colluders)
    pinned = (len(terms.identities), terms.threshold, terms.colluders)
    for name, value, agreed in zip(("n", "t", "c"), offered, pinned, strict=True):
        if value != agreed:
            raise TermsDiffer(f"the server asks for {name} = {value}; {name} = {agreed} was agreed")
    if invitation.terms != terms.digest:
        raise TermsDiffer("the server's federation or list of identities is not the pinned one")
    if invitation.epoch <= epoch:
        raise SessionReplayed(f"epoch {invitation.epoch} is over; this member is in {epoch}")


def check_book(
    request: ShareRequest, terms: SumTerms, member: int, own_key: bytes, state: ClientState
) -> tuple[tuple[int, bytes], ...]:
    """The channel keys of an epoch in order; refused unless each is signed by its owner."""
    if request.epoch != state.epoch:
        raise SessionReplayed(
            f"the keys are of epoch {request.epoch}, but this member is in epoch {state.epoch}"
        )
    if request.session <= state.last_shared:
        raise SessionReplayed(f"session {request.session} is not later than {state.last_shared}")
    numbers = [key.member for key in request.keys]
    _check_members(numbers, range(len(terms.identities)), terms)
    keys = {key.member: key.public for key in request.keys}
    if keys.get(member) != own_key:
        raise OwnKeyChanged("the server shows another channel key as this member's")
    book = tuple(sorted(keys.items()))
    if state.book and book != state.book:
        raise BadPeerKey(f"the channel keys of epoch {state.epoch} have changed since they came")
    if not state.book:
        for key in request.keys:
            if key.member != member:
                _check_peer_key(key, request.epoch, terms)
    return book


def _check_peer_key(key: PeerKey, epoch: int, terms: SumTerms) -> None:
    digest = body_digest(unsigned(Keys(epoch, key.member, key.public)))
    if not verifies(terms.identities[key.member], key.signature, terms.digest, digest):
        raise BadPeerKey(f"the channel key of member {key.member} is not signed by its identity")


def check_release(requested: Release, planned: Release) -> None:
    """Refuse another release than the one that this member would contribute to."""
    for name in ("label", "coordinates", "sigma", "grid"):
        value, agreed = getattr(requested, name), getattr(planned, name)
        if value != agreed:
            raise TermsDiffer(f"the server asks for {name} = {value}; {agreed} was agreed")


def check_parcels(
    request: MaskRequest, terms: SumTerms, own: Parcel, book: Collection[int]
) -> tuple[Parcel, ...]:
    """The parcels of all that shared, in order; this member's own must show its own keys.

    The others' keys are verified when their shares are unsealed.
    """
    _check_members([each.member for each in request.parcels], book, terms)
    parcels = {each.member: each for each in request.parcels}
    shown = parcels.get(own.member)
    if shown is None:
        raise NotASurvivor("this member shared its secrets, but the server's request leaves it out")
    if (shown.mask_key, shown.commitment) != (own.mask_key, own.commitment):
        raise OwnKeyChanged("the server shows another mask key or commitment as this member's")
    return tuple(parcels[member] for member in sorted(parcels))


def check_survivors(
    request: ConsentRequest, session: SumSession, member: int, terms: SumTerms
) -> None:
    """Refuse unless each member that shared is either alive or dropped, and enough are alive."""
    shared = {each.member for each in session.held}
    for numbers in (request.alive, request.dropped):
        if len(set(numbers)) != len(numbers):
            raise DuplicateMember("the server names a survivor or a dropped member twice")
    both = set(request.alive) & set(request.dropped)
    if both:
        raise AliveAndDropped(f"member {min(both)} is called both alive and dropped")
    named = {*request.alive, *request.dropped}
    if not named <= shared:
        raise UnknownMember(f"member {min(named - shared)} did not share in this session")
    if named != shared:
        raise MembersChanged(
            f"member {min(shared - named)} shared, but is named neither alive nor dropped"
        )
    if member not in request.alive:
        raise NotASurvivor("this member sent its vector, but the server calls it dropped")
    if len(request.alive) < terms.quorum:
        raise TooFewMembers(
            f"{len(request.alive)} members are alive; at least {terms.quorum} must agree"
        )


def check_consents(
    request: UnmaskRequest,
    session: SumSession,
    own_number: int,
    quorum: int,
    tag_of: Callable[[int], bytes],
) -> None:
    """Refuse unless enough survivors, this member among them, consented to the same set as it did.

    tag_of: the tag that a member which consented to this set would have sent to this one.
    """
    others = [member for member, _ in request.consents]
    if len(set(others)) != len(others):
        raise DuplicateMember("a member's consent is counted twice")
    for member in others:
        if member == own_number or member not in session.alive:
            raise UnknownMember(f"member {member} consents, but is not another survivor")
    false = [
        member for member, tag in request.consents if not hmac.compare_digest(tag, tag_of(member))
    ]
    if false:
        raise SplitView(f"member {false[0]} did not sign the set of survivors shown here")
    if 1 + len(others) < quorum:
        raise TooFewMembers(
            f"{1 + len(others)} members signed the survivors; at least {quorum} must"
        )


def in_phase(state: ClientState, session: int, phase: Phase) -> SumSession:
    """The session of a request; refused unless this member is in the given phase of it."""
    order: Sequence[Phase] = ("shared", "masked", "consented")
    current = state.session
    if current is None or session != current.number:
        if session == state.last_unmasked:
            raise SecondRequest(f"session {session} was unmasked already")
        if session <= state.last_shared:
            raise SessionReplayed(f"session {session} is over and cannot be resumed")
        raise OutOfTurn(f"this member has not shared secrets for session {session}")
    if order.index(current.phase) > order.index(phase):
        raise SecondRequest(f"this request of session {session} was answered already")
    if current.phase != phase:
        raise OutOfTurn(f"session {session} has not come as far as this request")
    return current


def transcript_of(terms: bytes, release: Release, parcels: Sequence[Parcel]) -> bytes:
    """32 bytes that identify the release and all that shared, with their keys."""
    keys = (struct.pack("<I", p.member) + p.mask_key + p.commitment for p in parcels)
    return hashlib.sha256(b"transcript" + terms + release.digest + b"".join(keys)).digest()


def consent_digest(transcript: bytes, session: int, alive: Sequence[int]) -> bytes:
    """What is signed as consent; the transcript has all that shared, and so the dropped, too."""
    numbers = struct.pack(f"<QI{len(alive)}I", session, len(alive), *sorted(alive))
    return hashlib.sha256(b"survivors" + transcript + numbers).digest()


def _check_members(numbers: Sequence[int], known: Collection[int], terms: SumTerms) -> None:
    if len(set(numbers)) != len(numbers):
        raise DuplicateMember("the server names a member twice")
    for number in numbers:
        if number not in known:
            raise UnknownMember(f"member {number} is not part of this sum")
    least = max(terms.quorum, LEAST_MEMBERS)
    if len(numbers) < least:
        raise TooFewMembers(f"{len(numbers)} members take part; at least {least} must")
