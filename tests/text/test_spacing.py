"""Running text as words with one space between them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cslr.text.spacing import spaced


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Two words", "Two words"),
        ("  many \t spaces\nand lines ", "many spaces and lines"),
        ("It ends here.", "It ends here ."),
        ("(No. 4), twice!", "( No . 4 ) , twice !"),
        ("3.5 mg, 1,000 units", "3.5 mg , 1,000 units"),
        ("the ward's well-known team", "the ward's well-known team"),
        ("l’hôpital à Zürich", "l’hôpital à Zürich"),
        ("wait...", "wait . . ."),
        ("x--y", "x - - y"),
        ("…", "…"),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_words_and_marks_have_one_space_between_them(text, words):
    assert spaced(text) == words


@given(st.text())
def test_no_character_but_white_space_is_lost_or_added(text):
    assert spaced(text).replace(" ", "") == re.sub(r"\s", "", text)


@given(st.text())
def test_no_word_is_empty_and_none_holds_white_space(text):
    words = spaced(text).split(" ")
    assert words == [""] or not any(re.search(r"\s", word) or not word for word in words)


@given(st.text())
def test_spaced_text_stays_as_it_is(text):
    assert spaced(spaced(text)) == spaced(text)
