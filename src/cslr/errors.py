"""What can go wrong, as a tree. Every leaf says what to do about it.

CslrError                      anything a user can act on; the program exits with code 2
├── ConfigError                a setting is unknown, out of range, or contradicts another
├── DataError                  a data directory, file, row or label is not what was declared
├── EncoderError               a text encoder cannot be had or gave something unusable
├── CacheCorrupted             a cached embedding file does not match its own name
├── RunDirectoryError          a run directory belongs to another configuration or is damaged
├── SpoolCorrupted             a message that was accepted before is not on disk as it was
├── MessageError               a message of a client is refused; nothing of it is kept
│   ├── MalformedMessage       it does not begin as a message does
│   ├── UnsupportedVersion     it is written in a format this program does not read
│   ├── MessageTooLarge        it announces more bytes than this round has use for
│   ├── TruncatedMessage       it ends before the length it announced
│   ├── TrailingBytes          something follows after the length it announced
│   ├── SenderTooSlow          it did not arrive before the deadline
│   ├── MalformedHeader        its header is not one flat, canonical map
│   ├── UnknownField           its header has a field that does not exist
│   ├── MissingField           its header lacks a field
│   ├── BadField               a field has a value of the wrong type or range
│   ├── BadClientId            the sender's id is not 1 to 64 of A-Z a-z 0-9 _ -
│   ├── WrongDtype             its numbers are not little-endian 64-bit integers
│   ├── WrongShape             it has not the one row of coordinates that was asked for
│   ├── UnknownClient          nobody is registered under the sender's id
│   ├── StolenIdentity         the sender's id belongs to another key
│   ├── BadSignature           the signature is not the sender's
│   ├── WrongFederation        it was written for another federation
│   ├── WrongRun               it was written for another run
│   ├── WrongKind              it answers another kind of question
│   ├── OldRound               it belongs to a round that is over
│   ├── FutureRound            it belongs to a round that has not begun
│   ├── WrongLabel             it names another release of this round
│   ├── WrongTerms             it was made under another bound, grid or public space
│   ├── OverlongVector         its vector is longer than one client may move the result
│   ├── AlreadySent            the sender sent something else before, which stays
│   └── RoundClosed            the round was closed without it
└── PrivacyError               nothing is released
    ├── BudgetExceeded         the charge would exceed the federation's budget
    ├── PlanChanged            the plan was fixed before the first release and may not change
    ├── SecondLedger           the rows have, or may have, a ledger elsewhere: one file, one ledger
    ├── LedgerMoved            the ledger of the rows is not where it was written
    └── LedgerCorrupted        the ledger's chain is broken; it is never started anew

A wrong argument to a library function is a plain ``ValueError`` that names the argument.
"""

from __future__ import annotations

__all__ = [
    "AlreadySent",
    "BadClientId",
    "BadField",
    "BadSignature",
    "BudgetExceeded",
    "CacheCorrupted",
    "ConfigError",
    "CslrError",
    "DataError",
    "EncoderError",
    "FutureRound",
    "LedgerCorrupted",
    "LedgerMoved",
    "MalformedHeader",
    "MalformedMessage",
    "MessageError",
    "MessageTooLarge",
    "MissingField",
    "OldRound",
    "OverlongVector",
    "PlanChanged",
    "PrivacyError",
    "RoundClosed",
    "RunDirectoryError",
    "SecondLedger",
    "SenderTooSlow",
    "SpoolCorrupted",
    "StolenIdentity",
    "TrailingBytes",
    "TruncatedMessage",
    "UnknownClient",
    "UnknownField",
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
    """Base of everything a user can act on."""

    exit_code = 2


class ConfigError(CslrError):
    """A setting is unknown, out of range, or contradicts another."""


class DataError(CslrError):
    """A data directory, file, row or label is not what was declared."""


class EncoderError(CslrError):
    """A text encoder cannot be had or gave something unusable."""


class CacheCorrupted(CslrError):
    """A cached embedding file does not match its own name."""


class RunDirectoryError(CslrError):
    """A run directory belongs to another configuration or is damaged."""


class SpoolCorrupted(CslrError):
    """A message that was accepted before is not on disk as it was; the round cannot go on."""


class MessageError(CslrError):
    """A message of a client is refused: nothing of it is kept, the round goes on without it."""


class MalformedMessage(MessageError):
    """It does not begin as a message does."""


class UnsupportedVersion(MessageError):
    """It is written in a format this program does not read."""


class MessageTooLarge(MessageError):
    """It announces more bytes than this round has use for."""


class TruncatedMessage(MessageError):
    """It ends before the length it announced."""


class TrailingBytes(MessageError):
    """Something follows after the length it announced."""


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
    """It has not the one row of coordinates that was asked for."""


class UnknownClient(MessageError):
    """Nobody is registered under the sender's id."""


class StolenIdentity(MessageError):
    """The sender's id belongs to another key."""


class BadSignature(MessageError):
    """The signature is not the sender's."""


class WrongFederation(MessageError):
    """It was written for another federation."""


class WrongRun(MessageError):
    """It was written for another run."""


class WrongKind(MessageError):
    """It answers another kind of question."""


class OldRound(MessageError):
    """It belongs to a round that is over."""


class FutureRound(MessageError):
    """It belongs to a round that has not begun."""


class WrongLabel(MessageError):
    """It names another release of this round."""


class WrongTerms(MessageError):
    """It was made under another bound, grid, noise or public space than was asked for."""


class OverlongVector(MessageError):
    """Its vector is longer than one client may move the result."""


class AlreadySent(MessageError):
    """The sender sent something else before, which stays."""


class RoundClosed(MessageError):
    """The round was closed without it."""


class PrivacyError(CslrError):
    """A guarantee could not be kept, so nothing was released."""


class BudgetExceeded(PrivacyError):
    """The charge would exceed the federation's budget."""


class PlanChanged(PrivacyError):
    """The plan was fixed before the first release and may not change."""


class SecondLedger(PrivacyError):
    """The rows have, or may have, a ledger elsewhere; what they cost adds up in one."""


class LedgerMoved(PrivacyError):
    """The ledger of the rows is not where it was written: it was moved, copied or lost."""


class LedgerCorrupted(PrivacyError):
    """The ledger's chain is broken; it is never started anew."""
