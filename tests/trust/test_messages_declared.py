"""What really leaves clients, recorded: every method sends declared messages, and pays for all.

Recorded are every bounded payload and the function that made it, every sum and whether somebody
opened it, every charge with a fingerprint of what it pays for, and who read the rows of clients.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from types import FrameType
from typing import Any

import numpy as np
import pytest

from cslr.federation.simulation import Population, SimulatedCohort
from cslr.methods.method import MethodContext
from cslr.methods.registry import METHODS
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.records import tag_for_sum
from cslr.privacy.values import _SEAL, Bounded, Grid, Summed
from cslr.protocol.messages import ANSWERS, MESSAGES, messages_of
from cslr.protocol.ports import Ask, Examples

EPSILON = 4.0
FINGERPRINT = bytes(32)  # a key known to all: equal payloads are recognised under any label
PRIVATE = [name for name, method in METHODS.items() if method.reads == "privately"]
VARIANTS: dict[str, tuple[str, dict[str, object], dict[str, object]]] = {
    **{name: (name, {}, {}) for name in PRIVATE},
    "cslr, noised head": ("cslr", {"kind": "dp-fedavg"}, {}),
    "cslr, open head": ("cslr", {"kind": "federated"}, {}),
    "cslr, lists": ("cslr", {}, {"release": "list", "list_size": 2}),
    "cslr, votes": ("cslr", {}, {"release": "select"}),
    "cslr-paper, noised head": ("cslr-paper", {"kind": "dp-fedavg"}, {}),
}
ROWS = {"z", "labels", "targets", "kinds"}
QUESTIONS = {f"cslr.federation.simulation.SimulatedCohort.{name}" for name in ("total", "each")}
READERS = {
    # On behalf of devices: what a cohort is asked.
    *QUESTIONS,
    # How many rows there are and how wide, which no message carries.
    "cslr.federation.simulation.Population.held",
    "cslr.methods.method.MethodContext.initial_head",
    # A measurement of studies against true modes; never made where privacy is enforced.
    "cslr.methods.alignment.align",
    # The trusted curator of simulations, who regroups rows before the cohort is asked.
    "cslr.methods.dp_joint._everybody",
}


def dotted(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_qualname}"


def callers() -> Iterator[str]:
    """Functions of the package on the stack, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("cslr."):
            yield dotted(frame)
        frame = frame.f_back


def reader(stack: list[str]) -> str:
    """Who reads rows: a question to a cohort, else the innermost that is no part of the engine."""
    if stack and stack[0].endswith("Population.held"):
        return stack[0]
    asked = [one for one in stack if one in QUESTIONS]
    others = [one for one in stack if not one.startswith("cslr.federation.simulation.")]
    return next(iter([*asked, *others]), "outside")


@dataclass
class Record:
    """What happened in one run."""

    made_by: Counter[str] = field(default_factory=Counter)
    asked: list[str] = field(default_factory=list)
    sums: dict[str, Summed] = field(default_factory=dict)
    opened: Counter[str] = field(default_factory=Counter)
    charged: list[tuple[Charge, str]] = field(default_factory=list)
    readers: set[str] = field(default_factory=set)


class Watched(Population):
    """A population that notes who reads its rows."""

    record: Record | None = None

    def __getattribute__(self, name: str) -> object:
        if name in ROWS and Watched.record is not None:
            Watched.record.readers.add(reader(list(callers())))
        return super().__getattribute__(name)


@contextmanager
def recording() -> Iterator[Record]:
    """Instruments in every place where something can leave a client or be paid for."""
    noted = Record()
    makers = {message.made_by for message in MESSAGES}
    bounded, summed, total = Bounded.__init__, Summed.__init__, Summed.total
    charge = Ledger.charge

    def make_bounded(self: Bounded, *args: object) -> None:
        bounded(self, *args)
        chain = [one for one in callers() if not one.startswith("cslr.privacy.")]
        noted.made_by[next((one for one in chain if one in makers), chain[0])] += 1

    def make_summed(self: Summed, *args: object) -> None:
        summed(self, *args)
        noted.sums[tag_for_sum(FINGERPRINT, total(self, _SEAL))] = self

    def open_sum(self: Summed, seal: object) -> np.ndarray:
        found = total(self, seal)
        noted.opened[tag_for_sum(FINGERPRINT, found)] += 1
        return found

    def pay(self: Ledger, cost: Charge, tag_of: Callable[[bytes], str], *more: object) -> object:
        noted.charged.append((cost, tag_of(FINGERPRINT)))
        return charge(self, cost, tag_of, *more)

    def asking(question: str) -> Callable[..., object]:
        original = getattr(SimulatedCohort, question)

        def asked(self: SimulatedCohort, ask: Ask[Any]) -> object:
            function = ANSWERS[ask.kind]
            noted.asked.append(f"{function.__module__}.{function.__qualname__}")
            return original(self, ask)

        return asked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bounded, "__init__", make_bounded)
        patch.setattr(Summed, "__init__", make_summed)
        patch.setattr(Summed, "total", open_sum)
        patch.setattr(Ledger, "charge", pay)
        for question in ("total", "each"):
            patch.setattr(SimulatedCohort, question, asking(question))
        yield noted
    Watched.record = None


def run(record: Record, context: MethodContext, method: str) -> MethodContext:
    """Every stage of a method, its rows watched from its first line to its last."""
    people = context.clients
    watched = Watched(**{each.name: getattr(people, each.name) for each in fields(Population)})
    context = replace(context, clients=watched)
    Watched.record = record
    for stage in METHODS[method].stages(context):
        stage()
    Watched.record = None
    return context


@pytest.fixture
def prepared(make_context_with, make_drawer) -> Callable[[str], MethodContext]:
    def prepare(name: str) -> MethodContext:
        method, head, replay = VARIANTS[name]
        given = {"method": method, "head": {"rounds": 2, **head}, "q": 0.5, **replay}
        return make_context_with(make_drawer(), epsilon=EPSILON, **given)

    return prepare


def check(record: Record, ledger: Ledger) -> None:
    makers = {message.made_by for message in MESSAGES}
    # Every payload comes from a declared function, and so does every question to a cohort.
    assert record.made_by
    assert set(record.made_by) <= makers
    assert set(record.asked) <= makers
    # Rows are read on behalf of devices alone.
    assert record.readers <= READERS
    # Every charge is for a declared message, made by a function that was seen to make one.
    kinds = [messages_of(charge) for charge, _ in record.charged]
    assert all({each.made_by for each in found} & set(record.made_by) for found in kinds)
    assert set(record.made_by) <= {each.made_by for found in kinds for each in found}
    # Every sum was opened once, by who paid for that very sum; nothing is released that is not
    # charged, and no payload is charged less often than it was released.
    paid = Counter(tag for _, tag in record.charged)
    assert set(record.opened) == set(record.sums)
    assert record.opened.total() <= sum(paid[tag] for tag in record.opened)
    assert len(ledger.charges) == len(record.charged) >= len(paid)
    # All of it within the promise, in the scope for which it was made.
    budget = ledger.federation.budget
    assert 0.99 * EPSILON <= ledger.epsilon(budget.scope, budget.adversary) <= EPSILON + 1e-9


@pytest.mark.trust
def test_every_message_is_declared_and_paid_for(prepared, card):
    charges = payloads = 0
    for name, (method, _, _) in VARIANTS.items():
        with recording() as record:
            context = run(record, prepared(name), method)
            check(record, context.ledger)
        charges += len(record.charged)
        payloads += len({tag for _, tag in record.charged})
    figure = f"{payloads} payloads, {charges} charges, {len(VARIANTS)} methods and variants"
    card("messages declared and charged", "all, charges ≥ payloads, ≤ ε", figure, True)


def test_the_record_notices_what_was_not_declared_or_paid(prepared):
    """The instrument itself: a sum opened without a charge, and rows read on the side, show."""
    with recording() as record:
        context = run(record, prepared("dp-class-stats"), "dp-class-stats")
        check(record, context.ledger)
        paid = {tag for _, tag in record.charged}
        ask = Ask("on the side", "update", Everything(), Grid(1.0))
        context.cohort(0).total(ask).total(_SEAL)
        assert not set(record.opened) <= paid
        assert any("update_of" in one for one in record.asked)
        Watched.record = record
        _ = context.clients.z[:1]
        assert "outside" in record.readers
        with pytest.raises(AssertionError, match="outside"):
            check(record, context.ledger)


class Everything:
    """Training that sends the same vector whatever a client holds."""

    def updates(self, examples: Examples) -> np.ndarray:
        return np.ones((len(examples.clients), 3))
