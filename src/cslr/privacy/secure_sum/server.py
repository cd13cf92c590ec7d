"""The server's side of the secure sum: it collects the answers of each phase and adds up.

    server = SumServer(terms)
    invitation = server.invite(epoch=1)               # to everybody
    requests = server.ask_shares(session=1)           # by member
    requests = server.ask_masks(release)
    requests = server.ask_consent()
    requests = server.ask_unmask(charge, ledger)
    noised = server.finish()                          # then mechanism.publish
    requests = server.ask_masks(next_release)         # its shares came with the last answers

Between them ``take(answer)`` counts an answer or raises a ``MessageError``; nothing of a refused
answer is kept. A member that did not answer before the next request is dropped. If too few are
left, ``SumAborted`` is raised; start a new session with ``ask_shares``.

The server learns who took part and the sum with the clients' noise. It can spoil a sum or end it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NoReturn

import numpy as np

from cslr.errors import (
    AlreadySent,
    SumAborted,
    UnknownClient,
    WrongKind,
    WrongShape,
    WrongTerms,
)
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.mechanism import check_claim
from cslr.privacy.secure_sum.checks import consent_digest, transcript_of
from cslr.privacy.secure_sum.intake import (
    check_current,
    check_following,
    check_shares,
    check_signature,
)
from cslr.privacy.secure_sum.masks import Context, MaskSum
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
    PeerKey,
    ShareRequest,
    Shares,
    Unmasked,
    UnmaskRequest,
)
from cslr.privacy.secure_sum.recover import recover_secrets, remove_masks
from cslr.privacy.secure_sum.terms import LEAST_MEMBERS, Release, SumTerms
from cslr.privacy.values import _SEAL, Noised

__all__ = ["SumServer"]

_ORDER: Final = (Keys, Shares, Masked, Consent, Unmasked)


@dataclass
class _Round:
    """The state of one session."""

    number: int
    shared: dict[int, Shares] = field(default_factory=dict)
    release: Release | None = None
    total: MaskSum | None = None
    alive: set[int] = field(default_factory=set)
    digest: bytes = b""
    consents: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """By member that consented, its tags by receiver."""
    unmasked: dict[int, tuple[bytes, ...]] = field(default_factory=dict)


class SumServer:
    """The aggregator of one federation. Mutable: it goes from phase to phase."""

    def __init__(self, terms: SumTerms) -> None:
        self.terms = terms
        self._epoch = 0
        self._keys: dict[int, PeerKey] = {}
        self._members: tuple[int, ...] = ()
        self._index: dict[int, int] = {}
        self._expects: type[Answer] | None = None
        self._addressed: frozenset[int] = frozenset()
        self._seen: dict[tuple[type, int], bytes] = {}
        self._round = _Round(0)
        self._following: dict[int, Shares] = {}

    @property
    def session(self) -> int:
        """The number of the current session."""
        return self._round.number

    @property
    def members(self) -> frozenset[int]:
        """The members of this epoch: those that sent channel keys in time."""
        return frozenset(self._members)

    @property
    def release(self) -> Release | None:
        """What is being summed in the current session, once vectors were asked for."""
        return self._round.release

    @property
    def prepared(self) -> frozenset[int]:
        """The members whose shares for the next session came with the last answers."""
        return frozenset(self._following)

    # -- the five requests -----------------------------------------------------------------------

    def invite(self, epoch: int) -> Invitation:
        """Begin an epoch: all members are asked for channel keys."""
        if epoch <= self._epoch:
            raise ValueError(f"epoch must be later than {self._epoch}, not {epoch}")
        terms = self.terms
        self._epoch, self._keys, self._members, self._following = epoch, {}, (), {}
        self._open(Keys, range(len(terms.identities)))
        return Invitation(
            epoch, len(terms.identities), terms.threshold, terms.colluders, terms.digest
        )

    def ask_shares(self, session: int) -> dict[int, ShareRequest]:
        """Begin a session among the members of the epoch."""
        if session <= self.session:
            raise ValueError(f"session must be later than {self.session}, not {session}")
        self._check_enough(len(self._keys), "sent channel keys")
        self._members = self._members or tuple(sorted(self._keys))
        self._index = {member: index for index, member in enumerate(self._members)}
        self._round, self._following = _Round(session), {}
        self._open(Shares, self._members)
        keys = tuple(self._keys[member] for member in self._members)
        return dict.fromkeys(self._members, ShareRequest(self._epoch, session, keys))

    def ask_masks(self, release: Release) -> dict[int, MaskRequest]:
        """Ask those that shared for their vectors; begins the next session if it has shares."""
        if self._following:
            self._round = _Round(self.session + 1, shared=self._following)
            self._following = {}
        elif self._expects is not Shares:
            raise ValueError("ask_shares comes before ask_masks")
        shared = self._round.shared = dict(sorted(self._round.shared.items()))
        self._check_enough(len(shared), "shared their secrets")
        self.terms.share_scale(release)
        self._round.release, self._round.total = release, MaskSum(release.coordinates)
        self._open(Masked, shared)
        return {member: self._mask_request(member, release) for member in shared}

    def ask_consent(self) -> dict[int, ConsentRequest]:
        """Ask the survivors to sign their set."""
        self._check_phase(Masked)
        alive = tuple(sorted(self._round.alive))
        self._check_enough(len(alive), "sent a masked vector")
        dropped = tuple(sorted(self._round.shared.keys() - self._round.alive))
        assert self._round.release is not None
        parcels = [self._parcel(member, None) for member in self._round.shared]
        transcript = transcript_of(self.terms.digest, self._round.release, parcels)
        self._round.digest = consent_digest(transcript, self.session, alive)
        self._open(Consent, alive)
        return dict.fromkeys(alive, ConsentRequest(self.session, alive, dropped))

    def ask_unmask(
        self, charge: Charge, ledger: Ledger, prepare: bool = True
    ) -> dict[int, UnmaskRequest]:
        """Ask those that consented for the shares that unmask the sum, if the budget allows it.

        prepare: whether they send the shares of the next session along.
        """
        self._check_phase(Consent)
        assert self._round.release is not None
        check_claim(self._round.release.sigma, charge)
        ledger.afford(charge)
        consents = dict(sorted(self._round.consents.items()))
        self._check_enough(len(consents), "signed the set of survivors")
        self._open(Unmasked, consents)
        return {
            member: UnmaskRequest(
                self.session,
                tuple((other, tags[member]) for other, tags in consents.items() if other != member),
                prepare,
            )
            for member in consents
        }

    def finish(self) -> Noised:
        """The sum of the survivors' vectors and noise shares."""
        self._check_phase(Unmasked)
        current, release, total = self._round, self._round.release, self._round.total
        assert release is not None
        assert total is not None
        if len(current.unmasked) < self.terms.threshold:
            self._abort(len(current.unmasked), self.terms.threshold, "answered the unmasking")
        self._expects = None
        secrets = recover_secrets(
            current.shared, current.alive, current.unmasked, self.terms.threshold
        )
        mask_keys = {member: each.mask_key for member, each in current.shared.items()}
        context = Context(self.terms.digest, self.session, release.digest)
        remove_masks(total, context, secrets, mask_keys, current.alive)
        survivors = tuple(sorted(current.alive))
        multiplier = self.terms.multiplier(release, len(survivors))
        numbers = total.total.view(np.int64)
        return Noised(numbers, release.grid, release.sigma, multiplier, survivors, _SEAL)

    # -- answers ---------------------------------------------------------------------------------

    def take(self, answer: Answer) -> None:
        """Count an answer. A repeated answer changes nothing; a different one is refused."""
        name, mark = (type(answer), answer.sender), self._check_sender(answer)
        if name in self._seen:
            if self._seen[name] != mark:
                raise AlreadySent(f"member {answer.sender} sent another answer before")
            return
        match answer:
            case Keys():
                self._keys[answer.sender] = PeerKey(answer.sender, answer.public, answer.signature)
            case Shares():
                check_shares(answer, self.session, self._members)
                self._round.shared[answer.sender] = answer
            case Masked():
                self._take_masked(answer)
            case Consent():
                self._take_consent(answer)
            case Unmasked():
                self._take_unmasked(answer)
        self._seen[name] = mark

    def _check_sender(self, answer: Answer) -> bytes:
        """Refuse an answer that was not asked for; returns the digest of what was signed."""
        if answer.sender >= len(self.terms.identities):
            raise UnknownClient(f"there is no member {answer.sender} in this sum")
        digest = check_signature(answer, self.terms)
        check_current(answer, self._epoch, self.session)
        kind = type(answer)
        if kind is not self._expects and (kind, answer.sender) not in self._seen:
            raise WrongKind(f"no {kind.__name__} is awaited now")
        if kind is self._expects and answer.sender not in self._addressed:
            raise UnknownClient(f"member {answer.sender} was not asked in this phase")
        return digest

    def _take_masked(self, masked: Masked) -> None:
        release, total = self._round.release, self._round.total
        assert release is not None
        assert total is not None
        if masked.release != release.digest:
            raise WrongTerms(f"member {masked.sender} masked its vector for another release")
        if len(masked.vector) != 8 * release.coordinates:
            raise WrongShape(f"{len(masked.vector)} bytes for {release.coordinates} coordinates")
        total.add_words(np.frombuffer(masked.vector, dtype="<u8"))
        self._round.alive.add(masked.sender)

    def _take_consent(self, consent: Consent) -> None:
        if consent.digest != self._round.digest:
            raise WrongTerms(f"member {consent.sender} signed another set of survivors")
        others = sorted(self._round.alive - {consent.sender})
        if len(consent.tags) != len(others):
            raise WrongShape(f"{len(consent.tags)} tags for {len(others)} other survivors")
        self._round.consents[consent.sender] = dict(zip(others, consent.tags, strict=True))

    def _take_unmasked(self, answer: Unmasked) -> None:
        if len(answer.shares) != len(self._round.shared):
            raise WrongShape(f"{len(answer.shares)} shares for {len(self._round.shared)} members")
        if answer.following is not None:
            check_following(answer.following, answer, self._members)
            self._following[answer.sender] = answer.following
        self._round.unmasked[answer.sender] = answer.shares

    # -- within ----------------------------------------------------------------------------------

    def _open(self, kind: type[Answer], members: Iterable[int]) -> None:
        """Expect answers of this kind, from these members, and of no other kind."""
        self._expects = kind
        self._addressed = frozenset(members)
        later = _ORDER[_ORDER.index(kind) :]
        self._seen = {name: mark for name, mark in self._seen.items() if name[0] not in later}

    def _check_phase(self, kind: type[Answer]) -> None:
        if self._expects is not kind:
            raise ValueError(f"this comes after the {kind.__name__} answers, not now")

    def _check_enough(self, count: int, did: str) -> None:
        least = max(self.terms.quorum, LEAST_MEMBERS)
        if count < least:
            self._abort(count, least, did)

    def _abort(self, count: int, least: int, did: str) -> NoReturn:
        self._expects, self._following = None, {}
        raise SumAborted(
            f"only {count} members {did} in session {self.session}; {least} are needed. Start a "
            "new session: it takes new noise and is charged again"
        )

    def _parcel(self, sender: int, receiver: int | None) -> Parcel:
        shares = self._round.shared[sender]
        sealed = bytes(SEALED_BYTES)
        if receiver is not None and receiver != sender:
            sealed = shares.sealed[self._index[receiver] - (receiver > sender)]
        return Parcel(sender, shares.mask_key, shares.commitment, sealed)

    def _mask_request(self, receiver: int, release: Release) -> MaskRequest:
        parcels = tuple(self._parcel(sender, receiver) for sender in self._round.shared)
        return MaskRequest(self.session, release, parcels)
