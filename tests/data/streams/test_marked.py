"""Marked example sentences, and that those which come with the program are sound."""

from __future__ import annotations

from collections import Counter

import pytest

from cslr.data.stream import declared_labels
from cslr.data.streams.conll import tag_numbers
from cslr.data.streams.marked import tagged_example
from cslr.errors import DataError


def test_brackets_become_bio_tags() -> None:
    words, tags = tagged_example("[Marie Holt|PER] joined [Stonegate|ORG] [Oslo|LOC] .")
    assert words == ("Marie", "Holt", "joined", "Stonegate", "Oslo", ".")
    assert tags == ("B-PER", "I-PER", "O", "B-ORG", "B-LOC", "O")


def test_a_sentence_may_hold_no_name_or_nothing_else() -> None:
    assert tagged_example("Nothing here !") == (("Nothing", "here", "!"), ("O", "O", "O"))
    assert tagged_example("[The Miller 's Crown|WORK_OF_ART]")[1] == (
        "B-WORK_OF_ART",
        *["I-WORK_OF_ART"] * 3,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        (" Ada slept", "cannot be parsed at ' Ada slept'"),
        ("Ada  slept", "'Ada' must be followed by one space"),
        ("Ada slept ", "'slept' must be followed by one space"),
        ("Ada\tslept", "'Ada' must be followed by one space"),
        ("[Ada|PER].", r"'\[Ada\|PER\]' must be followed by one space"),
        ("the[Ada|PER]", "'the' must be followed by one space"),
        ("[Ada|PER slept", r"cannot be parsed at '\[Ada"),
        ("[Ada] slept", r"cannot be parsed at '\[Ada"),
        ("Ada|PER slept", "'Ada' must be followed by one space"),
        ("Ada] slept", "'Ada' must be followed by one space"),
        ("[[Ada|PER] Holt|PER]", "cannot be parsed"),
        ("[Ada|PER|LOC]", "cannot be parsed"),
        ("[|PER] slept", "needs words and one type"),
        ("[Ada|] slept", "needs words and one type"),
        ("[Ada |PER] slept", "needs words and one type"),
        ("[Ada  Holt|PER]", "needs words and one type"),
        ("[Ada\tHolt|PER]", "needs words and one type"),
        ("[Ada|PER SON]", "needs words and one type"),
    ],
)
def test_a_badly_marked_example_is_quoted_with_what_to_write(text: str, message: str) -> None:
    with pytest.raises(DataError, match=rf"{message}.*; separate words .*\[words\|TYPE\]"):
        tagged_example(text)


NAMES = ["PERSON", "NORP", "FAC", "ORG", "GPE", "LOC", "PRODUCT", "EVENT", "WORK_OF_ART"]
OTHERS = ["LAW", "LANGUAGE", "DATE", "TIME", "PERCENT", "MONEY", "QUANTITY", "ORDINAL", "CARDINAL"]


@pytest.mark.parametrize(
    ("name", "types", "fewest", "examples"),
    [
        ("ner.toml", ["PER", "ORG", "LOC", "MISC"], 25, range(12, 17)),
        (
            "ontonotes.toml",
            [*NAMES, *OTHERS],
            5,
            range(3, 7),
        ),
    ],
)
def test_declared_examples_are_sound_and_cover_every_type(
    name: str, types: list[str], fewest: int, examples: range
) -> None:
    labels = declared_labels(name)
    assert [label.name for label in labels] == ["O", *types]
    assert labels[0].examples == ()
    begun: Counter[str] = Counter()
    for label in labels[1:]:
        assert len(label.examples) in examples
        for example in label.examples:
            _, tags = tagged_example(example)
            tag_numbers(tags, ["O", *types])
            assert f"B-{label.name}" in tags
            begun.update(tag[2:] for tag in tags if tag.startswith("B-"))
    assert min(begun[kind] for kind in types) >= fewest
    assert max(begun.values()) <= 2 * min(begun.values())
    texts = [example for label in labels for example in label.examples]
    assert len(set(texts)) == len(texts)
