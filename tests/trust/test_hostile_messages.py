"""Hostile clients: each move × each kind of message is refused by its name, and changes nothing.

Mallory is registered and signs what she sends, unless the case says otherwise: what stops her is
never the signature alone. The round closes with the very bytes it would have had without her.
"""

from __future__ import annotations

import os
import pickle
import struct
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import msgpack
import numpy as np
import pytest

from cslr import errors as e
from cslr.federation.wire.codec import (
    KINDS,
    PREFIX_BYTES,
    SIGNATURE_BYTES,
    VERSION,
    Limits,
    Question,
    fingerprint,
)
from cslr.federation.wire.expected import Expected
from cslr.federation.wire.identity import Identity, key_rows, registration
from cslr.federation.wire.inbox import Inbox, Register
from cslr.federation.wire.receive import read_message
from cslr.federation.wire.terms import terms_of
from cslr.privacy.values import _SEAL, Grid

GRID = Grid(0.5)
SPACE = "the digest of a public space"
MALLORY, ALICE, *OTHERS = (Identity.new(name) for name in ("mallory", "alice", "bob", "carol"))
KEYS = {person.client: person.public for person in (MALLORY, ALICE, *OTHERS)}
LABELS = {
    "sum": "task 2",
    "block": "task 2 means",
    "list": "task 2 list",
    "update": "task 2 update 7",
}


@dataclass(frozen=True)
class Stage:
    """One open round of a kind, with Alice's answer in it already."""

    kind: str
    box: Inbox | Register
    asked: Question
    width: int
    first: bytes  # Alice's

    def rows(self, person: Identity, seed: int = 0) -> np.ndarray:
        if self.kind == "join":
            return key_rows(person.public)
        rng = np.random.default_rng([seed, *person.client.encode()])
        return rng.integers(-(2**15), 2**15, size=(1, self.width))

    def answer(self, person: Identity, seed: int = 0, question: Question | None = None) -> bytes:
        return person.answer(question or self.asked, self.rows(person, seed))

    @property
    def limits(self):
        return Limits(body=8 * self.width)

    @property
    def fields(self) -> dict[str, object]:
        """Of a header with which Mallory's message would be accepted."""
        data = self.answer(MALLORY)
        return msgpack.unpackb(data[PREFIX_BYTES : -SIGNATURE_BYTES - 8 * self.width])

    def forged(self, body=None, by=MALLORY, head=None, format_=VERSION, **fields) -> bytes:
        """Any header and body, in an envelope that fits them, signed."""
        body = self.rows(MALLORY).tobytes() if body is None else body
        if head is None:
            head = msgpack.packb(
                {
                    name: value
                    for name, value in {**self.fields, **fields}.items()
                    if value is not ...
                }
            )
        signed = struct.pack("<4sHII", b"CSLR", format_, len(head), len(body)) + head + body
        return signed + by.key.sign(signed)

    def end(self) -> bytes:
        """The others answer, the round closes: its result, byte for byte."""
        for person in OTHERS:
            self.box.accept(self.answer(person))
        if isinstance(self.box, Register):
            return repr(sorted(self.box.close().items())).encode()
        if self.kind == "list":
            return b"".join(row.tobytes() for row in self.box.close_lists().values())
        return self.box.close().total(_SEAL).tobytes()


def staged(kind: str, directory: Path | None = None) -> Stage:
    if kind == "join":
        asked, width = registration("clinics", "run 1"), 4
        box = Register("clinics", "run 1", frozenset(KEYS), directory)
    else:
        sigma, width = 1.5 if kind == "list" else None, 12
        terms = terms_of(GRID, SPACE, sigma)
        asked = Question("clinics", "run 1", 5, LABELS[kind], kind, terms)
        box = Inbox(Expected(asked, width, GRID, SPACE, sigma), KEYS, directory)
    stage = Stage(kind, box, asked, width, b"")
    stage = replace(stage, first=stage.answer(ALICE))
    box.accept(stage.first)
    return stage


# -- the moves -------------------------------------------------------------------------------------

Move = Callable[[Stage], bytes]
CASES: dict[str, tuple[type[e.MessageError], type[e.MessageError], Move]] = {}
"""Name -> the error for an answer, the error for a join, the message."""


def case(name, error, move, join=None):
    assert name not in CASES
    CASES[name] = (error, join or error, move)


def flipped(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


def full(value) -> Move:
    """The same 64 bits in every coordinate; a join has no other body than its key."""
    return lambda s: s.forged(
        struct.pack("<d" if isinstance(value, float) else "<q", value) * s.width
    )


BITS = {
    "NaN": np.nan, "+inf": np.inf, "-inf": -np.inf, "minus zero": -0.0, "1e308": 1e308,
    "a thousand bounds": 1000 * GRID.steps, "more than noise explains": 2**27,
    "squares that wrap": 2**32, "largest integer": 2**63 - 1, "smallest integer": -(2**63),
}  # fmt: skip
for name, value in BITS.items():
    case(f"{name} as raw bits", e.OverlongVector, full(value), join=e.StolenIdentity)
for dtype in ("<f8", "<f2", "<f4", "<i4", "<u8", "|b1", "<c16", "|O", ">i8", "i8", "<M8[s]"):
    case(f"dtype {dtype}", e.WrongDtype, lambda s, dtype=dtype: s.forged(dtype=dtype))
case(
    "a denormal float",
    e.WrongDtype,
    lambda s: s.forged(struct.pack("<d", 5e-324) * s.width, dtype="<f8"),
)
case("dtype missing its type", e.BadField, lambda s: s.forged(dtype=8))

case("rank one", e.WrongShape, lambda s: s.forged(shape=[s.width]))
case("rank three", e.WrongShape, lambda s: s.forged(shape=[1, 1, s.width]))
case("rank nine", e.MalformedHeader, lambda s: s.forged(shape=[1] * 8 + [s.width]))
case("no shape at all", e.WrongShape, lambda s: s.forged(shape=None))
case("a negative shape", e.WrongShape, lambda s: s.forged(shape=[-1, -s.width]))
case("a shape in floats", e.WrongShape, lambda s: s.forged(shape=[1.0, float(s.width)]))
case("a shape that overflows", e.WrongShape, lambda s: s.forged(shape=[2**31 - 1, 2**31 - 1]))
case("size zero", e.WrongShape, lambda s: s.forged(b"", shape=[1, 0]))
case("a column", e.WrongShape, lambda s: s.forged(shape=[s.width, 1]))
case("two rows", e.WrongShape, lambda s: s.forged(shape=[2, s.width // 2]))
case(
    "a coordinate less",
    e.WrongShape,
    lambda s: s.forged(bytes(8 * s.width - 8), shape=[1, s.width - 1]),
)
case("a mode less", e.WrongShape, lambda s: s.forged(bytes(8), shape=[1, 1]))
case(
    "a mode more",
    e.MessageTooLarge,
    lambda s: s.forged(bytes(16 * s.width), shape=[1, 2 * s.width]),
)
case("half a number", e.WrongShape, lambda s: s.forged(bytes(8 * s.width - 3)))
case("5 MB of numbers", e.MessageTooLarge, lambda s: s.forged(bytes(5 * 10**6), shape=[1, 625_000]))

EXTRA = {
    "mode ids": [0, 0], "weights": [-1.0, 3.0], "moments": [[1.0, 2.0], [0.0, -1.0]],
    "signatures": [-np.inf], "count": 10**6, "__class__": "os.system", "": 0,
}  # fmt: skip
for name, value in EXTRA.items():
    case(f"unknown field {name!r}", e.UnknownField, lambda s, n=name, v=value: s.forged(**{n: v}))
case(
    "fields by number",
    e.MalformedHeader,
    lambda s: s.forged(head=msgpack.packb(dict(enumerate("abc")))),
)
case(
    "fields in bytes",
    e.UnknownField,
    lambda s: s.forged(head=msgpack.packb({**s.fields, b"run": 1})),
)
for name in staged("sum").fields:
    case(f"without {name}", e.MissingField, lambda s, name=name: s.forged(**{name: ...}))
for name in ("federation", "run", "round", "label", "kind", "terms", "signer", "nonce", "version"):
    case(f"{name} is null", e.BadField, lambda s, name=name: s.forged(**{name: None}))
case("round is true", e.BadField, lambda s: s.forged(round=True))
case("round is a float", e.BadField, lambda s: s.forged(round=float(s.asked.round)))
case("round beyond counting", e.BadField, lambda s: s.forged(round=2**63))
case("a name of 10 kB", e.BadField, lambda s: s.forged(federation="x" * 10_000))
case("a short nonce", e.BadField, lambda s: s.forged(nonce=b"1"))
case("a long fingerprint", e.BadField, lambda s: s.forged(signer=bytes(32)))

case("future version", e.UnsupportedVersion, lambda s: s.forged(format_=VERSION + 1))
case("future version inside", e.UnsupportedVersion, lambda s: s.forged(version=VERSION + 1))
case("the version that named no terms", e.UnsupportedVersion, lambda s: s.forged(format_=1))
case("another federation", e.WrongFederation, lambda s: s.forged(federation="banks"))
case("wrong run", e.WrongRun, lambda s: s.forged(run="run 2"))
case("old round", e.OldRound, lambda s: s.forged(round=s.asked.round - 1), join=e.BadField)
case("future round", e.FutureRound, lambda s: s.forged(round=s.asked.round + 1))
case("another label", e.WrongLabel, lambda s: s.forged(label="task 9"))
case("another kind", e.WrongKind, lambda s: s.forged(kind=KINDS[KINDS.index(s.kind) - 1]))
case("a kind that does not exist", e.WrongKind, lambda s: s.forged(kind="shutdown"))
OTHER_TERMS = {
    "a tenth of the bound": terms_of(Grid(0.05), SPACE),
    "ten times the bound": terms_of(Grid(5.0), SPACE),
    "a coarser grid": terms_of(Grid(0.5, 2**10), SPACE),
    "another public space": terms_of(GRID, "another"),
    "other noise": terms_of(GRID, SPACE, 0.1),
    "no terms but zeros and a one": bytes(31) + b"\1",
}
for name, terms in OTHER_TERMS.items():
    case(f"made under {name}", e.WrongTerms, lambda s, terms=terms: s.forged(terms=terms))
case("terms as text", e.BadField, lambda s: s.forged(terms=s.asked.terms.hex()))
case("terms cut short", e.BadField, lambda s: s.forged(terms=s.asked.terms[:31]))
case("terms changed on the way", e.BadSignature,
     lambda s: s.forged().replace(s.asked.terms, bytes(31) + b"\1"), join=e.WrongTerms)  # fmt: skip
case("replay of an old round", e.OldRound,
     lambda s: s.answer(ALICE, question=replace(s.asked, run="run 0") if s.kind == "join"
                        else replace(s.asked, round=4)), join=e.WrongRun)  # fmt: skip
case("the same client, other bytes", e.AlreadySent, lambda s: s.answer(ALICE, seed=1))
case("the same client, same numbers, composed anew", e.AlreadySent, lambda s: s.answer(ALICE))
case("unregistered", e.UnknownClient, lambda s: s.answer(Identity.new("nobody")))
case("a stolen id", e.StolenIdentity, lambda s: s.answer(Identity("alice", MALLORY.key)))
case("a stolen id and its fingerprint", e.BadSignature,
     lambda s: s.forged(head=msgpack.packb(
         {**s.fields, "client": "alice", "signer": fingerprint(ALICE.public)})),
     join=e.StolenIdentity)  # fmt: skip
case("signed by nobody", e.BadSignature, lambda s: s.forged()[:-64] + bytes(64))
case("a flipped signature", e.BadSignature, lambda s: flipped(s.forged(), -1))
case("a flipped nonce", e.BadSignature, lambda s: flipped(s.forged(), -90 - 8 * s.width))
case("the signature of another message", e.BadSignature, lambda s: s.forged()[:-64] + s.first[-64:])
case("a body changed on the way", e.BadSignature,
     lambda s: flipped(s.forged(), -65), join=e.StolenIdentity)  # fmt: skip
case("Alice's body under Mallory's name", e.BadSignature,
     lambda s: s.forged(s.rows(ALICE).tobytes(), by=ALICE), join=e.StolenIdentity)  # fmt: skip

case("nothing", e.TruncatedMessage, lambda s: b"")
case("a prefix alone", e.TruncatedMessage, lambda s: s.forged()[:PREFIX_BYTES])
case("half a message", e.TruncatedMessage, lambda s: s.forged()[:150])
case("all but a byte", e.TruncatedMessage, lambda s: s.forged()[:-1])
case("a byte more", e.TrailingBytes, lambda s: s.forged() + b"\0")
case("two messages at once", e.TrailingBytes, lambda s: s.forged() + s.forged())


def lying(head: int = 0, body: int = 0) -> Move:
    def move(s: Stage) -> bytes:
        data = s.forged()
        lengths = struct.unpack_from("<II", data, 6)
        said = struct.pack(
            "<II", *((n + d) % 2**32 for n, d in zip(lengths, (head, body), strict=True))
        )
        return data[:6] + said + data[14:]

    return move


case("a longer header announced", e.TruncatedMessage, lying(head=8))
case("a shorter header announced", e.TrailingBytes, lying(head=-8))
case("header and body divided elsewhere", e.MalformedHeader, lying(head=8, body=-8))
case("a shorter body announced", e.TrailingBytes, lying(body=-8))
case("a longer body announced", e.MessageTooLarge, lying(body=8))
case("4 GB announced", e.MessageTooLarge, lying(body=2**31))
case("a 4 GB header announced", e.MessageTooLarge, lying(head=2**31))

case(
    "100,000 fields",
    e.MessageTooLarge,
    lambda s: s.forged(head=msgpack.packb({f"k{i}": i for i in range(10**5)})),
)
case(
    "5,000 fields",
    e.MalformedHeader,
    lambda s: s.forged(head=msgpack.packb({f"k{i}": 0 for i in range(5000)})),
)
case(
    "a map of 4 billion fields", e.MalformedHeader, lambda s: s.forged(head=b"\xdf" + b"\xff" * 40)
)
case("a depth bomb", e.MalformedHeader, lambda s: s.forged(head=b"\x91" * 60_000 + b"\x00"))
case(
    "a depth bomb in a field",
    e.MalformedHeader,
    lambda s: s.forged(head=b"\x81\xa3run" + b"\x81\xa1a" * 9000),
)
case("an extension type", e.MalformedHeader, lambda s: s.forged(run=msgpack.ExtType(42, b"x" * 8)))
case("an empty extension type", e.MalformedHeader, lambda s: s.forged(run=msgpack.ExtType(0, b"")))
case("a timestamp", e.MalformedHeader, lambda s: s.forged(round=msgpack.Timestamp(1, 1)))
case("a header that is a list", e.MalformedHeader, lambda s: s.forged(head=msgpack.packb([1, 2])))
case("an empty header", e.MalformedHeader, lambda s: s.forged(head=b""))
case(
    "text that is not UTF-8", e.MalformedHeader, lambda s: s.forged(head=b"\x81\xa3run\xa2\xff\xfe")
)
case("a field twice", e.MalformedHeader, lambda s: s.forged(
    head=b"\x8d" + msgpack.packb(s.fields)[1:] + msgpack.packb({"run": "run 1"})[1:]))  # fmt: skip
case("fields in another order", e.MalformedHeader,
     lambda s: s.forged(head=msgpack.packb(dict(sorted(s.fields.items())))))  # fmt: skip

IDS = ["../../etc/passwd", "a/b", "a\\b", ".", "", "x" * 65, "älice", "аlice", "alice\n", "alice\0",
       "\u202ealice", "🙂", "alice ", "A" * 5000, 7, b"alice", None, ["alice"]]  # fmt: skip
for name in IDS:
    case(f"id {ascii(name)[:40]}", e.BadClientId, lambda s, name=name: s.forged(client=name))
case("an id of 10 MB", e.MessageTooLarge, lambda s: s.forged(client="a" * 10**7))


CANARY = Path(tempfile.gettempdir()) / f"unpickled-by-a-server-{os.getpid()}"


class Touch:
    """What unpickles to a file being made."""

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return (open, (str(CANARY), "w"))


PICKLE = pickle.dumps(Touch())
PAYLOADS = {
    "a pickle": PICKLE,
    "a torch file": b"PK\x03\x04" + bytes(26) + b"archive/data.pkl" + PICKLE,
    "an object npy": b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, }" + PICKLE,
    "a compressed bomb": zlib.compress(bytes(10**7)),
    "a web request": b"POST /round HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
}
for name, payload in PAYLOADS.items():
    case(f"{name} as a message", e.MalformedMessage, lambda s, p=payload: p)
    case(f"{name} as a body", e.OverlongVector,
         lambda s, p=payload: s.forged(p[: 8 * s.width].ljust(8 * s.width, b"~")),
         join=e.StolenIdentity)  # fmt: skip
    case(f"{name} as a header", e.MalformedHeader, lambda s, p=payload: s.forged(head=p[:60_000]))


class Line:
    """A connection that gives ``pace`` bytes a second and then does what ``ends`` says."""

    def __init__(self, data: bytes, pace: int = 10**6, ends: OSError | None = None) -> None:
        self.data, self.pace, self.ends, self.now = data, pace, ends, 0.0

    def read(self, size: int, /) -> bytes:
        piece, self.data = self.data[: min(size, self.pace)], self.data[min(size, self.pace) :]
        self.now += 1.0
        if not piece and self.ends:
            raise self.ends
        return piece


def over(line: Callable[[Stage], Line]) -> Move:
    def move(s: Stage) -> bytes:
        connection = line(s)
        return read_message(connection, s.limits, 60.0, lambda: connection.now)

    return move


case("a slow sender", e.SenderTooSlow, over(lambda s: Line(s.forged(), pace=2)))
case("a silent sender", e.SenderTooSlow, over(lambda s: Line(s.forged()[:99], ends=TimeoutError())))
case("a disconnect in the prefix", e.TruncatedMessage, over(lambda s: Line(s.forged()[:7])))
case("a disconnect in mid-body", e.TruncatedMessage, over(lambda s: Line(s.forged()[:-80])))
case("a connection reset in mid-body", e.TruncatedMessage,
     over(lambda s: Line(s.forged()[:-80], ends=ConnectionResetError())))  # fmt: skip
case("a flood behind a length lie", e.MessageTooLarge, over(lambda s: Line(lying(body=2**31)(s))))


# -- what is expected of each ----------------------------------------------------------------------


@cache
def undisturbed(kind: str) -> bytes:
    """The result of a round without Mallory."""
    return staged(kind).end()


def refused(stage: Stage, name: str) -> type[BaseException] | None:
    """What the move is refused with."""
    try:
        stage.box.accept(CASES[name][2](stage))
    except Exception as error:
        return type(error)
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_mallorys_message_would_be_accepted_if_it_were_honest(kind):
    """Else every refusal below might have another reason than the one it is there for."""
    stage = staged(kind)
    assert stage.box.accept(stage.forged()) == "accepted"
    assert stage.end() != undisturbed(kind)


def test_the_pickle_is_alive():
    """Else nothing would show that a server had loaded it."""
    pickle.loads(PICKLE).close()  # noqa: S301
    assert CANARY.exists()
    CANARY.unlink()


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_message_of_any_kind_is_refused_by_name_and_leaves_no_trace(name):
    error, join, _ = CASES[name]
    for kind in KINDS:
        stage = staged(kind)
        assert refused(stage, name) is (join if kind == "join" else error), kind
        assert stage.end() == undisturbed(kind)
    assert not CANARY.exists()


def test_every_name_of_a_refusal_is_the_reason_of_some_case():
    """But for a round that is closed already, which no single message brings about."""
    reasons = {error for error, _, _ in CASES.values()}
    assert reasons == set(e.MessageError.__subclasses__()) - {e.RoundClosed}


@pytest.mark.trust
def test_all_hostile_messages_in_one_round_leave_no_trace_on_disk_either(card, tmp_path):
    wrong, same = [], []
    for kind in KINDS:
        stage = staged(kind, tmp_path / kind)
        before = {path.name: path.read_bytes() for path in (tmp_path / kind).iterdir()}
        for name, (error, join, _) in CASES.items():
            found = refused(stage, name)
            if found is not (join if kind == "join" else error):
                wrong.append((name, kind, found))
        after = {path.name: path.read_bytes() for path in (tmp_path / kind).iterdir()}
        same.append(after == before and stage.end() == undisturbed(kind))
    holds = not wrong and all(same) and len(CASES) >= 45 and not CANARY.exists()
    figure = f"{len(CASES)} cases × {len(KINDS)} kinds, all refused by name; sum identical"
    said = figure if holds else f"{len(wrong)} not refused by name, {same.count(False)} sums differ"
    card("hostile clients", "≥ 45 cases × every message", said, holds)
    assert wrong == []
    assert all(same)
    assert len(CASES) >= 45
    assert not CANARY.exists()
