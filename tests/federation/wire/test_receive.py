"""Reading from a stream: in pieces, in time, and never more than was agreed."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest

from cslr.errors import (
    MalformedMessage,
    MessageTooLarge,
    SenderTooSlow,
    TruncatedMessage,
)
from cslr.federation.wire.codec import Limits, Question, decode
from cslr.federation.wire.identity import Identity
from cslr.federation.wire.receive import PIECE, read_message

ALICE = Identity.new("alice")
LIMITS = Limits()
ASKED = Question("clinics", "run 1", 1, "task 0", "sum", bytes(32))


def sent(width=40_000):
    return ALICE.answer(ASKED, np.arange(width, dtype=np.int64)[None])


class Line:
    """A sender on a clock of its own: ``pace`` bytes in every second, then it hangs up."""

    def __init__(self, data, pace=2**20, ends=None):
        self.data, self.pace, self.ends = data, pace, ends
        self.now, self.asked, self.given = 0.0, [], 0

    def read(self, size, /):
        self.asked.append(size)
        piece = self.data[self.given : self.given + min(size, self.pace)]
        self.given += len(piece)
        self.now += 1.0
        if not piece and self.ends is not None:
            raise self.ends
        return piece

    def clock(self):
        return self.now


def read(line, seconds=1e9, limits=LIMITS):
    return read_message(line, limits, seconds, line.clock)


@pytest.mark.parametrize("pace", [1000, 4096, 2**20])
def test_a_message_in_pieces_is_the_message(pace):
    data = sent()
    assert read(Line(data, pace)) == data


def test_two_messages_on_one_line_are_two():
    first, second = sent(3), sent(5)
    line = Line(first + second)
    assert read(line) == first
    assert read(line) == second
    with pytest.raises(TruncatedMessage, match="the sender closed the connection"):
        read(line)


def test_it_asks_for_pieces_and_never_for_what_comes_after():
    line = Line(sent() + b"more")
    decode(read(line), LIMITS)
    assert max(line.asked) <= PIECE
    assert line.given == len(sent())


def test_a_slow_sender_is_given_up_at_the_deadline():
    line = Line(sent(), pace=100)
    with pytest.raises(SenderTooSlow, match="deadline"):
        read(line, seconds=30.0)
    assert line.now == 31.0


def test_one_byte_at_a_time_does_not_renew_the_deadline():
    line = Line(sent(), pace=1)
    with pytest.raises(SenderTooSlow, match="the deadline passed"):
        read(line, seconds=5.0)
    assert line.given < 10


@pytest.mark.parametrize("length", [0, 1, 13, 14, 60, 4_000, 320_000])
@pytest.mark.parametrize("ends", [None, ConnectionResetError(104, "reset by peer")])
def test_a_sender_who_hangs_up_is_named(length, ends):
    with pytest.raises(TruncatedMessage, match=r"closed the connection|reset by peer"):
        read(Line(sent()[:length], ends=ends))


def test_a_read_that_times_out_is_a_slow_sender():
    with pytest.raises(SenderTooSlow, match="no more data arrived in time"):
        read(Line(sent()[:500], ends=TimeoutError()))


def test_a_length_lie_beyond_the_limits_is_refused_before_a_byte_of_it_is_read():
    line = Line(sent()[:10] + b"\xff\xff\xff\xff" + bytes(10_000))
    with pytest.raises(MessageTooLarge, match="the body has 4294967295 bytes; at most"):
        read(line)
    assert line.given == 14


def test_what_is_no_message_is_refused_after_the_prefix():
    line = Line(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(MalformedMessage, match="it does not begin with the bytes CSLR"):
        read(line)
    assert line.given == 14


def test_a_real_socket_gives_the_message_and_a_silent_one_is_given_up():
    near, far = socket.socketpair()
    near.settimeout(0.2)
    data = sent()
    with near, far, near.makefile("rb", buffering=0) as stream:
        sender = threading.Thread(target=far.sendall, args=(data,))
        sender.start()
        assert read_message(stream, LIMITS, 10.0) == data
        sender.join()
        far.sendall(data[:100])
        with pytest.raises(SenderTooSlow, match="no more data arrived in time"):
            read_message(stream, LIMITS, 10.0)
