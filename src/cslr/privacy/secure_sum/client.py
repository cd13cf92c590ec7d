"""A member's side of the secure sum: it answers each request of the protocol once.

    client = SumClient(terms, identity, most_sessions=40)
    keys = client.join(invitation)
    shares = client.share(share_request)
    masked = client.mask(mask_request, release, plain_sum([bound(own, grid)]), noise_key)
    consent = client.consent(consent_request)
    answer = client.unmask(unmask_request)      # with the next session's shares, if asked

A refusal is a leaf of ``SumRefused`` and leaves the member as it was. After every answer write
``client.state()`` to disk before the answer is sent. To resend an answer, keep its bytes.

Guarantee: all that the server and up to c members that work with it learn in a session of an honest
member's vector is one sum with the noise shares of at least t − c honest members, its own among
them. No noise share is used in two sessions.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from cslr.arrays import IntArray
from cslr.errors import BadPeerKey, ForeignShare, NoiseShareReused, SessionsSpent, UnknownMember
from cslr.privacy.noise_shares import draw_share
from cslr.privacy.secure_sum.checks import (
    check_book,
    check_consents,
    check_invitation,
    check_parcels,
    check_release,
    check_survivors,
    consent_digest,
    in_phase,
    transcript_of,
)
from cslr.privacy.secure_sum.codec import unsigned
from cslr.privacy.secure_sum.masks import (
    Context,
    MaskSum,
    agree,
    commitment_of,
    consent_tag,
    public_of,
    seal,
    sign,
    unseal,
)
from cslr.privacy.secure_sum.messages import (
    SEALED_BYTES,
    Answer,
    Consent,
    ConsentRequest,
    Invitation,
    Keys,
    Masked,
    MaskRequest,
    Parcel,
    ShareRequest,
    Shares,
    Unmasked,
    UnmaskRequest,
)
from cslr.privacy.secure_sum.shamir import SHARE_BYTES, split
from cslr.privacy.secure_sum.state import ClientState, Held, SumSession
from cslr.privacy.secure_sum.terms import Release, SumTerms
from cslr.privacy.values import _SEAL, Summed

__all__ = ["SumClient"]

A = TypeVar("A", bound=Answer)


class SumClient:
    """One member. Mutable: its state advances with every answer."""

    def __init__(
        self,
        terms: SumTerms,
        identity: Ed25519PrivateKey,
        most_sessions: int,
        state: bytes | None = None,
    ) -> None:
        """most_sessions: masked vectors that may ever leave, whether or not a release follows.

        state: the bytes of ``state()``, to resume after a restart.
        """
        public = identity.public_key().public_bytes_raw()
        if public not in terms.identities:
            raise UnknownMember("this identity is not among those of the secure sum's terms")
        self.terms = terms
        self.number = terms.identities.index(public)
        self._identity = identity
        self._most_sessions = most_sessions
        self._state = ClientState()
        if state is not None:
            self._state = ClientState.from_bytes(state, terms.digest)
        self._agreed: dict[int, bytes] = {}
        """The channel secrets of this epoch, by member; computed again after a restart."""

    def state(self) -> bytes:
        """PRIVATE: what must be on disk before the latest answer is sent."""
        return self._state.as_bytes(self.terms.digest)

    @property
    def sessions_left(self) -> int:
        """How many masked vectors this member may still send."""
        return self._most_sessions - len(self._state.noise_keys)

    # -- the five answers ------------------------------------------------------------------------

    def join(self, invitation: Invitation) -> Keys:
        """A fresh channel key for a new epoch; a session under way is given up."""
        check_invitation(invitation, self.terms, self._state.epoch)
        secret = X25519PrivateKey.generate()
        self._agreed = {}
        self._state = replace(
            self._state,
            epoch=invitation.epoch,
            channel_secret=secret.private_bytes_raw(),
            book=(),
            session=None,
        )
        public = secret.public_key().public_bytes_raw()
        return self._signed(Keys(invitation.epoch, self.number, public))

    def share(self, request: ShareRequest) -> Shares:
        """Fresh secrets for a session, shared among the epoch's members."""
        own_key = public_of(self._state.channel_secret) if self._state.channel_secret else b""
        book = check_book(request, self.terms, self.number, own_key, self._state)
        return self._signed(self._prepared(request.session, replace(self._state, book=book)))

    def mask(
        self, request: MaskRequest, release: Release, summed: Summed, noise_key: bytes
    ) -> Masked:
        """This member's vector with its noise share, under masks.

        release: as in this member's own plan. summed: its clipped vector, or the sum of those of
        its people; zeros if it has no rows. noise_key: 32 bytes of ``charge_share``, fresh for
        this session, so that the cost is already in this member's ledger.
        """
        session = in_phase(self._state, request.session, "shared")
        check_release(request.release, release)
        vector = _vector(summed, release)
        parcels = self._parcels(request, session)
        held = tuple(self._held(parcel, session) for parcel in parcels)
        used = self._unused(noise_key)
        share = draw_share(self.terms.share_scale(release), release.coordinates, noise_key)
        total = MaskSum(release.coordinates)
        total.add_words((vector + share).view(np.uint64))
        self._add_masks(total, session, release, parcels)
        transcript = transcript_of(self.terms.digest, release, parcels)
        self._state = replace(
            self._state.in_session(phase="masked", held=held, transcript=transcript),
            noise_keys=(*self._state.noise_keys, used),
        )
        content = total.total.astype("<u8", copy=False).tobytes()
        return self._signed(Masked(session.number, self.number, release.digest, content))

    def check_mask(self, request: MaskRequest, release: Release) -> None:
        """Refuse what ``mask`` would refuse, so that nothing is charged for a request that fails.

        It changes nothing and does not depend on this member's vector.
        """
        session = in_phase(self._state, request.session, "shared")
        check_release(request.release, release)
        for parcel in self._parcels(request, session):
            self._held(parcel, session)
        self._check_sessions()

    def consent(self, request: ConsentRequest) -> Consent:
        """Sign the set of survivors; only one set for each session."""
        session = in_phase(self._state, request.session, "masked")
        check_survivors(request, session, self.number, self.terms)
        alive = tuple(sorted(request.alive))
        digest = consent_digest(session.transcript, session.number, alive)
        tags = tuple(
            self._tag(session.number, (self.number, other), digest)
            for other in alive
            if other != self.number
        )
        self._state = self._state.in_session(phase="consented", alive=alive)
        return self._signed(Consent(session.number, self.number, digest, tags))

    def unmask(self, request: UnmaskRequest) -> Unmasked:
        """Shares of the survivors' seeds and of the others' mask keys; then the session is over."""
        session = in_phase(self._state, request.session, "consented")
        digest = consent_digest(session.transcript, session.number, session.alive)
        check_consents(
            request,
            session,
            self.number,
            self.terms.quorum,
            lambda other: self._tag(session.number, (other, self.number), digest),
        )
        alive = set(session.alive)
        shares = tuple(
            each.seed_share if each.member in alive else each.key_share for each in session.held
        )
        self._state = replace(self._state, session=None, last_unmasked=session.number)
        following = None
        if request.prepare:
            following = self._prepared(session.number + 1, self._state)
        return self._signed(Unmasked(session.number, self.number, shares, following))

    # -- within ----------------------------------------------------------------------------------

    def _signed(self, answer: A) -> A:
        signature = sign(self._identity, self.terms.digest, unsigned(answer))
        return replace(answer, signature=signature)

    def _prepared(self, number: int, state: ClientState) -> Shares:
        """New secrets for session ``number``, and their shares for every member of the book."""
        pair = X25519PrivateKey.generate()
        secret, seed = pair.private_bytes_raw(), os.urandom(32)
        mask_key, commitment = pair.public_key().public_bytes_raw(), commitment_of(seed)
        members = [member for member, _ in state.book]
        shares = split([secret, seed], [member + 1 for member in members], self.terms.threshold)
        by_member = dict(zip(members, shares, strict=True))
        own_key_share, own_seed_share = by_member.pop(self.number)
        context = Context(self.terms.digest, number)
        sealed = tuple(
            seal(
                self._channel(member, state),
                context.pair(b"share", self.number, member),
                b"".join(both),
                mask_key + commitment,
            )
            for member, both in by_member.items()
        )
        session = SumSession(number, "shared", secret, seed, own_key_share, own_seed_share)
        self._state = replace(state, session=session, last_shared=number)
        return Shares(number, self.number, mask_key, commitment, sealed)

    def _channel(self, member: int, state: ClientState) -> bytes:
        """The secret between this member and another in this epoch."""
        if not self._agreed:
            secret = X25519PrivateKey.from_private_bytes(state.channel_secret)
            others = (entry for entry in state.book if entry[0] != self.number)
            self._agreed = {other: _agree(secret, public, other) for other, public in others}
        return self._agreed[member]

    def _tag(self, session: int, way: tuple[int, int], digest: bytes) -> bytes:
        """The tag of a consent to ``digest``; way: sender and receiver, one of them this member."""
        peer = way[0] if way[1] == self.number else way[1]
        name = Context(self.terms.digest, session).pair(b"consent", *way)
        return consent_tag(self._channel(peer, self._state), name, digest)

    def _parcels(self, request: MaskRequest, session: SumSession) -> tuple[Parcel, ...]:
        """The parcels of all that shared; this member's own must be as it sent it."""
        keys = public_of(session.mask_secret), commitment_of(session.seed)
        own = Parcel(self.number, *keys, bytes(SEALED_BYTES))
        return check_parcels(request, self.terms, own, dict(self._state.book))

    def _held(self, parcel: Parcel, session: SumSession) -> Held:
        """This member's shares of the secrets of the member that sent ``parcel``."""
        if parcel.member == self.number:
            return Held(self.number, session.own_key_share, session.own_seed_share)
        name = Context(self.terms.digest, session.number).pair(b"share", parcel.member, self.number)
        about = parcel.mask_key + parcel.commitment
        pair = unseal(self._channel(parcel.member, self._state), name, parcel.sealed, about)
        if pair is None or len(pair) != 2 * SHARE_BYTES:
            raise ForeignShare(
                f"a share with this mask key and commitment was not sealed by member "
                f"{parcel.member} for this member and session"
            )
        return Held(parcel.member, pair[:SHARE_BYTES], pair[SHARE_BYTES:])

    def _unused(self, noise_key: bytes) -> bytes:
        """The fingerprint of a noise key; refused if it was used before or no session is left."""
        self._check_sessions()
        mark = hashlib.sha256(b"noise share" + noise_key).digest()[:16]
        if mark in self._state.noise_keys:
            raise NoiseShareReused(
                "this noise share was used in another session: two sums with one share differ by "
                "vectors without noise. Draw a new key for every session"
            )
        return mark

    def _check_sessions(self) -> None:
        if self.sessions_left <= 0:
            raise SessionsSpent(
                f"{self._most_sessions} masked vectors left this member, as many as its owner "
                "allowed. A server that aborts again and again spends them: find out why before "
                "allowing for more"
            )

    def _add_masks(
        self, total: MaskSum, session: SumSession, release: Release, parcels: Sequence[Parcel]
    ) -> None:
        context = Context(self.terms.digest, session.number, release.digest)
        total.add_mask(context.self_key(session.seed, self.number), 1)
        secret = X25519PrivateKey.from_private_bytes(session.mask_secret)
        for each in parcels:
            if each.member != self.number:
                shared = _agree(secret, each.mask_key, each.member)
                key = context.pair_key(shared, self.number, each.member)
                total.add_mask(key, 1 if self.number < each.member else -1)


def _agree(secret: X25519PrivateKey, public: bytes, member: int) -> bytes:
    try:
        return agree(secret, public)
    except ValueError:
        raise BadPeerKey(f"the key of member {member} is of small order") from None


def _vector(summed: Summed, release: Release) -> IntArray:
    """The integers that this member adds, checked against its own plan."""
    vector = summed.total(_SEAL)
    if (summed.grid.bound, summed.grid.steps) != (release.grid.bound, release.grid.steps):
        raise ValueError(
            f"summed must lie on the release's grid {release.grid}, not on {summed.grid}"
        )
    if vector.shape != (release.coordinates,):
        raise ValueError(f"summed must have {release.coordinates} coordinates, not {vector.shape}")
    return vector
