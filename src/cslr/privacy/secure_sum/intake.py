"""What the server checks in an answer. A failed check raises a ``MessageError``."""

from __future__ import annotations

from collections.abc import Sequence

from cslr.errors import BadField, BadSignature, FutureRound, OldRound, WrongShape
from cslr.privacy.secure_sum.codec import unsigned
from cslr.privacy.secure_sum.masks import body_digest, verifies
from cslr.privacy.secure_sum.messages import Answer, Keys, Shares, Unmasked
from cslr.privacy.secure_sum.terms import SumTerms

__all__ = ["check_current", "check_following", "check_shares", "check_signature"]


def check_signature(answer: Answer, terms: SumTerms) -> bytes:
    """Check that the sender signed these very bytes under these terms; returns their digest."""
    public, digest = terms.identities[answer.sender], body_digest(unsigned(answer))
    if not verifies(public, answer.signature, terms.digest, digest):
        raise BadSignature(f"the signature is not that of member {answer.sender}")
    return digest


def check_current(answer: Answer, epoch: int, session: int) -> None:
    """Check that it belongs to the current epoch or session."""
    now = epoch if isinstance(answer, Keys) else session
    theirs = answer.epoch if isinstance(answer, Keys) else answer.session
    if theirs < now:
        raise OldRound(f"an answer to session {theirs}; {now} is going on")
    if theirs > now:
        raise FutureRound(f"an answer to session {theirs}; {now} is going on")


def check_shares(shares: Shares, session: int, members: Sequence[int]) -> None:
    """Check that there is one sealed share for each other member."""
    if shares.session != session:
        raise OldRound(f"shares for session {shares.session} instead of {session}")
    if len(shares.sealed) != len(members) - 1:
        raise WrongShape(f"{len(shares.sealed)} sealed shares for {len(members) - 1} members")


def check_following(shares: Shares, answer: Unmasked, members: Sequence[int]) -> None:
    """Check that the next session's shares are those of the member that sends them."""
    if shares.sender != answer.sender:
        raise BadField(f"member {answer.sender} sends shares of member {shares.sender}")
    check_shares(shares, answer.session + 1, members)
