"""One encoding of each message; any other bytes are refused with a named error."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.errors import (
    BadField,
    MalformedMessage,
    MessageError,
    MessageTooLarge,
    TrailingBytes,
    TruncatedMessage,
    UnsupportedVersion,
    WrongKind,
)
from cslr.privacy.secure_sum import messages as m
from cslr.privacy.secure_sum.codec import SumLimits, decode, encode, unsigned

from .parties import release

IN_WORDS = r"\w+ \w+"  # every refusal says why
LIMITS = SumLimits(members=8, coordinates=16)
KEY, SIGNATURE, SEALED, SHARE = b"k" * 32, b"s" * 64, b"e" * m.SEALED_BYTES, bytes(44)
TAG = b"t" * 16
SHARES = m.Shares(7, 1, KEY, KEY, (SEALED,) * 4, SIGNATURE)
MESSAGES = [
    m.Invitation(3, 5, 4, 1, KEY),
    m.Keys(3, 1, KEY, SIGNATURE),
    m.ShareRequest(3, 7, (m.PeerKey(0, KEY, SIGNATURE), m.PeerKey(1, KEY, SIGNATURE))),
    SHARES,
    m.MaskRequest(7, release(), (m.Parcel(0, KEY, KEY, SEALED),) * 3),
    m.Masked(7, 1, KEY, bytes(range(24)), SIGNATURE),
    m.ConsentRequest(7, (0, 1, 2, 4), (3,)),
    m.Consent(7, 1, KEY, (TAG,) * 3, SIGNATURE),
    m.UnmaskRequest(7, ((0, TAG), (1, TAG)), True),
    m.Unmasked(7, 1, (SHARE,) * 5, None, SIGNATURE),
    m.Unmasked(
        7, 1, (SHARE,) * 5, dataclasses.replace(SHARES, session=8, signature=b""), SIGNATURE
    ),
]
each_message = pytest.mark.parametrize("message", MESSAGES, ids=lambda x: type(x).__name__)


@each_message
def test_a_message_comes_back_as_it_was(message):
    data = encode(message)
    assert decode(data, LIMITS) == message
    assert encode(decode(data, LIMITS)) == data


@each_message
def test_cut_anywhere_it_is_truncated(message):
    data = encode(message)
    for length in range(len(data)):
        with pytest.raises(MessageError, match=IN_WORDS) as refused:
            decode(data[:length], LIMITS)
        assert type(refused.value) in (TruncatedMessage, MalformedMessage)


@each_message
def test_something_behind_it_is_refused(message):
    with pytest.raises(TrailingBytes, match="1 bytes follow after the message"):
        decode(encode(message) + b"\0", LIMITS)


@each_message
def test_flipped_anywhere_it_is_refused_or_another_message(message):
    data = encode(message)
    for place in range(len(data)):
        flipped = data[:place] + bytes([data[place] ^ 0x81]) + data[place + 1 :]
        try:
            other = decode(flipped, LIMITS)
        except MessageError:
            continue
        assert other != message
        assert encode(other) == flipped


@each_message
def test_more_than_was_agreed_on_is_not_read(message):
    data = encode(message) + bytes(LIMITS.bytes)
    with pytest.raises(MessageTooLarge, match="bytes; at most"):
        decode(data, LIMITS)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 12))
def test_any_bytes_are_a_message_or_a_named_error(body, kind):
    for data in (body, b"CSUM\1" + bytes([kind]) + body):
        try:
            message = decode(data, LIMITS)
        except MessageError:
            continue
        assert encode(message) == data


def test_a_count_beyond_the_members_is_refused_before_anything_is_read():
    data = unsigned(m.ConsentRequest(7, (), ()))
    lie = data[:14] + struct.pack("<I", 2**32 - 1) + data[18:]
    with pytest.raises(MessageTooLarge, match="at most 8"):
        decode(lie, LIMITS)


def test_a_vector_beyond_the_coordinates_is_refused():
    with pytest.raises(MessageTooLarge, match="17 coordinates; at most 16"):
        decode(encode(m.Masked(7, 1, KEY, bytes(8 * 17), SIGNATURE)), LIMITS)
    with pytest.raises(MessageTooLarge, match="17 coordinates; at most 16"):
        decode(encode(m.MaskRequest(7, release(coordinates=17), ())), LIMITS)


@pytest.mark.parametrize("sigma", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_release_in_a_message_must_be_one(sigma):
    data = encode(m.MaskRequest(7, release(), ()))
    spoilt = data.replace(struct.pack("<d", release().sigma), struct.pack("<d", sigma))
    with pytest.raises(BadField, match="not a release"):
        decode(spoilt, LIMITS)


def test_words_outside_the_field_are_no_shares():
    with pytest.raises(BadField, match="residues"):
        decode(encode(m.Unmasked(7, 1, (b"\xff" * 44,), None, SIGNATURE)), LIMITS)


def test_other_formats_versions_and_kinds_are_named():
    data = encode(MESSAGES[0])
    with pytest.raises(MalformedMessage, match="does not begin with CSUM"):
        decode(b"CSLR" + data[4:], LIMITS)
    with pytest.raises(UnsupportedVersion, match="format 3 is not read here"):
        decode(data[:4] + b"\3" + data[5:], LIMITS)
    with pytest.raises(WrongKind, match="unknown kind 99"):
        decode(data[:5] + b"\x63" + data[6:], LIMITS)


def test_only_shares_travel_inside_an_unmasking_answer():
    """Nothing nests, so nothing can nest deeply."""
    inner = encode(MESSAGES[10])
    outer = encode(MESSAGES[9])
    place = outer.rindex(b"\0" + SIGNATURE)
    with pytest.raises(WrongKind, match="only the shares of the next session"):
        decode(outer[:place] + b"\1" + inner + SIGNATURE, LIMITS)


@pytest.mark.slow
@pytest.mark.parametrize("message", MESSAGES, ids=lambda x: type(x).__name__)
def test_twenty_thousand_mutations_of_each_kind_are_read_or_named(message):
    data = bytearray(encode(message))
    for _ in range(20_000):
        where, what, length = struct.unpack("<HBH", os.urandom(5))
        spoilt = data.copy()
        spoilt[where % len(data)] = what
        cut = bytes(spoilt[: len(spoilt) - (length % 8 if length < 8000 else 0)])
        with contextlib.suppress(MessageError):
            assert encode(decode(cut, LIMITS)) == cut


@pytest.mark.parametrize("n", [3, 7])
def test_sizes_are_those_of_the_document(n):
    """docs/secure-sum.md, "Message by message"."""
    label = len(release().label)
    shares = m.Shares(7, 1, KEY, KEY, (SEALED,) * (n - 1), SIGNATURE)
    parcels = (m.Parcel(0, KEY, KEY, SEALED),) * n
    sizes = {
        m.Invitation(3, n, 4, 1, KEY): 58,
        m.Keys(3, 1, KEY, SIGNATURE): 114,
        m.ShareRequest(3, 7, (m.PeerKey(0, KEY, SIGNATURE),) * n): 26 + 100 * n,
        shares: 34 + 116 * n,
        m.MaskRequest(7, release(), parcels): 44 + label + 184 * n,
        m.Masked(7, 1, KEY, bytes(8 * 11), SIGNATURE): 118 + 8 * 11,
        m.ConsentRequest(7, tuple(range(n - 1)), (n - 1,)): 22 + 4 * n,
        m.Consent(7, 1, KEY, (TAG,) * (n - 1), SIGNATURE): 118 + 16 * (n - 1),
        m.UnmaskRequest(7, ((0, TAG),) * (n - 1), True): 19 + 20 * (n - 1),
        m.Unmasked(7, 1, (SHARE,) * n, None, SIGNATURE): 87 + 44 * n,
        m.Unmasked(7, 1, (SHARE,) * n, shares, SIGNATURE): 87 + 44 * n - 30 + 116 * n,
    }
    for message, size in sizes.items():
        assert len(encode(message)) == size
