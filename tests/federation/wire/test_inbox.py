"""The inbox: every honest answer counts exactly once, also when the server crashes in between."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cslr.errors import (
    AlreadySent,
    OverlongVector,
    RoundClosed,
    SpoolCorrupted,
    StolenIdentity,
    UnknownClient,
    WrongTerms,
)
from cslr.federation.wire import spool
from cslr.federation.wire.codec import Question
from cslr.federation.wire.expected import Expected
from cslr.federation.wire.identity import Identity
from cslr.federation.wire.inbox import Inbox, Register
from cslr.federation.wire.terms import terms_of
from cslr.privacy.mechanism import KeyStream, discrete_gaussian, noise_in_steps
from cslr.privacy.values import _SEAL, Grid

WIDTH = 6
GRID = Grid(2.0)
PEOPLE = [Identity.new(name) for name in ("alice", "bob", "carol", "A", "a")]
KEYS = {each.client: each.public for each in PEOPLE}
SPACE = "the digest of a public space"
TERMS = terms_of(GRID, SPACE)
ASKED = Question("clinics", "run 1", 3, "task 2", "sum", TERMS)
EXPECTED = Expected(ASKED, WIDTH, GRID, SPACE)


def row(seed, length=1000):
    return np.random.default_rng(seed).integers(-length, length, size=(1, WIDTH))


def sent(person, seed=None, question=ASKED):
    return person.answer(question, row(PEOPLE.index(person) if seed is None else seed))


def total(inbox):
    return inbox.close().total(_SEAL)


def of(*seeds):
    return sum(row(seed)[0] for seed in seeds)


@pytest.fixture
def place(tmp_path):
    return tmp_path / "spool"


def test_everybody_who_answers_is_counted_once(place):
    inbox = Inbox(EXPECTED, KEYS, place)
    messages = [sent(person) for person in PEOPLE]
    assert [inbox.accept(message) for message in messages] == ["accepted"] * 5
    assert [inbox.accept(message) for message in messages] == ["repeated"] * 5
    assert inbox.received == ("A", "a", "alice", "bob", "carol")
    np.testing.assert_array_equal(total(inbox), of(0, 1, 2, 3, 4))


def test_the_order_of_arrival_does_not_matter():
    messages = [sent(person) for person in PEOPLE]
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1]):
        inbox = Inbox(EXPECTED, KEYS)
        for i in order:
            inbox.accept(messages[i])
        np.testing.assert_array_equal(total(inbox), of(0, 1, 2, 3, 4))


def test_a_round_without_answers_is_a_sum_of_zeros(place):
    np.testing.assert_array_equal(total(Inbox(EXPECTED, KEYS, place)), np.zeros(WIDTH))


def test_another_answer_of_the_same_client_is_refused_and_the_first_stays(place):
    inbox = Inbox(EXPECTED, KEYS, place)
    first = sent(PEOPLE[0])
    inbox.accept(first)
    for other in (sent(PEOPLE[0], seed=9), sent(PEOPLE[0])):  # the same numbers, composed anew
        with pytest.raises(AlreadySent, match="'alice' has already sent a different message"):
            inbox.accept(other)
    assert inbox.accept(first) == "repeated"
    np.testing.assert_array_equal(total(inbox), of(0))


def test_a_server_that_crashed_goes_on_with_what_it_acknowledged(place):
    messages = [sent(person) for person in PEOPLE]
    inbox = Inbox(EXPECTED, KEYS, place)
    inbox.accept(messages[0])
    inbox.accept(messages[1])
    inbox = Inbox(EXPECTED, KEYS, place)
    assert inbox.received == ("alice", "bob")
    assert [inbox.accept(message) for message in messages] == ["repeated"] * 2 + ["accepted"] * 3
    np.testing.assert_array_equal(total(Inbox(EXPECTED, KEYS, place)), of(0, 1, 2, 3, 4))


@pytest.mark.parametrize("when", ["before the rename", "after the rename"])
def test_a_crash_while_a_message_is_written_neither_loses_nor_doubles_it(place, monkeypatch, when):
    class Crash(Exception):
        pass

    def crashes(path, content):
        if when == "after the rename":
            path.write_bytes(content)
        else:
            (path.parent / f".{path.name}.x.part").write_bytes(content[:50])
        raise Crash

    inbox, message = Inbox(EXPECTED, KEYS, place), sent(PEOPLE[0])
    inbox.accept(sent(PEOPLE[1]))
    with monkeypatch.context() as patch:
        patch.setattr(spool, "write_atomic", crashes)
        with pytest.raises(Crash):
            inbox.accept(message)
    assert inbox.received == ("bob",)
    inbox = Inbox(EXPECTED, KEYS, place)
    known = when == "after the rename"
    assert inbox.accept(message) == ("repeated" if known else "accepted")
    np.testing.assert_array_equal(total(inbox), of(0, 1))
    assert not list(place.glob("*.part"))


def test_a_closed_round_stays_closed_and_has_the_same_sum_after_a_restart(place):
    inbox, early = Inbox(EXPECTED, KEYS, place), sent(PEOPLE[0])
    inbox.accept(early)
    total(inbox)
    for each in (inbox, Inbox(EXPECTED, KEYS, place)):
        assert each.closed
        assert each.accept(early) == "repeated"
        with pytest.raises(RoundClosed, match="'bob' arrived after the round was closed"):
            each.accept(sent(PEOPLE[1]))
        with pytest.raises(AlreadySent, match="'alice' has already sent a different message"):
            each.accept(sent(PEOPLE[0], seed=9))
        np.testing.assert_array_equal(total(each), of(0))


def test_a_spooled_message_that_was_changed_or_cut_anywhere_is_noticed(place):
    inbox = Inbox(EXPECTED, KEYS, place)
    inbox.accept(sent(PEOPLE[0]))
    (path,) = place.iterdir()
    whole = path.read_bytes()
    for i in range(len(whole)):
        flipped = bytearray(whole)
        flipped[i] ^= 4
        for damaged in (bytes(flipped), whole[:i]):
            path.write_bytes(damaged)
            with pytest.raises(SpoolCorrupted, match="'alice'"):
                Inbox(EXPECTED, KEYS, place)
    path.write_bytes(whole)
    np.testing.assert_array_equal(total(Inbox(EXPECTED, KEYS, place)), of(0))


def test_a_message_missing_from_a_closed_round_is_noticed(place):
    inbox = Inbox(EXPECTED, KEYS, place)
    for person in PEOPLE[:2]:
        inbox.accept(sent(person))
    inbox.close()
    next(place.glob("*.msg")).unlink()
    with pytest.raises(SpoolCorrupted, match="differ from those counted"):
        Inbox(EXPECTED, KEYS, place)


def test_a_message_under_another_clients_name_is_noticed(place):
    Inbox(EXPECTED, KEYS, place).accept(sent(PEOPLE[0]))
    (path,) = place.iterdir()
    path.rename(place / f"{b'bob'.hex()}.msg")
    with pytest.raises(SpoolCorrupted, match="alice"):
        Inbox(EXPECTED, KEYS, place)


@pytest.mark.parametrize("name", ["notes.txt", "zz.msg"])
def test_a_file_that_is_no_message_is_not_ignored(place, name):
    place.mkdir()
    (place / name).write_bytes(b"?")
    with pytest.raises(SpoolCorrupted, match=name):
        Inbox(EXPECTED, KEYS, place)


def test_a_spool_of_another_round_is_not_this_rounds(place):
    Inbox(EXPECTED, KEYS, place).accept(sent(PEOPLE[0]))
    later = Question("clinics", "run 1", 4, "task 3", "sum", TERMS)
    with pytest.raises(SpoolCorrupted, match="round 3 is over"):
        Inbox(Expected(later, WIDTH, GRID, SPACE), KEYS, place)


def test_the_bound_itself_is_accepted_and_one_step_more_is_not():
    inbox = Inbox(EXPECTED, KEYS)
    at, over = np.zeros((2, 1, WIDTH), dtype=np.int64)
    at[0, 2], over[0, 2] = -GRID.steps, GRID.steps + 1
    with pytest.raises(OverlongVector, match="exceeds the clip"):
        inbox.accept(PEOPLE[0].answer(ASKED, over))
    assert inbox.accept(PEOPLE[0].answer(ASKED, at)) == "accepted"


# -- lists -----------------------------------------------------------------------------------------


def test_a_noised_list_may_be_longer_than_the_bound_but_no_longer_than_noise_explains():
    asked = Question("clinics", "run 1", 1, "task 0 list", "list", terms_of(GRID, SPACE, 2.0))
    expected = Expected(asked, WIDTH, GRID, SPACE, sigma=2.0)
    inbox = Inbox(expected, KEYS)
    noise = discrete_gaussian(noise_in_steps(2.0, GRID.steps), WIDTH, KeyStream(bytes(32)))
    honest = row(0) + noise[None]
    assert np.linalg.norm(honest) > GRID.steps
    assert inbox.accept(PEOPLE[0].answer(asked, honest)) == "accepted"
    assert expected.farthest < GRID.steps * (1 + 24.001)
    for sign in (1, -1):
        far = np.full((1, WIDTH), sign * expected.farthest)
        with pytest.raises(OverlongVector, match="a coordinate of the list exceeds"):
            inbox.accept(PEOPLE[1].answer(asked, far + sign))
        assert inbox.accept(PEOPLE[2 if sign > 0 else 3].answer(asked, far)) == "accepted"
    lists = inbox.close_lists()
    assert list(lists) == ["A", "alice", "carol"]
    np.testing.assert_array_equal(lists["alice"], honest[0])


def test_without_noise_a_list_keeps_to_the_grid():
    asked = Question("clinics", "run 1", 1, "task 0 list", "list", TERMS)
    assert Expected(asked, WIDTH, GRID, SPACE).farthest == GRID.steps


def test_lists_are_not_summed_and_sums_not_seen_one_by_one():
    asked = Question("clinics", "run 1", 1, "task 0 list", "list", TERMS)
    with pytest.raises(ValueError, match="close_lists"):
        Inbox(Expected(asked, WIDTH, GRID, SPACE), KEYS).close()
    with pytest.raises(ValueError, match="close"):
        Inbox(EXPECTED, KEYS).close_lists()
    with pytest.raises(ValueError, match="Register"):
        Inbox(Expected(Question("c", "r", 1, "join", "join", TERMS), 4, GRID, SPACE), KEYS)


# -- registration ----------------------------------------------------------------------------------

ROSTER = frozenset(KEYS)


def test_clients_join_once_with_their_own_key(place):
    register = Register("clinics", "run 1", ROSTER, place)
    joins = [person.join("clinics", "run 1") for person in PEOPLE]
    assert [register.accept(join) for join in joins] == ["accepted"] * 5
    assert [register.accept(join) for join in joins] == ["repeated"] * 5
    assert register.close() == KEYS
    assert Register("clinics", "run 1", ROSTER, place).keys == KEYS


def test_an_id_is_not_given_to_a_second_key(place):
    register = Register("clinics", "run 1", ROSTER, place)
    register.accept(PEOPLE[0].join("clinics", "run 1"))
    with pytest.raises(StolenIdentity, match="'alice' is registered with another key"):
        register.accept(Identity.new("alice").join("clinics", "run 1"))
    with pytest.raises(AlreadySent, match="'alice' has already sent a different message"):
        register.accept(PEOPLE[0].join("clinics", "run 1"))
    with pytest.raises(UnknownClient, match="'mallory' is not on the roster"):
        register.accept(Identity.new("mallory").join("clinics", "run 1"))
    assert dict(register.keys) == {"alice": PEOPLE[0].public}


def test_a_key_is_not_given_to_a_second_id(place):
    """One device with two ids would be counted twice."""
    register = Register("clinics", "run 1", ROSTER, place)
    register.accept(PEOPLE[0].join("clinics", "run 1"))
    with pytest.raises(StolenIdentity, match="already registered for another client"):
        register.accept(Identity("bob", PEOPLE[0].key).join("clinics", "run 1"))
    assert dict(register.keys) == {"alice": PEOPLE[0].public}


def test_nobody_joins_after_the_first_round_began(place):
    register = Register("clinics", "run 1", ROSTER, place)
    register.accept(PEOPLE[0].join("clinics", "run 1"))
    register.close()
    for each in (register, Register("clinics", "run 1", ROSTER, place)):
        with pytest.raises(RoundClosed, match="'bob' arrived after the round was closed"):
            each.accept(PEOPLE[1].join("clinics", "run 1"))


def test_a_damaged_registration_is_noticed(place):
    register = Register("clinics", "run 1", ROSTER, place)
    register.accept(PEOPLE[0].join("clinics", "run 1"))
    (path,) = place.iterdir()
    whole = path.read_bytes()
    for i in range(0, len(whole), 7):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        with pytest.raises(SpoolCorrupted, match="spooled message of 'alice'"):
            Register("clinics", "run 1", ROSTER, place)


# -- terms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [0.05, 0.5, 5.0])
def test_a_message_counts_under_the_bound_it_was_made_for_and_no_other(bound):
    """The integers fit any grid with as many steps, so the signature covers the bound."""
    made = Grid(0.5)
    data = sent(PEOPLE[0], question=replace(ASKED, terms=terms_of(made, SPACE)))
    grid = Grid(bound)
    expected = Expected(replace(ASKED, terms=terms_of(grid, SPACE)), WIDTH, grid, SPACE)
    inbox = Inbox(expected, KEYS)
    if bound == made.bound:
        assert inbox.accept(data) == "accepted"
        return
    with pytest.raises(WrongTerms, match="another clip, grid, noise or public space"):
        inbox.accept(data)
    assert inbox.received == ()


def test_a_message_counts_in_the_public_space_it_was_made_for_and_no_other():
    data = sent(PEOPLE[0], question=replace(ASKED, terms=terms_of(GRID, "another space")))
    with pytest.raises(WrongTerms, match="public space"):
        Inbox(EXPECTED, KEYS).accept(data)


def test_whatever_the_numbers_depend_on_changes_their_terms():
    others = [
        terms_of(Grid(GRID.bound, 2**19), SPACE),
        terms_of(Grid(np.nextafter(GRID.bound, 1.0)), SPACE),
        terms_of(GRID, SPACE + "."),
        terms_of(GRID, SPACE, 0.0),
        terms_of(GRID, SPACE, 1.0),
    ]
    assert len({TERMS, *others}) == 6
    assert terms_of(Grid(GRID.bound), SPACE) == TERMS


def test_a_question_must_name_the_terms_it_is_checked_against():
    with pytest.raises(ValueError, match="terms do not match grid, space and sigma"):
        Expected(ASKED, WIDTH, Grid(2 * GRID.bound), SPACE)
