"""The exceptions of the package, as a tree. Every message says what to do.

CslrError                      an error a user can act on; the program exits with code 2
├── ConfigError                a setting is unknown, out of range, or contradicts another
├── DataError                  a data directory, file, row or label is not what was declared
├── EncoderError               a text encoder cannot be loaded or returned unusable output
├── CacheCorrupted             a cached embedding file does not match its checksum
├── RunDirectoryError          a run directory belongs to another configuration or is damaged
├── SpoolCorrupted             an accepted message on disk is missing or damaged
├── MessageError               a client message is refused; nothing of it is kept
│   ├── MalformedMessage       it does not begin with the prefix of a message
│   ├── UnsupportedVersion     its format version is not supported
│   ├── MessageTooLarge        it announces more bytes than this round allows
│   ├── TruncatedMessage       it ends before the length it announced
│   ├── TrailingBytes          it is longer than the length it announced
│   ├── SenderTooSlow          it did not arrive before the deadline
│   ├── MalformedHeader        its header is not one flat, canonical map
│   ├── UnknownField           its header has a field that does not exist
│   ├── MissingField           its header lacks a field
│   ├── BadField               a field has a value of the wrong type or range
│   ├── BadClientId            the sender's id is not 1 to 64 of A-Z a-z 0-9 _ -
│   ├── WrongDtype             its numbers are not little-endian 64-bit integers
│   ├── WrongShape             it does not have the requested shape
│   ├── UnknownClient          the sender's id is not registered
│   ├── StolenIdentity         the sender's id belongs to another key
│   ├── BadSignature           the signature does not verify with the sender's key
│   ├── WrongFederation        it is for another federation
│   ├── WrongRun               it is for another run
│   ├── WrongKind              it has another kind than the request
│   ├── OldRound               it belongs to a round that is over
│   ├── FutureRound            it belongs to a round that has not begun
│   ├── WrongLabel             it names another release of this round
│   ├── WrongTerms             it was made with another clip, grid, noise or public space
│   ├── OverlongVector         the norm of its vector exceeds the clip
│   ├── AlreadySent            the sender already sent a different message, which is kept
│   └── RoundClosed            the round was closed without it
└── PrivacyError               nothing is released
    ├── BudgetExceeded         the charge would exceed the federation's budget
    ├── PlanChanged            the plan was fixed before the first release and may not change
    ├── SecondLedger           the rows have, or may have, another ledger
    ├── LedgerMoved            the ledger of the rows is not at its recorded location
    ├── SumRefused             a client refuses what a secure sum asks of it
    │   ├── TooFewMembers      fewer clients participate than the terms require
    │   ├── UnknownMember      a request names a client that is not part of the sum
    │   ├── DuplicateMember    a request names a client twice
    │   ├── AliveAndDropped    a client is listed both as surviving and as dropped
    │   ├── MembersChanged     a client of the phase before is left out
    │   ├── NotASurvivor       this client is asked, but not counted as surviving
    │   ├── SplitView          the survivors did not all sign the same set
    │   ├── BadPeerKey         a key is not signed by its owner's pinned identity
    │   ├── OwnKeyChanged      a request shows another key as this client's own
    │   ├── SessionReplayed    a request belongs to a session that is over
    │   ├── OutOfTurn          a request comes before the one that must precede it
    │   ├── SecondRequest      a request was answered already
    │   ├── ForeignShare       a share is not from this peer, for this client and session
    │   ├── TermsDiffer        the server's terms are not the pinned ones
    │   ├── NoiseShareReused   a noise share is asked for in a second session
    │   └── SessionsSpent      as many masked vectors were sent as allowed
    ├── SumAborted             too few clients stayed, or their shares do not fit; repeat it
    ├── SumStateCorrupted      the kept state of a secure sum is damaged
    └── LedgerCorrupted        the ledger's hash chain is broken; no new ledger is started

A wrong argument to a library function is a plain ``ValueError`` that names the argument.
"""

from __future__ import annotations

__all__ = [
    "AliveAndDropped",
    "AlreadySent",
    "BadClientId",
    "BadField",
    "BadPeerKey",
    "BadSignature",
    "BudgetExceeded",
    "CacheCorrupted",
    "ConfigError",
    "CslrError",
    "DataError",
    "DuplicateMember",
    "EncoderError",
    "ForeignShare",
    "FutureRound",
    "LedgerCorrupted",
    "LedgerMoved",
    "MalformedHeader",
    "MalformedMessage",
    "MembersChanged",
    "MessageError",
    "MessageTooLarge",
    "MissingField",
    "NoiseShareReused",
    "NotASurvivor",
    "OldRound",
    "OutOfTurn",
    "OverlongVector",
    "OwnKeyChanged",
    "PlanChanged",
    "PrivacyError",
    "RoundClosed",
    "RunDirectoryError",
    "SecondLedger",
    "SecondRequest",
    "SenderTooSlow",
    "SessionReplayed",
    "SessionsSpent",
    "SplitView",
    "SpoolCorrupted",
    "StolenIdentity",
    "SumAborted",
    "SumRefused",
    "SumStateCorrupted",
    "TermsDiffer",
    "TooFewMembers",
    "TrailingBytes",
    "TruncatedMessage",
    "UnknownClient",
    "UnknownField",
    "UnknownMember",
    "UnsupportedVersion",
    "WrongDtype",
    "WrongFederation",
    "WrongKind",
    "WrongLabel",
    "WrongRun",
    "WrongShape",
    "WrongTerms",
]


class CslrError(Exception):
    """Base class of all errors a user can act on."""

    exit_code = 2


class ConfigError(CslrError):
    """A setting is unknown, out of range, or contradicts another."""


class DataError(CslrError):
    """A data directory, file, row or label is not what was declared."""


class EncoderError(CslrError):
    """A text encoder cannot be loaded or returned unusable output."""


class CacheCorrupted(CslrError):
    """A cached embedding file does not match its checksum."""


class RunDirectoryError(CslrError):
    """A run directory belongs to another configuration or is damaged."""


class SpoolCorrupted(CslrError):
    """An accepted message on disk is missing or damaged; the round cannot continue."""


class MessageError(CslrError):
    """A client message is refused: nothing of it is kept, the round continues without it."""


class MalformedMessage(MessageError):
    """It does not begin with the prefix of a message."""


class UnsupportedVersion(MessageError):
    """Its format version is not supported."""


class MessageTooLarge(MessageError):
    """It announces more bytes than this round allows."""


class TruncatedMessage(MessageError):
    """It ends before the length it announced."""


class TrailingBytes(MessageError):
    """It is longer than the length it announced."""


class SenderTooSlow(MessageError):
    """It did not arrive before the deadline."""


class MalformedHeader(MessageError):
    """Its header is not one flat, canonical map."""


class UnknownField(MessageError):
    """Its header has a field that does not exist."""


class MissingField(MessageError):
    """Its header lacks a field."""


class BadField(MessageError):
    """A field has a value of the wrong type or range."""


class BadClientId(MessageError):
    """The sender's id is not 1 to 64 of A-Z a-z 0-9 _ -."""


class WrongDtype(MessageError):
    """Its numbers are not little-endian 64-bit integers."""


class WrongShape(MessageError):
    """It does not have the requested shape."""


class UnknownClient(MessageError):
    """The sender's id is not registered."""


class StolenIdentity(MessageError):
    """The sender's id belongs to another key."""


class BadSignature(MessageError):
    """The signature does not verify with the sender's key."""


class WrongFederation(MessageError):
    """It is for another federation."""


class WrongRun(MessageError):
    """It is for another run."""


class WrongKind(MessageError):
    """It has another kind than the request."""


class OldRound(MessageError):
    """It belongs to a round that is over."""


class FutureRound(MessageError):
    """It belongs to a round that has not begun."""


class WrongLabel(MessageError):
    """It names another release of this round."""


class WrongTerms(MessageError):
    """It was made with another clip, grid, noise or public space than requested."""


class OverlongVector(MessageError):
    """The norm of its vector exceeds the clip."""


class AlreadySent(MessageError):
    """The sender already sent a different message, which is kept."""


class RoundClosed(MessageError):
    """The round was closed without it."""


class PrivacyError(CslrError):
    """A guarantee could not be kept, so nothing was released."""


class BudgetExceeded(PrivacyError):
    """The charge would exceed the federation's budget."""


class PlanChanged(PrivacyError):
    """The plan was fixed before the first release and may not change."""


class SecondLedger(PrivacyError):
    """The rows have, or may have, another ledger; all their releases must be charged to one."""


class LedgerMoved(PrivacyError):
    """The ledger of the rows is not at its recorded location: it was moved, copied or lost."""


class LedgerCorrupted(PrivacyError):
    """The ledger's hash chain is broken; no new ledger is started."""


class SumRefused(PrivacyError):
    """A client refuses what a secure sum asks of it; it sends nothing."""


class TooFewMembers(SumRefused):
    """Fewer than three clients or than the threshold participate, so the sum would hide none."""


class UnknownMember(SumRefused):
    """A request names a client that is not part of this sum."""


class DuplicateMember(SumRefused):
    """A request names a client twice."""


class AliveAndDropped(SumRefused):
    """A request names one client both as surviving and as dropped."""


class MembersChanged(SumRefused):
    """A request leaves out a client that took part in the phase before."""


class NotASurvivor(SumRefused):
    """This client is asked although the request does not count it as surviving."""


class SplitView(SumRefused):
    """A client signed another set of survivors, or the signature is not its own."""


class BadPeerKey(SumRefused):
    """A key is not signed by the pinned identity of its owner, or is unusable."""


class OwnKeyChanged(SumRefused):
    """A request shows this client another key than the one it sent."""


class SessionReplayed(SumRefused):
    """A request belongs to a session that is over."""


class OutOfTurn(SumRefused):
    """A request comes before the one that must precede it."""


class SecondRequest(SumRefused):
    """A request was answered already; an answer is composed once."""


class ForeignShare(SumRefused):
    """A share was not encrypted by this peer for this client in this session."""


class TermsDiffer(SumRefused):
    """The server asks for other terms than those pinned by this client."""


class NoiseShareReused(SumRefused):
    """A noise share was asked for in a second session."""


class SessionsSpent(SumRefused):
    """The client has sent as many masked vectors as its owner allowed."""


class SumAborted(PrivacyError):
    """A secure sum ended without a result; a new session, with new noise, can be started."""


class SumStateCorrupted(PrivacyError):
    """The kept state of a client in a secure sum is damaged or belongs to other terms."""
