"""Every kind of bad row is reported with file and line, or left out and counted."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from typing import Any

import pytest

from cslr.data.own import load_own
from cslr.errors import DataError

PUBLIC = ("A public sentence.",)
HEAD = b"text,label,client,task,split,person\n"
GOOD = b"fine,praise,north,spring,train,p1\n"
JSON = {
    "text": "fine",
    "label": "praise",
    "client": "north",
    "task": "spring",
    "split": "train",
    "person": "p1",
}


def line(**changes: Any) -> bytes:
    """One JSON line; None removes a column."""
    cells = {name: cell for name, cell in (JSON | changes).items() if cell is not None}
    return json.dumps(cells).encode() + b"\n"


CSV = {
    "empty text": (b" ,praise,north,spring,train,p1\n", "column 'text' is empty"),
    "no label": (b"fine,,north,spring,train,p1\n", "the row has no label"),
    "undeclared label": (b"fine,joy,north,spring,train,p1\n", "label 'joy' is not declared"),
    "undeclared task": (b"fine,praise,north,winter,train,p1\n", "task 'winter' is not declared"),
    "label not of the task": (
        b"fine,order,north,spring,train,p1\n",
        "label 'order' does not belong to task 'spring'",
    ),
    "empty client": (b"fine,praise, ,spring,train,p1\n", "column 'client' is empty"),
    "empty person": (b"fine,praise,north,spring,train,\n", "column 'person' is empty"),
    "unknown split": (b"fine,praise,north,spring,dev,p1\n", "split 'dev' must be train or test"),
    "person in train and test": (
        b"fine,praise,north,spring,test,p1\n",
        "person 'p1' is in test here and in train in line 2",
    ),
    "not a row": (b"fine,praise,north\n", "3 cells where the header .* has 6"),
    "not UTF-8": (b"f\xffne,praise,north,spring,train,p1\n", "byte 2 of the line is not UTF-8"),
    "NUL byte": (b"f\0ne,praise,north,spring,train,p1\n", "contains a NUL byte"),
    "line too long": (b"x" * 1_000_001 + b"\n", "the line has 1,000,001 bytes, more than"),
}

JSONL = {
    "empty text": (line(text=""), "column 'text' is empty"),
    "no label": (line(label=[]), "the row has no label"),
    "undeclared label": (line(label="joy"), "label 'joy' is not declared"),
    "several labels": (line(label=["praise", "blame"]), "2 labels; classification has one"),
    "missing column": (line(task=None), "the row has no column 'task'"),
    "wrong type": (line(client=3.5), "column 'client' contains a float"),
    "empty client": (line(client=" "), "column 'client' is empty"),
    "not a row": (b"[1, 2]\n", "not a JSON object"),
    "not UTF-8": (b'{"text": "\xe9t\xe9"}\n', "is not UTF-8"),
    "NUL byte": (line(text="a\0b"), "contains a NUL"),
    "line too long": (line(text="x" * 1_000_000), "bytes, more than 1,000,000"),
}

MORE_JSONL = [
    (b'{"text": "fine", "text": "bad"}\n', "not a row", "key 'text' is duplicated"),
    (b"{oops}\n", "not a row", "not valid JSON"),
    (b"[" * 900_000 + b"\n", "not a row", "not valid JSON"),
    (b"1" * 9_000 + b"\n", "not a row", "not valid JSON"),
    (line(text="\ud800"), "not UTF-8", "contains an unpaired surrogate"),
    (line(text=["fine"]), "wrong type", "'text' contains a list, not a string"),
    (line(label=True), "wrong type", "'label' contains a bool"),
    (line(label={"a": 1}), "wrong type", "'label' contains a dict"),
    (line(label="praise|blame"), "undeclared label", "declare family = .intents."),
    (line(text=None), "missing column", "no column 'text'"),
    (line(client=None), "missing column", "no column 'client'"),
    (b"null\n", "not a row", "not a JSON object"),
]

CASES = (
    [("csv", kind, HEAD + GOOD + bad + GOOD, 3, message) for kind, (bad, message) in CSV.items()]
    + [("jsonl", kind, line() + bad + line(), 2, message) for kind, (bad, message) in JSONL.items()]
    + [("jsonl", kind, line() + bad + line(), 2, message) for bad, kind, message in MORE_JSONL]
)


@pytest.mark.parametrize(
    ("ending", "kind", "content", "number", "message"),
    CASES,
    ids=[f"{ending}-{kind}-{place}" for place, (ending, kind, *_) in enumerate(CASES)],
)
def test_a_bad_row_is_told_with_its_line_or_left_out(
    write, declare, ending, kind, content, number, message
):
    for path in (write(ending, content), write(f"{ending}.gz", gzip.compress(content))):
        with pytest.raises(DataError, match=rf"{path.name}, line {number}: .*{message}") as caught:
            load_own(path, declare(), PUBLIC, skip_bad_rows=False)
        assert "1 row not as declared" in str(caught.value)
        assert caught.value.exit_code == 2
        own = load_own(path, declare(), PUBLIC, skip_bad_rows=True)
        assert own.skipped == {kind: 1}
        assert own.stream.train.texts == ("fine", "fine")


WORDS = {"text": "Ida Holm waits", "label": ["B-PER", "I-PER", "O"]}


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"label": ["O", "I-PER", "O"]}, "not BIO", "tag 'I-PER' of word 2 does not"),
        ({"label": ["B-PER", "I-LOC", "O"]}, "not BIO", "tag 'I-LOC' of word 2"),
        ({"label": ["PER", "O", "O"]}, "not BIO", "tag 'PER' of word 1 is not O, B-TYPE"),
        ({"label": ["B-", "O", "O"]}, "not BIO", "tag 'B-' of word 1"),
        ({"label": ["B-ORG", "O", "O"]}, "undeclared label", "tag 'B-ORG' of word 1"),
        ({"label": ["O", "O"]}, "words and tags", "2 tags for 3 words"),
        ({"text": ["Ida Holm", "is", "in"]}, "words and tags", "word 1 is empty, contains a space"),
        ({"text": ["Ida", "", "in"]}, "words and tags", "word 2 is empty"),
        (
            {"text": ["Ida", 3, "in"]},
            "words and tags",
            "word 2 is empty, contains a space or is not",
        ),
        ({"text": [], "label": []}, "empty text", "'text' is empty"),
        ({"text": " ", "label": []}, "empty text", "'text' is empty"),
        ({"task": "autumn"}, "label not of the task", "tag 'B-PER' does not belong to task"),
    ],
)
def test_a_bad_tag_sequence_is_told_with_its_line(write, declare, changes, kind, message):
    path = write("jsonl", line(**WORDS) + line(**WORDS | changes) + line(**WORDS))
    with pytest.raises(DataError, match=rf"shops\.jsonl, line 2: .*{message}"):
        load_own(path, declare("tagging"), PUBLIC)
    own = load_own(path, declare("tagging"), PUBLIC, skip_bad_rows=True)
    assert own.skipped == {kind: 1}
    assert len(own.stream.train) == 2


CONLL = b"""# client = north
# task = spring
# split = train
# person = d1
Ida\tB-PER
waits\tO

"""


@pytest.mark.parametrize(
    ("bad", "number", "kind", "message"),
    [
        (b"Jo\tO\nHolm\tI-PER\n\n", 9, "not BIO", "tag I-PER after O"),
        (b"Jo\tX\n\n", 8, "not BIO", "tag 'X' is not O"),
        (b"Jo\tO\nalone\n\n", 9, "not a row", "1 columns"),
        (b"Jo\tO\n\xff\tO\n\n", 9, "not UTF-8", "byte 1 of the line is not UTF-8"),
        (b"J\0\tO\n\n", 8, "NUL byte", "NUL byte"),
        (b"Jo\tO\n" + b"x" * 2_000_000 + b"\tO\n\n", 9, "line too long", "2,000,002 bytes"),
        (b"Rome\tB-ORG\n\n", 8, "undeclared label", "tag 'B-ORG' of word 1"),
        (b"# task = winter\nJo\tO\n\n# task = spring\n", 9, "undeclared task", "'winter'"),
        (b"# client =\nJo\tO\n\n# client = north\n", 9, "empty client", "'client' is empty"),
        (b"# split = dev\nJo\tO\n\n# split = train\n", 9, "unknown split", "'dev'"),
    ],
)
def test_a_bad_sentence_is_told_with_its_line(write, declare, bad, number, kind, message):
    path = write("conll", CONLL + bad + b"Jo\tB-PER\n")
    with pytest.raises(DataError, match=rf"shops\.conll, line {number}: .*{message}"):
        load_own(path, declare("tagging"), PUBLIC)
    own = load_own(path, declare("tagging"), PUBLIC, skip_bad_rows=True)
    assert own.skipped == {kind: 1}
    assert own.stream.train.texts == ("Ida waits", "Jo")


def test_a_sentence_before_any_comment_has_no_client(write, declare):
    with pytest.raises(DataError, match=r"line 1: the row has no column 'split'"):
        load_own(write("conll", b"Jo\tO\n"), declare("tagging"), PUBLIC)


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"text": ""}, "empty text", "'text' is empty"),
        ({"text": None}, "empty text", "'text' is empty"),
        ({"label": "joy"}, "undeclared label", "'joy'"),
        ({"client": None}, "empty client", "'client' is empty"),
        ({"text": "x" * 1_000_001}, "line too long", "more than 1,000,000"),
        ({"text": "a\0b"}, "NUL byte", "NUL"),
    ],
)
def test_a_bad_row_of_parquet_is_told_with_its_number(write, declare, changes, kind, message):
    path = write("parquet", [JSON, JSON | changes, JSON])
    with pytest.raises(DataError, match=rf"shops\.parquet, row 2: .*{message}"):
        load_own(path, declare(), PUBLIC)
    own = load_own(path, declare(), PUBLIC, skip_bad_rows=True)
    assert own.skipped == {kind: 1}
    assert len(own.stream.train) == 2


def test_a_parquet_cell_that_is_not_utf8_is_told_with_its_number(write, declare):
    path = write("parquet", [JSON, JSON | {"text": "abcdefgh"}, JSON])
    content = path.read_bytes()
    assert b"abcdefgh" in content
    path.write_bytes(content.replace(b"abcdefgh", b"abc\xffefgh"))
    with pytest.raises(DataError, match=r"row 2: a cell is not valid UTF-8"):
        load_own(path, declare(), PUBLIC)
    assert load_own(path, declare(), PUBLIC, True).skipped == {"not UTF-8": 1}


@pytest.mark.parametrize("cut", [4, 60, -40, -4])
def test_a_damaged_parquet_file_is_refused(write, declare, cut):
    path = write("parquet", [JSON] * 20)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"shops\.parquet cannot be read as Parquet"):
        load_own(path, declare(), PUBLIC, skip_bad_rows=True)


@pytest.mark.parametrize(
    ("ending", "content", "number", "kept"),
    [
        ("csv", HEAD + GOOD + GOOD + b'"not clo,praise,north,spring,train,p1\n', 4, 2),
        ("csv", HEAD + GOOD + GOOD + b"fine,praise,nor", 4, 2),
        ("jsonl", line() + line() + line()[:-20], 3, 2),
        ("conll", CONLL + b"Jo\tB-PER\nHolm", 9, 1),
    ],
)
def test_a_file_that_ends_in_mid_line_is_told(write, declare, ending, content, number, kept):
    declaration = declare("tagging" if ending == "conll" else "classification")
    path = write(ending, content)
    with pytest.raises(DataError, match=rf"shops\.{ending}, line {number}: the file ends within"):
        load_own(path, declaration, PUBLIC)
    own = load_own(path, declaration, PUBLIC, skip_bad_rows=True)
    assert own.skipped == {"cut short": 1}
    assert len(own.stream.train) == kept


def test_a_last_line_without_its_newline_is_whole(write, declare):
    for ending, content in (("csv", HEAD + GOOD), ("jsonl", line())):
        own = load_own(write(ending, content.rstrip(b"\n")), declare(), PUBLIC)
        assert own.stream.train.texts == ("fine",)


@pytest.mark.parametrize("ending", ["csv.gz", "jsonl.gz"])
def test_gzip_that_ends_early_is_told(write, declare, ending):
    rows = [JSON | {"text": f"{number:x}" * 40} for number in range(7, 9_000, 7)]
    path = write(ending, rows)
    path.write_bytes(path.read_bytes()[:-3_000])
    with pytest.raises(DataError, match=rf"shops\.{ending}, line \d+: the gzip data end early"):
        load_own(path, declare(), PUBLIC)
    own = load_own(path, declare(), PUBLIC, skip_bad_rows=True)
    assert own.skipped == {"cut short": 1}
    assert 0 < len(own.stream.train) < len(rows)
    assert own.stream.train.texts == tuple(row["text"] for row in rows[: len(own.stream.train)])


def test_what_is_not_gzip_or_does_not_match_its_checksum_is_told(write, declare):
    with pytest.raises(DataError, match=r"line 1: cannot be read from here on \(Not a gzipped"):
        load_own(write("jsonl.gz", line()), declare(), PUBLIC)
    content = bytearray(gzip.compress(line() * 3))
    content[-6] ^= 1
    with pytest.raises(DataError, match=r"line \d: cannot be read from here on"):
        load_own(write("jsonl.gz", bytes(content)), declare(), PUBLIC)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "csv.gz"])
def test_a_line_of_ten_megabytes_is_refused_without_being_held(write, declare, ending):
    head, good = (HEAD, GOOD) if "csv" in ending else (b"", line())
    content = head + good + b'"' + b"x" * 9_999_998 + b'"\n' + good
    path = write(ending, gzip.compress(content, 1) if ending.endswith("gz") else content)
    number = 3 if head else 2
    tracemalloc.start()
    with pytest.raises(DataError, match=rf"line {number}: the line has 10,000,000 bytes"):
        load_own(path, declare(), PUBLIC)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6_000_000
    own = load_own(path, declare(), PUBLIC, skip_bad_rows=True)
    assert own.skipped == {"line too long": 1}
    assert len(own.stream.train) == 2


def test_a_refused_line_that_opens_a_quote_takes_only_its_own_row_along(write, declare):
    opens = b'"' + b"x" * 2_000_000 + b'\nrest of the cell",praise,north,spring,train,p1\n'
    latin = b'"caf\xe9\nrest of the cell",praise,north,spring,train,p1\n'
    within = b'"cell\ncaf\xe9\nrest",praise,north,spring,train,p1\n'
    for bad, number, kind in ((opens, 3, "line too long"), (latin, 3, "not UTF-8")):
        path = write("csv", HEAD + GOOD + bad + GOOD)
        with pytest.raises(DataError, match=rf"line {number}:"):
            load_own(path, declare(), PUBLIC)
        own = load_own(path, declare(), PUBLIC, skip_bad_rows=True)
        assert own.skipped == {kind: 1}
        assert own.stream.train.texts == ("fine", "fine")
    with pytest.raises(DataError, match=r"line 4: byte 4 of the line is not UTF-8"):
        load_own(write("csv", HEAD + GOOD + within + GOOD), declare(), PUBLIC)


@pytest.mark.parametrize(
    ("stray", "told"),
    [
        (b'"fine,praise,north,spring,train,p1\n"a","praise",south,spring,train,p2\n', "not valid"),
        (b'"fine,praise,north,spring,train,p1\na",south,spring,train,p2\n', "5 cells where"),
        (b'"fine,praise,north,spring,train,p1\nx\n', "the file ends within a quoted cell"),
    ],
)
def test_a_stray_quote_that_takes_other_rows_along_cannot_be_skipped(write, declare, stray, told):
    """Otherwise one person's row would decide whether other people's rows are used."""
    for skip in (False, True):
        with pytest.raises(DataError, match=rf"line 3: {told}.* where rows end is unclear"):
            load_own(write("csv", HEAD + GOOD + stray), declare(), PUBLIC, skip_bad_rows=skip)


@pytest.mark.parametrize(
    "bad",
    [
        b"# client south\nJo\tO\n\n",
        b"# client = s\xffuth\n\n",
        b"Jo\tO\n# client = x\n\n",
        pytest.param(b"# client =" + b" " * 1_000_000 + b"south\n\n", id="too long"),
    ],
)
def test_a_comment_that_cannot_be_read_cannot_be_skipped(write, declare, bad):
    """Otherwise the sentences after it would be assigned to the previous client."""
    path = write("conll", CONLL + bad + b"Rome\tB-LOC\n")
    with pytest.raises(DataError, match="what the comment says about the rows after it is unclear"):
        load_own(path, declare("tagging"), PUBLIC, skip_bad_rows=True)


def test_an_open_quote_swallows_no_more_than_a_cell_may_hold(write, declare):
    swallowed = b"x" * 999 + b"\n"
    path = write("csv", HEAD + GOOD + b'"' + swallowed * 1_100 + GOOD)
    with pytest.raises(DataError, match=r"line 3: a cell that begins here has more than 1,000,000"):
        load_own(path, declare(), PUBLIC)


def test_a_cell_may_be_as_long_as_a_line(write, declare):
    text = b"x" * 900_000
    path = write("csv", HEAD + text + b",praise,north,spring,train,p1\n")
    assert len(load_own(path, declare(), PUBLIC).stream.train.texts[0]) == 900_000


def test_empty_lines_are_passed_over_and_still_counted(write, declare):
    for ending, content, number in (
        ("csv", HEAD + b"\n" + GOOD + b"\n\n" + b"x,joy,north,spring,train,p1\n\n", 6),
        ("jsonl", b"\n" + line() + b" \n\n" + line(label="joy") + b"\n", 5),
    ):
        with pytest.raises(DataError, match=rf"1 row not .*\n.* line {number}: label 'joy'"):
            load_own(write(ending, content), declare(), PUBLIC)


def test_twenty_problems_are_told_and_the_rest_of_the_file_is_left(write, declare):
    content = HEAD + b"x,joy,north,spring,train,p1\n" * 30
    with pytest.raises(DataError, match="20 rows or more not as declared") as caught:
        load_own(write("csv", content), declare(), PUBLIC)
    told = [each for each in str(caught.value).split("\n") if ", line " in each]
    assert len(told) == 20
    assert "line 21" in told[-1]
    own_rows = content + GOOD
    assert load_own(write("csv", own_rows), declare(), PUBLIC, True).skipped == {
        "undeclared label": 30
    }


def test_left_out_rows_are_counted_by_kind(write, declare):
    bad = [bad for bad, _ in CSV.values()]
    own = load_own(write("csv", HEAD + GOOD + b"".join(bad) + bad[0]), declare(), PUBLIC, True)
    assert own.skipped == dict.fromkeys(sorted(CSV), 1) | {"empty text": 2}
    assert own.stream.train.texts == ("fine",)


def test_of_a_person_in_train_and_test_the_first_row_counts(write, declare):
    content = (
        HEAD
        + b"at nobody's,praise,,spring,test,p9\n"
        + b"one,praise,north,spring,test,p9\n"
        + b"three,praise,north,spring,train,p9\n"
        + GOOD
    )
    own = load_own(write("csv", content), declare(), PUBLIC, skip_bad_rows=True)
    assert own.stream.test.texts == ("at nobody's", "one")
    assert own.skipped == {"person in train and test": 1}


def test_a_train_row_never_decides_about_a_public_test_row(write, declare):
    """Whether the test row counts in stored scores would reveal the person's private row."""
    path = write("csv", HEAD + GOOD + b"public,praise,,spring,test,p1\n")
    told = "a private row would decide which test rows count.*\n.*line 3: person 'p1' is in test"
    with pytest.raises(DataError, match=told):
        load_own(path, declare(test_rows="public"), PUBLIC, skip_bad_rows=True)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_person_whom_two_clients_hold_is_never_just_left_out(write, declare, ending):
    """Which of them keeps the person would depend on the rows of the other."""
    theirs = [JSON, JSON | {"client": "east"}, JSON]
    content = HEAD + GOOD + b"fine,praise,east,spring,train,p1\n" + GOOD
    path = write(ending, content if ending == "csv" else theirs)
    where, first = ("line 3", "line 2") if ending == "csv" else ("row 2", "row 1")
    told = f"{where}: person 'p1' is in client 'east' here and in 'north' in {first}"
    with pytest.raises(DataError, match=f"1 row not as declared.*\n.*{told}"):
        load_own(path, declare(), PUBLIC)
    with pytest.raises(DataError, match=f"They cannot be skipped.*\n.*{told}"):
        load_own(path, declare(), PUBLIC, skip_bad_rows=True)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            b"text,label,client,task,split\n",
            "no column 'person', which is declared as person.*'text', ",
        ),
        (b"text;label;client;task;split;person\n", "no column 'text'.*or delimiter"),
        (b"text,label,client,task,split,person,text\n", "column 'text' is duplicated"),
        (b"t\xffxt,label,client,task,split,person\n", "byte 2 of the line is not UTF-8"),
        (b"\xff\xfet\0e\0x\0t\0\n", "NUL byte"),
        (b"", "the file is empty; it needs a header with column names"),
        (b'"text,label\n', "no header"),
        (b"text,label\rclient\n", "no header"),
    ],
)
def test_a_header_no_row_can_be_read_under_is_refused_whatever_the_policy(
    write, declare, header, message
):
    for skip in (False, True):
        with pytest.raises(DataError, match=rf"shops\.csv, line 1: .*{message}"):
            load_own(write("csv", header + GOOD if header else b""), declare(), PUBLIC, skip)


def test_a_parquet_file_without_a_column_is_refused(write, declare):
    cells = {name: cell for name, cell in JSON.items() if name != "split"}
    with pytest.raises(
        DataError, match=r"no column 'split', which is declared as split; columns in"
    ):
        load_own(write("parquet", [cells]), declare(), PUBLIC, True)


def test_a_problem_never_quotes_the_text(write, declare):
    secret = b"my password is swordfish"
    rows = [secret + bad[bad.index(b",") :] for bad, _ in CSV.values() if bad.count(b",") == 5]
    with pytest.raises(DataError, match="8 rows not as declared") as caught:
        load_own(write("csv", HEAD + b"".join(rows)), declare(), PUBLIC)
    assert "swordfish" not in str(caught.value)
