"""CoNLL files: two columns with BIO tags, and the many columns of CoNLL-2012."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cslr.data.streams.conll import (
    BadLine,
    TaggedSentence,
    conll2012_sentences,
    conll_sentences,
    numbered,
    read_conll,
    read_conll2012,
    tag_numbers,
)
from cslr.errors import DataError


def two_columns(text: str) -> list[TaggedSentence | BadLine]:
    return list(conll_sentences(enumerate(text.splitlines(keepends=True), start=1)))


def many_columns(text: str) -> list[TaggedSentence | BadLine]:
    lines = enumerate(text.splitlines(keepends=True), start=1)
    return list(conll2012_sentences(lines, lambda document: True))


# --- two columns ---------------------------------------------------------------------------


def test_blank_lines_part_sentences_and_columns_are_parted_by_tab_or_space() -> None:
    text = "\nAda\tB-PER\nHolt\tI-PER\nslept\tO\r\n\n \t\nIn O\nOslo   B-LOC"
    assert two_columns(text) == [
        TaggedSentence(2, ("Ada", "Holt", "slept"), ("B-PER", "I-PER", "O")),
        TaggedSentence(7, ("In", "Oslo"), ("O", "B-LOC")),
    ]
    assert two_columns("") == two_columns("\n\n") == []


def test_a_document_mark_ends_a_sentence_and_is_none_itself() -> None:
    found = two_columns("-DOCSTART-\tO\nOne\tO\n-DOCSTART- -X- O O\nTwo\tO\n")
    assert found == [TaggedSentence(2, ("One",), ("O",)), TaggedSentence(4, ("Two",), ("O",))]


def test_names_may_follow_each_other_and_types_may_have_hyphens() -> None:
    (found,) = two_columns("a\tB-X-Y\nb\tI-X-Y\nc\tB-X-Y\nd\tB-Z\n")
    assert isinstance(found, TaggedSentence)
    assert found.tags == ("B-X-Y", "I-X-Y", "B-X-Y", "B-Z")
    assert found.text == "a b c d"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("word", "1 columns"),
        ("word\tO\tO", "3 columns"),
        ("New York B-LOC", "3 columns"),
        ("New York\tB-LOC", "'New York' contains a space"),
        ("New\u00a0York\tB-LOC", "contains a space"),
        ("\tO", "the word is empty"),
        ("word\t", "tag '' is not O"),
        ("word\tB", "tag 'B' is not O, B-TYPE or I-TYPE"),
        ("word\tB-", "tag 'B-' is not O"),
        ("word\tPER", "tag 'PER' is not O"),
        ("word\tE-PER", "tag 'E-PER' is not O"),
        ("word\tI-PER", "I-PER after O does not continue an entity; begin the entity with B-PER"),
    ],
)
def test_a_bad_line_is_told_once_and_does_not_hide_the_next_sentence(
    line: str, message: str
) -> None:
    found = two_columns(f"One\tO\n\nBefore\tO\n{line}\nafter\tbad\n\nTwo\tO\n")
    assert [type(one) for one in found] == [TaggedSentence, BadLine, TaggedSentence]
    problem = found[1]
    assert isinstance(problem, BadLine)
    assert problem.line == 4
    assert message in problem.message


@pytest.mark.parametrize("before", ["B-ORG", "O"])
def test_inside_must_follow_its_own_type(before: str) -> None:
    (found,) = two_columns(f"a\t{before}\nb\tI-PER\n")
    assert isinstance(found, BadLine)
    assert f"I-PER after {before}" in found.message


def test_a_sentence_cannot_begin_inside_the_name_that_ended_the_one_before() -> None:
    found = two_columns("a\tB-PER\n\nb\tI-PER\n")
    assert [type(one) for one in found] == [TaggedSentence, BadLine]


WORD = st.text("abc.é", min_size=1, max_size=4)
NAME = st.sampled_from(["O", "PER", "LOC"])


@st.composite
def sentences(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    words, tags = [], []
    for kind in draw(st.lists(NAME, min_size=1, max_size=5)):
        run = draw(st.lists(WORD, min_size=1, max_size=3))
        words += run
        tags += ["O"] * len(run) if kind == "O" else [f"B-{kind}", *[f"I-{kind}"] * (len(run) - 1)]
    return words, tags


@given(st.lists(sentences(), max_size=4))
def test_what_is_written_is_read(written: list[tuple[list[str], list[str]]]) -> None:
    text = "\n\n".join(
        "\n".join(f"{word}\t{tag}" for word, tag in zip(words, tags, strict=True))
        for words, tags in written
    )
    found = two_columns(text)
    assert [(one.words, one.tags) for one in found if isinstance(one, TaggedSentence)] == [
        (tuple(words), tuple(tags)) for words, tags in written
    ]


def test_a_file_is_read_plain_or_gzipped(tmp_path: Path) -> None:
    content = "Ada\tB-PER\n\nÉmile\tB-PER\n".encode()
    plain, packed, marked = (tmp_path / name for name in ("a.conll", "b.conll.gz", "c.conll"))
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    marked.write_bytes(b"\xef\xbb\xbf" + content)
    for path in (plain, packed, marked):
        assert [sentence.words for sentence in read_conll(path)] == [("Ada",), ("Émile",)]


def test_a_problem_in_a_file_is_an_error_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "own.conll"
    path.write_text("One\tO\n\nTwo\tI-PER\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"own\.conll, line 3: tag I-PER after O"):
        list(read_conll(path))
    path.write_bytes(b"One\tO\n\xff\tO\n")
    with pytest.raises(DataError, match=r"own\.conll, after line \d: cannot be read"):
        list(read_conll(path))
    with pytest.raises(DataError, match=r"file .*none\.conll does not exist"):
        list(read_conll(tmp_path / "none.conll"))


# --- tag numbers ---------------------------------------------------------------------------


def test_tags_have_two_numbers_a_type_after_o() -> None:
    tags = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    assert tag_numbers(tags, ("O", "PER", "LOC")) == (0, 1, 2, 3, 4)
    assert tag_numbers((), ("O",)) == ()
    for tag in ("B-ORG", "I-ORG", "B-O"):
        with pytest.raises(ValueError, match=f"tag {tag} has no declared type.*PER, LOC"):
            tag_numbers(("O", tag), ("O", "PER", "LOC"))


def test_an_undeclared_type_is_told_with_its_line() -> None:
    sentence = TaggedSentence(7, ("a", "b"), ("B-PER", "B-ORG"))
    assert numbered(sentence, ("O", "PER", "ORG"), Path("f")) == (1, 3)
    with pytest.raises(DataError, match="f, line 8: tag B-ORG has no declared type"):
        numbered(sentence, ("O", "PER"), Path("f"))


# --- CoNLL-2012 ----------------------------------------------------------------------------


def row(document: str, word: str, name: str, arguments: int = 1) -> str:
    """A line of CoNLL-2012: eleven columns, then as many of arguments and one of coreference."""
    return "   ".join([document, "0", "0", word, "XX", "*", *["-"] * 4, name, *["*"] * arguments])


def block(*marked: tuple[str, str], document: str = "nw/x/00/x_0001") -> str:
    """A sentence of words with their brackets, every line longer than the one before."""
    lines = [row(document, word, name, place) for place, (word, name) in enumerate(marked)]
    return "".join(line + "\n" for line in lines)


def test_brackets_become_bio_tags_whatever_columns_follow() -> None:
    text = block(
        ("The", "(ORG*"),
        ("Sea", "*"),
        ("Council", "*)"),
        ("met", "*"),
        ("Peru", "(GPE)"),
        ("Chile", "(GPE*)"),
        ("twice", "(CARDINAL*"),
        ("over", "*)"),
    )
    (found,) = many_columns(text)
    assert isinstance(found, TaggedSentence)
    assert found.text == "The Sea Council met Peru Chile twice over"
    assert found.tags == (
        *("B-ORG", "I-ORG", "I-ORG", "O", "B-GPE", "B-GPE"),
        *("B-CARDINAL", "I-CARDINAL"),
    )
    assert (found.line, found.document) == (1, "nw/x/00/x_0001")


def test_parts_and_documents_are_parted_by_their_marks() -> None:
    text = (
        "#begin document (nw/x/00/x_0001); part 000\n"
        + block(("One", "*"))
        + "\n#end document\n#begin document (nw/x/00/x_0001); part 001\n"
        + block(("Two", "*"))
        + "#end document\n"
        + block(("#", "*"), document="bc/y/00/y_0001")
    )
    found = [one for one in many_columns(text) if isinstance(one, TaggedSentence)]
    assert [(one.document[:2], one.words, one.line) for one in found] == [
        ("nw", ("One",), 2),
        ("nw", ("Two",), 6),
        ("bc", ("#",), 8),
    ]


def test_documents_that_are_not_wanted_are_not_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "a.v4_gold_conll"
    broken = block(("One", "broken"), document="pt/x/00/x_0001")
    path.write_text(broken + "\n" + block(("Two", "*")), encoding="utf-8")
    found = list(read_conll2012(path, lambda document: document.startswith("nw/")))
    assert [sentence.words for sentence in found] == [("Two",)]
    with pytest.raises(DataError, match=r"a\.v4_gold_conll, line 1: the brackets 'broken'"):
        list(read_conll2012(path, lambda document: True))


@pytest.mark.parametrize(
    ("marks", "line", "message"),
    [
        (("*", "*)"), 2, "the brackets '*)'"),
        (("(ORG*", "(GPE)", "*)"), 2, "'(GPE)' within (ORG*"),
        (("(ORG*", "(ORG*", "*)"), 2, "'(ORG*' within (ORG*"),
        (("*", "((ORG*", "*)"), 2, "'((ORG*'"),
        (("(ORG*", "*))"), 2, "'*))'"),
        (("ORG",), 1, "'ORG'"),
        (("()",), 1, "'()'"),
        (("(ORG",), 1, "'(ORG'"),
        (("-",), 1, "'-'"),
        (("*", "(ORG*", "*"), 3, "the sentence ends within (ORG*"),
    ],
)
def test_bad_brackets_are_told_with_their_line(
    marks: tuple[str, ...], line: int, message: str
) -> None:
    bad = block(*(("word", mark) for mark in marks))
    found = many_columns(bad + "\n" + block(("Fine", "*")))
    assert [type(one) for one in found] == [BadLine, TaggedSentence]
    problem = found[0]
    assert isinstance(problem, BadLine)
    assert problem.line == line
    assert message in problem.message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nw/x/00/x_0001 0 0 word XX * - - - -", "10 columns"),
        (row("bc/y/00/y_0001", "word", "*"), "document bc/y/00/y_0001 in a sentence of nw/x"),
        (row("nw/x/00/x_0001", "[WORD]", "*"), "the words are missing"),
    ],
)
def test_other_damage_is_told_with_its_line(line: str, message: str) -> None:
    (problem,) = many_columns(block(("Fine", "*")) + line + "\n")
    assert isinstance(problem, BadLine)
    assert problem.line == 2
    assert message in problem.message
