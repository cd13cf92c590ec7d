"""A million mutated messages: only named refusals, nothing counted, nothing large allocated."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgpack
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cslr.errors import MessageError
from cslr.federation.wire.codec import (
    PREFIX_BYTES,
    SIGNATURE_BYTES,
    VERSION,
    Header,
    Question,
    announced,
    encode,
    fingerprint,
)
from cslr.federation.wire.expected import Expected
from cslr.federation.wire.identity import Identity
from cslr.federation.wire.inbox import Inbox
from cslr.federation.wire.terms import terms_of
from cslr.privacy.values import _SEAL, Grid

WIDTH = 8
GRID = Grid(1.0)
SPACE = "the digest of a public space"
ASKED = Question("clinics", "run 1", 5, "task 2", "sum", terms_of(GRID, SPACE))
EXPECTED = Expected(ASKED, WIDTH, GRID, SPACE)
PEOPLE = [
    Identity(name, Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32, b".")))
    for name in ("alice", "bobby", "carol", "david")
]
KEYS = {person.client: person.public for person in PEOPLE}
LENGTHS = np.array([0, 1, 7, 8, 63, 64, 65, 2**16, 2**16 + 1, 2**31, 2**32 - 1], dtype="<u4")


def message(person: Identity, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    rows = rng.integers(-1000, 1000, size=(1, WIDTH))
    header = Header(ASKED, person.client, fingerprint(person.public), rng.bytes(16), (1, WIDTH))
    return encode(header, rows, person.key)


MESSAGES = [message(person, seed) for seed, person in enumerate(PEOPLE)]
STACK = np.stack([np.frombuffer(each, dtype=np.uint8) for each in MESSAGES])  # (4, length)
NAMES = int(np.flatnonzero((STACK[0] != STACK).any(axis=0))[0]) + 1
"""Where one message has become another's."""
HEAD = PREFIX_BYTES + announced(MESSAGES[0], EXPECTED.limits)[0]


def mutated(count: int, rng: np.random.Generator) -> Iterator[bytes]:
    """Flips, splices, length lies and truncations of the messages, drawn for a batch at once."""
    yield from flipped(count * 7 // 20, HEAD, rng)
    yield from flipped(count * 2 // 20, STACK.shape[1], rng)
    yield from spliced(count * 4 // 20, rng)
    yield from lying(count * 4 // 20, rng)
    yield from truncated(count * 3 // 20, rng)


def flipped(count: int, before: int, rng: np.random.Generator) -> Iterator[bytes]:
    """1 to 3 bytes among the first are others."""
    rows = STACK[rng.integers(len(STACK), size=count)]
    places = np.sort(rng.integers(before, size=(3, count)), axis=0)
    for turn, place in enumerate(places):
        hit = np.flatnonzero(rng.random(count) < 1 / (1 + turn))
        changes = rng.integers(1, 256, size=len(hit), dtype=np.uint8)
        # Twice in one place might undo itself.
        fresh = np.ones(len(hit), bool) if turn == 0 else place[hit] != places[turn - 1][hit]
        rows[hit[fresh], place[hit][fresh]] ^= changes[fresh]
    yield from pieces(rows)


def lying(count: int, rng: np.random.Generator) -> Iterator[bytes]:
    """One or both of the lengths are others, some of them by a little."""
    rows = STACK[rng.integers(len(STACK), size=count)]
    which = rng.integers(1, 4, size=count)
    for bit, start in ((1, 6), (2, 10)):
        true = np.ascontiguousarray(rows[:, start : start + 4]).view("<u4")[:, 0]
        near = true + rng.integers(1, 10, size=count) * rng.choice([-1, 1], size=count)
        said = np.where(rng.random(count) < 0.5, rng.choice(LENGTHS, size=count), near)
        said = np.where(said == true, true + 1, said).astype("<u4")
        lies = (which & bit) > 0
        rows[lies, start : start + 4] = said.view(np.uint8).reshape(-1, 4)[lies]
    yield from pieces(rows)


def spliced(count: int, rng: np.random.Generator) -> Iterator[bytes]:
    """What begins as one message goes on as another, or as itself from another place."""
    length = STACK.shape[1]
    ends, starts = (
        rng.integers(NAMES, length, size=count).tolist(),
        rng.integers(length, size=count),
    )
    aligned = rng.random(count) < 0.5
    first = rng.integers(len(STACK), size=count)
    second = (first + rng.integers(1, len(STACK), size=count)) % len(STACK)
    for a, b, end, start, same in zip(first, second, ends, starts, aligned, strict=True):
        data = MESSAGES[a][:end] + MESSAGES[b][end if same else start :]
        yield data[:-1] if data == MESSAGES[a] else data  # their last bytes may be the same


def truncated(count: int, rng: np.random.Generator) -> Iterator[bytes]:
    ends = rng.integers(STACK.shape[1], size=count).tolist()
    for which, end in zip(rng.integers(len(STACK), size=count), ends, strict=True):
        yield MESSAGES[which][:end]


def pieces(rows: np.ndarray) -> Iterator[bytes]:
    data, length = rows.tobytes(), rows.shape[1]
    return (data[start : start + length] for start in range(0, len(data), length))


def filled() -> Inbox:
    inbox = Inbox(EXPECTED, KEYS)
    for each in MESSAGES:
        inbox.accept(each)
    return inbox


def fuzz(inbox: Inbox, data: Iterator[bytes]) -> Counter[str]:
    """How often what came out; another exception than a ``MessageError`` ends the test."""
    found: Counter[str] = Counter()
    accept = inbox.accept
    for each in data:
        try:
            found[accept(each)] += 1
        except MessageError as error:
            found[type(error).__name__] += 1
    return found


def test_ten_thousand_mutated_messages_are_refused_by_name_and_count_for_nothing():
    inbox, rng = filled(), np.random.default_rng(7)
    found = fuzz(inbox, mutated(10_000, rng))
    assert found.total() == 10_000
    assert found["accepted"] + found["repeated"] == 0
    assert len(found) >= 12  # the mutations reach deep, not only the first check
    np.testing.assert_array_equal(inbox.close().total(_SEAL), filled().close().total(_SEAL))


def headers(count: int, rng: np.random.Generator) -> Iterator[bytes]:
    """Mutated headers and bodies of David, in an envelope that fits them and with his signature."""
    david, whole = PEOPLE[3], np.frombuffer(MESSAGES[3][PREFIX_BYTES:-SIGNATURE_BYTES], np.uint8)
    for _ in range(count):
        inner = whole.copy()
        inner[rng.integers(len(inner))] ^= rng.integers(1, 256, dtype=np.uint8)
        size = HEAD - PREFIX_BYTES
        if rng.random() < 0.3:
            fields = msgpack.unpackb(whole[:size].tobytes())
            name = list(fields)[rng.integers(len(fields))]
            odd = [None, -1, 2**63, 1.5, "", "x" * 300, b"", [], [1], [[]], True, rng.bytes(16)]
            head = msgpack.packb({**fields, name: odd[rng.integers(len(odd))]})
            inner, size = np.frombuffer(head + whole[size:].tobytes(), np.uint8), len(head)
        prefix = struct.pack("<4sHII", b"CSLR", VERSION, size, len(inner) - size)
        signed = prefix + inner.tobytes()
        yield signed + david.key.sign(signed)


def test_headers_that_are_odd_and_signed_are_refused_or_mean_what_they_say():
    inbox = Inbox(EXPECTED, KEYS)
    for each in MESSAGES[:3]:
        inbox.accept(each)
    others = inbox.received
    found: Counter[str] = Counter()
    for data in headers(1_500, np.random.default_rng(11)):
        try:
            found[inbox.accept(data)] += 1
        except MessageError as error:
            found[type(error).__name__] += 1
    # A changed nonce or a changed number within the bound is an honest message: once.
    assert found["accepted"] <= 1
    assert set(inbox.received) <= {*others, "david"}
    assert {"OverlongVector", "WrongDtype", "WrongRun", "UnknownField", "BadField"} <= set(found)


def allocated(inbox: Inbox, data: Iterator[bytes]) -> int:
    """The most bytes that any one message makes the server take."""
    fuzz(inbox, iter(MESSAGES))  # whatever is made only once
    largest = 0
    tracemalloc.start()
    for each in data:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        fuzz(inbox, iter([each]))
        largest = max(largest, tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    return largest


@pytest.mark.trust
def test_a_million_mutated_messages_without_a_crash(card):
    inbox, rng = filled(), np.random.default_rng(20)
    largest = allocated(inbox, mutated(4_000, rng))
    gate = EXPECTED.limits.body + EXPECTED.limits.header
    found: Counter[str] = Counter()
    began = time.process_time()
    for _ in range(100):
        found += fuzz(inbox, mutated(10_000, rng))
    each = (time.process_time() - began) / found.total()
    same = inbox.close().total(_SEAL).tobytes() == filled().close().total(_SEAL).tobytes()
    counted = found["accepted"] + found["repeated"]
    holds = found.total() == 10**6 and counted == 0 and same and largest < gate
    figure = f"{found.total():,}, {len(found)} names, {each * 1e6:.0f} µs each"
    card("fuzzed messages", "10⁶ without a crash", figure, holds)
    assert found.total() == 10**6
    assert counted == 0
    assert same
    assert largest < gate


@pytest.mark.trust
def test_fuzzing_guided_by_coverage_finds_no_crash(card, tmp_path):
    pytest.importorskip("atheris", reason="atheris is not installed")
    whole = MESSAGES[0]
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "message").write_bytes(whole)
    (tmp_path / "corpus" / "header").write_bytes(whole[PREFIX_BYTES:HEAD])
    program = Path(__file__).with_name("fuzz_codec.py")
    done = subprocess.run(
        [sys.executable, str(program), "-max_total_time=15", "-seed=1", "-max_len=600", "corpus"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    runs = next((line for line in done.stderr.splitlines() if line.startswith("Done ")), "no end")
    crashes = sorted(path.name for path in tmp_path.glob("crash-*"))
    holds = done.returncode == 0 and not crashes
    card("fuzzed by coverage", "no crash", runs.removeprefix("Done "), holds)
    assert done.returncode == 0, done.stderr[-2000:]
    assert crashes == []
    assert int(runs.split()[1]) > 10_000
