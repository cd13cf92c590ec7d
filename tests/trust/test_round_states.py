"""Rounds as a machine: clients join, send, drop, repeat and lie while the server crashes at will.

Whatever the order, the round closes with the integer sum of what was honestly acknowledged: each
answer once, nothing hostile at all.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cslr.errors import (
    AlreadySent,
    BadSignature,
    FutureRound,
    MessageError,
    OldRound,
    OverlongVector,
    RoundClosed,
    StolenIdentity,
    UnknownClient,
    WrongRun,
    WrongShape,
)
from cslr.federation.wire.codec import Question
from cslr.federation.wire.expected import Expected
from cslr.federation.wire.identity import Identity
from cslr.federation.wire.inbox import Inbox, Register
from cslr.federation.wire.terms import terms_of
from cslr.privacy.values import _SEAL, Grid

IN_WORDS = r"\w+ \w+"  # every refusal says why
WIDTH, GRID, SPACE = 3, Grid(1.0), "the digest of a public space"
TERMS = terms_of(GRID, SPACE)
CLIENTS = [f"client-{i}" for i in range(5)]
who = st.sampled_from(CLIENTS)
numbers = st.lists(st.integers(-600_000, 600_000), min_size=WIDTH, max_size=WIDTH)
short = st.lists(st.integers(-500_000, 500_000), min_size=WIDTH, max_size=WIDTH)


def identity(client: str, salt: bytes = b".") -> Identity:
    return Identity(client, Ed25519PrivateKey.from_private_bytes(client.encode().ljust(32, salt)))


class Rounds(RuleBasedStateMachine):
    """A server on a disk, five clients with keys, and a model of what must have been counted."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="cslr-rounds-"))
        self.people = {client: identity(client) for client in CLIENTS}
        self.thief = identity("client-0", b"!")
        self.register = Register("clinics", "run 1", frozenset(CLIENTS), self.place / "joins")
        self.joined: dict[str, bytes] = {}
        self.round = 0
        self.inbox: Inbox | None = None
        # The model: what was acknowledged, what each client keeps to send again, what was lost.
        self.counted: dict[str, np.ndarray] = {}
        self.kept: dict[str, bytes] = {}
        self.old: list[bytes] = []

    def teardown(self) -> None:
        shutil.rmtree(self.place)

    # -- registration ------------------------------------------------------------------------------

    @precondition(lambda self: not self.register.closed)
    @rule(client=who)
    def join(self, client):
        if client in self.joined:
            assert self.register.accept(self.joined[client]) == "repeated"
            with pytest.raises(AlreadySent, match="already sent a different"):
                self.register.accept(self.people[client].join("clinics", "run 1"))
        else:
            data = self.people[client].join("clinics", "run 1")
            assert self.register.accept(data) == "accepted"
            self.joined[client] = data

    @precondition(lambda self: not self.register.closed and "client-0" in self.joined)
    @rule()
    def somebody_joins_under_a_name_that_is_taken(self):
        with pytest.raises(StolenIdentity, match="registered with another key"):
            self.register.accept(self.thief.join("clinics", "run 1"))

    @precondition(lambda self: len(self.joined) >= 2 and self.inbox is None)
    @rule()
    def the_next_round_begins(self):
        self.register.close()
        self.round += 1
        self.counted, self.kept = {}, {}
        self.open()

    @property
    def asked(self) -> Question:
        return Question("clinics", "run 1", self.round, f"task {self.round}", "sum", TERMS)

    def open(self) -> None:
        directory = self.place / f"round {self.round}"
        self.inbox = Inbox(Expected(self.asked, WIDTH, GRID, SPACE), self.register.keys, directory)

    # -- what clients do ---------------------------------------------------------------------------

    running = precondition(lambda self: self.inbox is not None)

    @running
    @rule(client=who, row=numbers)
    def send(self, client, row):
        rows = np.array([row], dtype=np.int64)
        data = self.people[client].answer(self.asked, rows)
        if client not in self.joined:
            error = UnknownClient
        elif sum(value * value for value in row) > GRID.steps**2:
            error = OverlongVector
        elif client in self.kept:
            error = AlreadySent
        else:
            assert self.inbox.accept(data) == "accepted"
            self.counted[client], self.kept[client] = rows[0], data
            return
        with pytest.raises(error, match=IN_WORDS):
            self.inbox.accept(data)

    @running
    @rule(client=who)
    def send_again(self, client):
        if client in self.kept:
            assert self.inbox.accept(self.kept[client]) == "repeated"

    @running
    @rule(client=who, share=st.floats(0.0, 0.999))
    def drop_in_mid_message(self, client, share):
        data = self.people[client].answer(self.asked, np.ones((1, WIDTH), dtype=np.int64))
        with pytest.raises(MessageError, match=IN_WORDS):
            self.inbox.accept(data[: int(share * len(data))])

    @running
    @rule(client=who, place=st.integers(0, 10**6), bit=st.integers(0, 7))
    def a_bit_flips_on_the_way(self, client, place, bit):
        data = bytearray(
            self.people[client].answer(self.asked, np.ones((1, WIDTH), dtype=np.int64))
        )
        data[place % len(data)] ^= 1 << bit
        with pytest.raises(MessageError, match=IN_WORDS):
            self.inbox.accept(bytes(data))

    @running
    @rule(lie=st.sampled_from(["id", "run", "future", "shape", "signature", "length"]))
    def lie(self, lie):
        rows, asked = np.ones((1, WIDTH), dtype=np.int64), self.asked
        liar = self.people[min(self.joined)]
        data, error = {
            "id": (identity(liar.client, b"!").answer(asked, rows), StolenIdentity),
            "run": (liar.answer(Question("clinics", "run 2", *other(asked)), rows), WrongRun),
            "future": (
                liar.answer(Question("clinics", "run 1", self.round + 1, "x", "sum", TERMS), rows),
                FutureRound,
            ),
            "shape": (liar.answer(asked, rows[:, :-1]), WrongShape),
            "signature": (liar.answer(asked, rows)[:-64] + bytes(64), BadSignature),
            "length": (liar.answer(asked, rows * 2**32), OverlongVector),
        }[lie]
        with pytest.raises(error, match=IN_WORDS):
            self.inbox.accept(data)

    @precondition(lambda self: self.inbox is not None and self.old)
    @rule(data=st.data())
    def replay_an_old_round(self, data):
        with pytest.raises(OldRound, match="is over"):
            self.inbox.accept(data.draw(st.sampled_from(self.old)))

    # -- what happens to the server ----------------------------------------------------------------

    @running
    @rule()
    def crash_and_resume(self):
        self.register = Register("clinics", "run 1", frozenset(CLIENTS), self.place / "joins")
        self.open()

    @running
    @rule(
        client=who,
        row=numbers.filter(lambda row: max(map(abs, row)) < 500_000),
        whole=st.booleans(),
    )
    def crash_before_the_acknowledgement(self, client, row, whole):
        """The message may be on disk, or half of it; the client heard nothing and sends again."""
        if client not in self.joined or client in self.kept:
            return
        rows = np.array([row], dtype=np.int64)
        data = self.people[client].answer(self.asked, rows)
        name = f"{client.encode().hex()}.msg"
        directory = self.place / f"round {self.round}"
        directory.mkdir(exist_ok=True)
        if whole:
            (directory / name).write_bytes(data)
        else:
            (directory / f".{name}.0.part").write_bytes(data[: len(data) // 2])
        self.crash_and_resume()
        assert self.inbox.accept(data) == ("repeated" if whole else "accepted")
        self.counted[client], self.kept[client] = rows[0], data

    @running
    @rule(crash=st.booleans())
    def the_round_closes(self, crash):
        expected = sum(self.counted.values(), np.zeros(WIDTH, dtype=np.int64))
        np.testing.assert_array_equal(self.inbox.close().total(_SEAL), expected)
        if crash:
            self.open()
            np.testing.assert_array_equal(self.inbox.close().total(_SEAL), expected)
        late = sorted(set(self.joined) - set(self.kept))
        if late:
            rows = np.ones((1, WIDTH), dtype=np.int64)
            with pytest.raises(RoundClosed, match="after the round was closed"):
                self.inbox.accept(self.people[late[0]].answer(self.asked, rows))
        np.testing.assert_array_equal(self.inbox.close().total(_SEAL), expected)
        self.old += self.kept.values()
        self.inbox = None

    @invariant()
    def who_counts_is_who_was_acknowledged(self):
        assert set(self.register.keys) == set(self.joined)
        if self.inbox is not None:
            assert self.inbox.received == tuple(sorted(self.counted))


def other(question: Question) -> tuple[int, str, str, bytes]:
    return question.round, question.label, question.kind, question.terms


QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much]


def run(examples: int, steps: int) -> None:
    plan = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=QUIET,
    )
    run_state_machine_as_test(Rounds, settings=plan)


def test_every_honest_answer_counts_exactly_once_whatever_happens():
    run(examples=12, steps=25)


@pytest.mark.trust
def test_every_honest_answer_counts_exactly_once_in_long_histories(card):
    run(examples=120, steps=60)
    card("rounds under crashes and lies", "sum of the honest", "120 histories × 60 steps", True)
