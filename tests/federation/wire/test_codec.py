"""The envelope: a message decodes to what was encoded, and a changed bit is refused."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.errors import (
    BadSignature,
    MalformedHeader,
    MessageError,
    MessageTooLarge,
    TrailingBytes,
    TruncatedMessage,
    UnsupportedVersion,
)
from cslr.federation.wire.codec import (
    KINDS,
    PREFIX_BYTES,
    SIGNATURE_BYTES,
    Header,
    Limits,
    Question,
    announced,
    decode,
    encode,
    fingerprint,
)
from cslr.federation.wire.identity import Identity

IN_WORDS = r"\w+ \w+"  # every refusal says why
ALICE, BOB = Identity.new("alice"), Identity.new("bob")
LIMITS = Limits()
ASKED = Question("clinics", "run 1", 3, "task 2 weights", "block", bytes(range(32)))

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
questions = st.builds(
    Question,
    names,
    names,
    st.integers(0, 2**31 - 1),
    names,
    st.sampled_from(KINDS),
    st.binary(min_size=32, max_size=32),
)
ids = st.text("abcXYZ019_-", min_size=1, max_size=64)
values = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20)


def sent(question=ASKED, row=(1, -2, 3)):
    return ALICE.answer(question, np.array([row], dtype=np.int64))


def resealed(message, head, identity=ALICE):
    """The same body under other header bytes, with lengths and signature that fit."""
    length, body = announced(message, LIMITS)
    content = message[PREFIX_BYTES + length : PREFIX_BYTES + length + body]
    prefix = message[:6] + len(head).to_bytes(4, "little") + body.to_bytes(4, "little")
    signed = prefix + head + content
    return signed + identity.key.sign(signed)


def head_of(message):
    return message[PREFIX_BYTES : PREFIX_BYTES + announced(message, LIMITS)[0]]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(questions, ids, values, st.binary(min_size=16, max_size=16))
def test_what_is_encoded_is_decoded_and_encodes_to_the_same_bytes(question, client, row, nonce):
    rows = np.array([row], dtype=np.int64)
    header = Header(question, client, fingerprint(ALICE.public), nonce, rows.shape)
    data = encode(header, rows, ALICE.key)
    message = decode(data, LIMITS)
    message.verify(ALICE.public)
    assert message.header == header
    np.testing.assert_array_equal(message.rows, rows)
    assert message.rows.dtype == np.int64
    assert encode(message.header, message.rows, ALICE.key) == data


def test_the_parts_stand_where_the_format_says():
    data = sent(row=(1, -2, 3))
    head, body = announced(data, LIMITS)
    assert data[:6] == b"CSLR\x02\x00"
    assert len(data) == PREFIX_BYTES + head + body + SIGNATURE_BYTES
    start = PREFIX_BYTES + head
    assert data[start : start + body] == b"".join(
        value.to_bytes(8, "little", signed=True) for value in (1, -2, 3)
    )
    assert msgpack.unpackb(head_of(data))["dtype"] == "<i8"


def test_no_byte_of_a_message_can_be_changed_unnoticed():
    data = sent()
    for place in range(len(data)):
        for bit in (1, 0x80):
            other = bytearray(data)
            other[place] ^= bit
            with pytest.raises(MessageError, match=IN_WORDS):
                decode(bytes(other), LIMITS).verify(ALICE.public)


def test_every_shorter_message_is_truncated_and_every_longer_one_has_trailing_bytes():
    data = sent()
    for length in range(len(data)):
        with pytest.raises(TruncatedMessage, match=r"\d+ of \d+ bytes|shorter than the prefix"):
            decode(data[:length], LIMITS)
    for more in (b"\0", b"\n", data):
        with pytest.raises(TrailingBytes, match="extra bytes follow the message"):
            decode(data + more, LIMITS)


def test_only_the_key_that_signed_verifies():
    message = decode(sent(), LIMITS)
    message.verify(ALICE.public)
    for public in (BOB.public, bytes(32), b"\xff" * 32, b"short"):
        with pytest.raises(
            BadSignature, match="the signature does not verify with the key of 'alice'"
        ):
            message.verify(public)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(st.binary(max_size=300))
def test_whatever_the_bytes_only_a_message_error_comes_out(data):
    with pytest.raises(MessageError, match=IN_WORDS):
        decode(data, LIMITS)
    with pytest.raises(MessageError, match=IN_WORDS):
        decode(resealed(sent(), data), LIMITS)


numbers = st.integers(-(2**63), 2**64 - 1) | st.floats()
anything = st.recursive(
    st.none() | st.booleans() | numbers | st.text() | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.sampled_from([*msgpack.unpackb(head_of(sent())), "more"]), anything)
def test_a_header_with_one_odd_value_is_refused_or_means_exactly_that(name, value):
    fields = msgpack.unpackb(head_of(sent()))
    data = resealed(sent(), msgpack.packb({**fields, name: value}))
    try:
        message = decode(data, LIMITS)
    except MessageError:
        return
    assert name in fields
    assert encode(message.header, message.rows, ALICE.key) == data


@pytest.mark.parametrize(
    "respell",
    [
        lambda fields: msgpack.packb(dict(reversed(fields.items()))),
        lambda fields: msgpack.packb(fields).replace(b"\xa5round\x03", b"\xa5round\xcc\x03"),
        lambda fields: msgpack.packb(fields).replace(b"\xa5round", b"\xd9\x05round"),
        lambda fields: b"\x8d" + msgpack.packb(fields)[1:] + b"\xa5round\x03",
        lambda fields: b"\xde\x00\x0c" + msgpack.packb(fields)[1:],
    ],
    ids=["another order", "a longer integer", "a longer string", "a field twice", "a longer map"],
)
def test_another_spelling_of_the_same_header_is_refused(respell):
    data = sent()
    head = respell(msgpack.unpackb(head_of(data)))
    assert msgpack.unpackb(head) == msgpack.unpackb(head_of(data))
    assert head != head_of(data)
    with pytest.raises(MalformedHeader, match="canonical"):
        decode(resealed(data, head), LIMITS)


def test_sizes_are_refused_from_the_prefix_alone():
    prefix = sent()[:6]
    for head, body in ((2**32 - 1, 8), (64 * 1024 + 1, 8), (8, 4 * 2**20 + 1), (8, 2**32 - 1)):
        with pytest.raises(MessageTooLarge, match=r"the (header|body) has \d+ bytes; at most"):
            announced(prefix + head.to_bytes(4, "little") + body.to_bytes(4, "little"), LIMITS)
    for version in (1, 3):
        with pytest.raises(UnsupportedVersion, match=f"format {version} is not supported"):
            announced(b"CSLR" + version.to_bytes(2, "little") + bytes(8), LIMITS)


@pytest.mark.parametrize(
    ("rows", "client", "word"),
    [
        (np.zeros((1, 3)), "alice", "64-bit integers"),
        (np.zeros((1, 4), dtype=np.int64), "alice", "shape"),
        (np.zeros((1, 3), dtype=np.int64), "../alice", "client"),
    ],
    ids=["floats", "another shape", "a path"],
)
def test_what_could_not_be_read_back_is_not_sent(rows, client, word):
    header = Header(ASKED, client, fingerprint(ALICE.public), bytes(16), (1, 3))
    with pytest.raises(ValueError, match=word):
        encode(header, rows, ALICE.key)


def test_decoded_rows_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        decode(sent(), LIMITS).rows[0, 0] = 7


def test_an_identity_does_not_print_its_key():
    assert "key" not in repr(ALICE)
