"""Public sentences that stand in clients' texts are found, all of them and no others."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.data.own import overlapping


def plain(text: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return re.sub(r"^\W+|\W+$", "", " ".join(folded.split()))


def by_hand(public: list[str], texts: list[str]) -> list[int]:
    """The definition, sentence by sentence and text by text."""
    pairs = [(place, plain(sentence)) for place, sentence in enumerate(public)]
    return [
        place
        for place, sentence in pairs
        if sentence
        and any(
            sentence == plain(text) or (len(sentence) >= 20 and sentence in plain(text))
            for text in texts
        )
    ]


def test_whole_texts_and_sentences_within_texts_are_found():
    public = ["Tides follow the moon.", "Cats purr.", "Bread needs time and patience.", "Rain."]
    texts = ["cats  PURR", "He said: “bread needs time\nand patience” twice. Rain. Then he left."]
    assert overlapping(public, texts) == [1, 2]


def test_a_short_sentence_counts_only_as_a_whole_text():
    assert overlapping(["I am here."], ["I am here. So are you."]) == []
    assert overlapping(["I am here."], ["so", "I am here!"]) == [0]


def test_forms_of_letters_do_not_matter():
    assert overlapping(["Der Fluß fließt langsam fort"], ["DER FLUSS FLIESST LANGSAM FORT"]) == [0]
    assert overlapping(["Cafe\u0301 de la gare centrale"], ["Caf\xe9 de la gare centrale"]) == [0]
    assert overlapping(["ﬁnding the final ﬁgures"], ["so: finding the final figures ..."]) == [0]


def test_a_sentence_is_found_without_spaces_around_it():
    sentence = "公共の文章は誰のものでもないので自由に使ってよいとされている"
    assert overlapping([sentence], ["あ" + sentence + "ん"]) == [0]


def test_equal_sentences_are_all_named():
    assert overlapping(["Same thing", "other", "same thing."], ["Same thing"]) == [0, 2]


def test_nothing_overlaps_with_nothing():
    assert overlapping([], ["a"]) == []
    assert overlapping(["", " ... "], ["", "..."]) == []
    assert overlapping(["a"], []) == []


LETTERS = st.text("ab .", max_size=60)


@settings(max_examples=300, deadline=None)
@given(
    sentence=st.text("ab", min_size=18, max_size=24),
    before=LETTERS,
    after=LETTERS,
    others=st.lists(LETTERS, max_size=4),
)
def test_what_is_found_is_the_definition(sentence, before, after, others):
    public, texts = [sentence, *others], [before + sentence + after, *others[:1]]
    assert overlapping(public, texts) == by_hand(public, texts)


@pytest.mark.parametrize(
    "sentence",
    ["Dear customer, thank you for your {} {:05}", "{} {:05} of the corpus is what it is about."],
    ids=["all begin alike", "all end alike"],
)
def test_twice_the_sentences_and_texts_are_twice_the_work(sentence, steps_of):
    def work(count: int) -> int:
        public = [sentence.format("order", n) for n in range(count)]
        texts = [sentence.format("letter", n) for n in range(count)]
        return steps_of(lambda: overlapping(public, texts))

    assert work(400) < 2.2 * work(200)


def test_one_sentence_is_found_among_many_sentences_and_texts():
    public = [
        f"Sentence {n} of the public corpus is about the number {n * n}." for n in range(15_000)
    ]
    texts = [
        f"Our client number {n} wrote about {n + 1} things and {n * 7} more" for n in range(50_000)
    ]
    texts[777] += ". " + public[4_321]
    assert overlapping(public, texts) == [4_321]
