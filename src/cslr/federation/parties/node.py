"""A node: it checks the questions of a round and answers them from its own files.

What protects it is pinned in its own file. It charges its own ledger before a masked vector exists,
remembers which tasks its units contributed to, and composes an answer once: a repeated request gets
the same bytes, after a restart, too. Without rows of the task it sends zeros and noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from cslr.errors import ConfigError, MessageTooLarge, OutOfTurn, TermsDiffer, WrongKind
from cslr.federation.parties.asking import Asked, asked
from cslr.federation.parties.node_files import NodeFiles, SavedAnswer
from cslr.federation.parties.proof import prove
from cslr.federation.parties.question import (
    MOST_AGREEMENT,
    MOST_QUESTION,
    digest_of,
    unframed,
    unpack_agreement,
)
from cslr.federation.parties.result_files import unpack_result
from cslr.federation.simulation import Population
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.cap_memory import CapMemory
from cslr.privacy.ledger.records import EphemeralKeys
from cslr.privacy.mechanism import charge_share
from cslr.privacy.secure_sum import SumClient
from cslr.privacy.secure_sum.codec import SumLimits, decode, encode
from cslr.privacy.secure_sum.messages import (
    ConsentRequest,
    Invitation,
    MaskRequest,
    Request,
    ShareRequest,
    UnmaskRequest,
)
from cslr.privacy.values import Bounded, Summed, bound, plain_sum
from cslr.protocol.agreement import Agreement
from cslr.protocol.evaluation import Graded
from cslr.protocol.messages import answer as answer_to

__all__ = ["ROUTES", "Node"]

ROUTES: Final = ("hello", "agreement", "keys", "shares", "mask", "consent", "unmask", "result")
"""The kinds of question, in the order of a release."""
_KINDS: Final[dict[str, type]] = {
    "keys": Invitation,
    "shares": ShareRequest,
    "mask": MaskRequest,
    "consent": ConsentRequest,
    "unmask": UnmaskRequest,
}

_MOST_RESULT: Final = MOST_AGREEMENT + MOST_QUESTION
_FILES_OF_RESULT: Final = 2**23
"""Bytes allowed for what each file takes besides its content."""

_Answers: TypeAlias = Callable[[], Iterable[Bounded]]
"""Computes the clipped answers of some units."""


def _without_errors(unit: _Answers) -> list[Bounded]:
    """The answers of a unit; none if computing them fails."""
    try:
        return list(unit())
    except Exception:
        return []


def _no_test_rows(head: str) -> Graded:
    nothing = np.zeros(0, dtype=np.int64)
    return Graded(nothing > 0, nothing, nothing)


class Node:
    """One member of a federation. Close it to unlock its ledger."""

    def __init__(self, files: NodeFiles, rows: Callable[[], Population]) -> None:
        """rows: reads this node's own rows, embedded; each client is one unit of privacy."""
        self.files = files
        self.pinned = files.pinned()
        self.charter = self.pinned.charter
        self.plan = self.charter.plan
        if self.pinned.roster is None:
            raise ConfigError(
                f"{files.path} has no roster yet; when all members have joined, pin it with "
                "`cslr federation join --roster FILE`"
            )
        self.terms = self.pinned.roster.terms(self.charter)
        self._saved = files.saved()
        self.client = SumClient(
            self.terms, files.identity(), self.pinned.most_sessions, self._saved.state
        )
        keys = EphemeralKeys(files.path / "keys")
        self.ledger = Ledger.at(files.path / "ledger.jsonl", self.charter.federation, keys)
        self._read_rows = rows
        self.grade: Callable[[str], Graded] = _no_test_rows
        """Grades the head with this SHA-256 on this node's own test rows."""
        self.check_result: Callable[[dict[str, bytes]], None] = lambda files: None
        """Refuses a result that does not fit the charter, before it is kept."""
        self.on_result: Callable[[Path], None] = lambda model: None
        """Called with the folder of a result after it was kept."""

    def close(self) -> None:
        """Unlock the ledger for other processes."""
        self.ledger.close()

    @cached_property
    def population(self) -> Population:
        """This node's rows, read when they are first needed."""
        return self._read_rows()

    @cached_property
    def _cap_memory(self) -> CapMemory:
        charges = self.ledger.charges
        path = self.files.path / "spoken.json"
        return CapMemory.at(path, bool(charges), {charge.task for charge in charges})

    @property
    def agreement(self) -> Agreement:
        """The agreement, once the server has sent it; its digest is the pinned one."""
        if self._agreement is None:
            raise OutOfTurn("the agreement has not been sent to this node")
        return self._agreement

    @cached_property
    def _agreement(self) -> Agreement | None:
        content = self.files.agreement(self.charter.agreement)
        return None if content is None else unpack_agreement(content)

    def answer(self, route: str, body: bytes) -> bytes:
        """The answer to a question. A refusal leaves the node as it was."""
        if route == "hello":
            return prove(self.files.identity(), self.terms, self.client.number, body)
        if route == "agreement":
            return self._take_agreement(body)
        if route == "result":
            return self._take_result(body)
        if route not in _KINDS:
            raise WrongKind(f"there is no question {route!r}; known: {', '.join(ROUTES)}")
        name = hashlib.sha256(route.encode() + b"\0" + body).digest()
        if self._saved.answer and name == self._saved.request:
            return self._saved.answer
        return self._sum_answer(route, body, name)

    # -- the secure sum --------------------------------------------------------------------------

    def _sum_answer(self, route: str, body: bytes, name: bytes) -> bytes:
        question, content = unframed(body) if route == "mask" else (b"", body)
        request = self._decoded(route, content)
        match request:
            case Invitation():
                answer = encode(self.client.join(request))
            case ShareRequest():
                answer = encode(self.client.share(request))
            case MaskRequest():
                return self._masked(question, request, name)
            case ConsentRequest():
                answer = encode(self.client.consent(request))
            case UnmaskRequest():
                answer = encode(self.client.unmask(request))
        self._keep(name, answer)
        return answer

    def _masked(self, question: bytes, request: MaskRequest, name: bytes) -> bytes:
        """The sum of this node's units with its noise share, under masks; charged before that."""
        understood = asked(question, self.charter, self.agreement)
        self.client.check_mask(request, understood.release)
        self.ledger.fix_plan(self.plan, {"charter": self.charter.digest})
        own = self._own_sum(understood)
        key = charge_share(own, understood.charge, self.ledger)
        answer = encode(self.client.mask(request, understood.release, own, key))
        self._keep(name, answer)
        self.ledger.settle(understood.ask.label, digest_of(answer))
        return answer

    def _own_sum(self, understood: Asked) -> Summed:
        """The sum of this node's units, each clipped; zeros if none has rows of the task.

        An error reply would reveal something about rows, without noise and without a charge. So
        zeros are sent instead: for the units whose answer fails, or for all if nothing is left.
        """
        ask = understood.ask
        answers, one_by_one = self._asked_units(understood)
        try:
            return plain_sum(answers())
        except Exception as error:  # any error may depend on rows
            self.files.log(f"mask: {ask.label}: zeros in place of an answer, because of {error!r}")
            computed = [each for unit in one_by_one for each in _without_errors(unit)]
            zeros = np.zeros((1, understood.release.coordinates))
            return plain_sum(computed or [bound(zeros, ask.grid)])

    def _asked_units(self, understood: Asked) -> tuple[_Answers, Iterator[_Answers]]:
        """The answers of all units asked together, and of each alone; the cap memory is updated."""
        ask = understood.ask
        if ask.kind == "evaluation":
            return lambda: [answer_to(self.grade(understood.head), ask)], iter(())
        population = self.population
        everybody = np.ones(population.count, dtype=np.bool_)
        cohort = population.cohort(
            understood.task, everybody, self.plan.cap, self._cap_memory, alone=True
        )
        units = np.flatnonzero(cohort.taking_part)
        alone = (replace(cohort, taking_part=np.arange(population.count) == unit) for unit in units)
        return partial(cohort.answers, ask), (partial(each.answers, ask) for each in alone)

    def _decoded(self, route: str, content: bytes) -> Request:
        limits = SumLimits(len(self.terms.identities), self.charter.coordinates)
        request = decode(content, limits)
        if not isinstance(request, Request) or not isinstance(request, _KINDS[route]):
            raise WrongKind(f"a {type(request).__name__} is no question of kind {route!r}")
        return request

    def _keep(self, name: bytes, answer: bytes) -> None:
        """Write state and answer to disk, before the answer is sent."""
        saved = SavedAnswer(self.client.state(), name, answer)
        self.files.save(saved)
        self._saved = saved

    # -- what is sent to nodes -------------------------------------------------------------------

    def _take_agreement(self, body: bytes) -> bytes:
        """Keep the agreement if it is the pinned one; an empty body asks whether it is there."""
        if body:
            if len(body) > MOST_AGREEMENT:
                raise MessageTooLarge(f"{len(body)} bytes are more than {MOST_AGREEMENT}")
            if digest_of(body) != self.charter.agreement:
                raise TermsDiffer("the server sent another agreement than the pinned one")
            unpack_agreement(body)
            self.files.keep_agreement(body)
            self.__dict__.pop("_agreement", None)
        return b"\1" if self._agreement is not None else b"\0"

    def _take_result(self, body: bytes) -> bytes:
        """Keep the released values and the model, for `cslr predict`."""
        if len(body) > _MOST_RESULT:
            raise MessageTooLarge(f"{len(body)} bytes are more than a result may have")
        files = unpack_result(body)
        self.check_result(files)
        self.files.keep_result(files, _MOST_RESULT + _FILES_OF_RESULT)
        self.on_result(self.files.model)
        return b"\1"
