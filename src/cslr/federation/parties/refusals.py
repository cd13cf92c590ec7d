"""The fixed codes that a node answers errors with.

A text could reveal rows, paths or names. The server gets a code only, for what was wrong with its
own message or with the charter, which it knows anyway. All other errors have the code ``FAILED``.
"""

from __future__ import annotations

from typing import Final

from cslr.errors import (
    BudgetExceeded,
    CslrError,
    MessageError,
    OutOfTurn,
    SecondRequest,
    SessionReplayed,
    SessionsSpent,
    SumRefused,
    TermsDiffer,
    TooFewMembers,
)

__all__ = ["CODES", "FAILED", "code_of", "meaning_of"]

FAILED: Final = 1
"""Any error that is not named below. What happened is in the node's own log."""
CODES: Final[dict[type[CslrError], tuple[int, str]]] = {
    SessionsSpent: (10, "the node sent as many masked vectors as its owner allowed"),
    BudgetExceeded: (11, "the node's privacy budget is spent"),
    TermsDiffer: (12, "the node pinned other terms"),
    SessionReplayed: (13, "the session is over for this node"),
    SecondRequest: (14, "the node answered this phase already"),
    OutOfTurn: (15, "the node has not come as far as this request"),
    TooFewMembers: (16, "too few members for this node"),
    SumRefused: (20, "the node refused a request that is not the protocol"),
    MessageError: (21, "the node could not read the message"),
}


def code_of(error: BaseException) -> int:
    """The code of an error: that of the first class above that it belongs to."""
    for kind, (code, _) in CODES.items():
        if isinstance(error, kind):
            return code
    return FAILED


def meaning_of(code: int) -> str:
    """For the server's screen."""
    known = dict(CODES.values())
    return known.get(code, "the node failed; its own log says why")
