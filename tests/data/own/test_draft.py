"""Drafts of declarations: what is guessed, and that a draft is refused until it is confirmed."""

from __future__ import annotations

import gzip
import re
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cslr.cli.data_files import init_file
from cslr.data.own import check, declaration_path, draft, load_declaration, load_own
from cslr.errors import ConfigError, CslrError, DataError

PUBLIC = ("A public sentence.",)


def filled(text: str) -> str:
    """What a data holder does to a draft that guessed right."""
    text = text.replace("confirmed = false", "confirmed = true")
    types = re.compile(r'name = "(.*)"  # confirm\n(description.*)\n(#.*)\nexamples = \[\]')
    text = types.sub(r'name = "\1"\n\2\nexamples = ["So [it|\1] is ."]', text)
    return text.replace('description = ""', 'description = "Something is meant."')


def drafted(path: Path) -> dict[str, Any]:
    return tomllib.loads(draft(path))


def test_a_draft_that_is_filled_in_loads(write, rows):
    path = write("csv", rows)
    declared = init_file(path).path
    assert declared == declaration_path(path)
    assert declared.read_text(encoding="utf-8") == draft(path)
    with pytest.raises(
        ConfigError, match="add a description of label 'blame'; add a description of label 'order'"
    ):
        load_own(path, load_declaration(declared), PUBLIC)
    declared.write_text(draft(path).replace("confirmed = false", "confirmed = true"))
    with pytest.raises(ConfigError, match="add a description of label 'blame'"):
        load_own(path, load_declaration(declared), PUBLIC)
    declared.write_text(filled(draft(path)).replace("confirmed = true", "confirmed = false"))
    with pytest.raises(ConfigError, match="check it and set confirmed = true"):
        load_own(path, load_declaration(declared), PUBLIC)
    declared.write_text(filled(draft(path)))
    own = load_own(path, load_declaration(declared), PUBLIC)
    assert own.stream.train.texts == tuple(row["text"] for row in rows[:3])
    assert [label.name for label in own.stream.labels] == ["blame", "order", "praise"]
    assert [(task.name, task.labels) for task in own.stream.tasks] == [
        ("spring", (0, 2)),
        ("autumn", (1,)),
    ]
    assert own.stream.clients == 3


def test_a_draft_is_written_again_and_a_declaration_is_not(write, rows, tmp_path):
    path = write("csv", rows)
    declared = init_file(path).path
    declared.write_text(declared.read_text().replace("epsilon = 8.0", "epsilon = 2.0"))
    again = init_file(path)
    assert again.before == declared.with_name("shops.cslr.toml~")
    assert "epsilon = 2.0" in again.before.read_text()
    assert declared.read_text(encoding="utf-8") == draft(path)
    for kept in (filled(draft(path)), "not = [toml", "other = 1"):
        declared.write_text(kept)
        with pytest.raises(ConfigError, match=r"shops\.cslr\.toml exists already"):
            init_file(path)
        assert declared.read_text() == kept
    assert init_file(path, tmp_path / "other.toml").path == tmp_path / "other.toml"


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "jsonl.gz", "parquet"])
def test_a_draft_is_the_same_for_every_format(write, rows, ending):
    first = drafted(write("csv", rows))
    assert drafted(write(ending, rows)) == first
    assert first["family"] == "classification"
    assert first["confirmed"] is False
    assert first["clients"] == 3
    assert {label["description"] for label in first["labels"]} == {""}


def test_everything_guessed_is_marked(write, rows):
    text = draft(write("csv", rows))
    for line in text.split("\n"):
        if re.match(
            r"(family|scenario|clients|text|label|client|task|split|epsilon|labels) =", line
        ):
            assert "# confirm" in line
    assert "N is public" in text
    assert "come from private rows" in text


@pytest.mark.parametrize(
    ("names", "roles"),
    [
        (
            ["review", "sentiment", "hospital", "domain", "fold", "patient"],
            ["text", "label", "client", "task", "split", "person"],
        ),
        (["utterance", "intent", "user_id", "service"], ["text", "label", "client", "task"]),
        (["MessageBody", "Class", "Bank", "Period"], ["text", "label", "client", "task"]),
        (["user", "site", "sentence", "label"], ["person", "client", "text", "label"]),
        (["text", "text_label", "device"], ["text", "label", "client"]),
    ],
)
def test_columns_are_guessed_from_their_names(write, names, roles):
    row = {name: "train" if name == "fold" else f"x{place}" for place, name in enumerate(names)}
    assert drafted(write("csv", [row]))["columns"] == dict(zip(roles, names, strict=True))


def test_columns_that_are_not_found_are_asked_for(write, tmp_path):
    path = write("csv", [{"alpha": "a", "beta": "b"}])
    text = draft(path)
    assert 'client = ""  # not found' in text
    assert '# Columns in the file: "alpha", "beta"' in text
    declared = tmp_path / "shops.cslr.toml"
    declared.write_text(filled(text))
    with pytest.raises(
        ConfigError,
        match=r"name the column of the text .*; name the column of the client .*; declare each",
    ):
        load_declaration(declared)


def test_a_split_column_with_other_names_is_not_taken(write, rows):
    text = draft(write("csv", [row | {"split": "3"} for row in rows]))
    assert '# split = "split"  # has values other than train and test' in text
    assert "# test_share" in text


@pytest.mark.parametrize(
    ("cells", "family"),
    [
        (["a", "b"], "classification"),
        (["a", "b|c"], "intents"),
        (["a", '["b", "c"]'], "intents"),
        (["O|B-PER", "O|O"], "tagging"),
        (["a|b", "B-x|O"], "intents"),
    ],
)
def test_the_family_is_guessed_from_the_cells(write, cells, family):
    rows = [{"text": "two words", "label": cell, "client": "c"} for cell in cells]
    declared = drafted(write("csv", rows))
    assert declared["family"] == family
    if family == "tagging":
        assert [label["name"] for label in declared["labels"]] == ["PER"]


def test_a_label_that_is_only_ever_second_belongs_to_the_task_too(write):
    rows = [{"text": "two words", "label": "a|b", "client": "c", "task": "t"}]
    rows += [{"text": "two words", "label": "c", "client": "c", "task": "u"}]
    assert drafted(write("csv", rows))["tasks"] == [
        {"name": "t", "labels": ["a", "b"]},
        {"name": "u", "labels": ["c"]},
    ]


def test_lists_of_one_label_are_intents(write):
    rows = [{"text": "two words", "labels": ["a"], "client": "c"}]
    for ending in ("jsonl", "parquet"):
        assert drafted(write(ending, rows))["family"] == "intents"


def test_conll_is_tagging(write, tmp_path):
    lines = b"# client = a\n# task = x\nIda\tB-PER\nHolm\tI-PER\n\n# client = b\nRome\tB-LOC\n"
    path = write("conll", lines)
    declared = drafted(path)
    assert declared["family"] == "tagging"
    assert declared["columns"] == {
        "text": "text",
        "label": "label",
        "client": "client",
        "task": "task",
    }
    assert [label["name"] for label in declared["labels"]] == ["LOC", "PER"]
    (tmp_path / "shops.cslr.toml").write_text(filled(draft(path)))
    own = load_own(path, load_declaration(tmp_path / "shops.cslr.toml"), PUBLIC)
    assert own.stream.train.answers == ((3, 4), (1,))


def test_tasks_that_share_all_labels_are_a_domain_scenario(write, rows):
    assert drafted(write("csv", rows))["scenario"] == "class"
    both = [row | {"task": task} for row in rows for task in ("a", "b")]
    declared = drafted(write("csv", both))
    assert declared["scenario"] == "domain"
    assert declared["tasks"] == [{"name": "a"}, {"name": "b"}]


def test_a_delimiter_other_than_a_comma_is_found(write, rows):
    flat = [row | {"text": "plain"} for row in rows]
    for delimiter in (";", "\t"):
        content = write("csv", flat).read_bytes().replace(b",", delimiter.encode())
        declared = drafted(write("csv", content))
        assert declared["delimiter"] == delimiter
        assert declared["clients"] == 3


def test_bad_rows_do_not_stop_a_draft(write, rows):
    content = write("jsonl", rows).read_bytes()
    assert drafted(write("jsonl", b"{oops\n\xff\n" + content)) == drafted(write("jsonl", content))


def test_too_many_names_are_not_all_listed(write):
    rows = [{"text": "t", "label": f"l{number}", "client": "c"} for number in range(300)]
    path = write("csv", rows)
    assert len(drafted(path)["labels"]) == 200
    assert "check that the right columns are used" in draft(path)


def test_names_are_written_so_that_toml_reads_them_back(write, rows):
    names = ['"quoted"', "back\\slash", "#x", "tab\tand\nline", "\x7f\x1b", "Zürich 🍎", "]]", "'"]
    path = write("jsonl", [rows[0] | {"label": name, "task": name} for name in names])
    assert [label["name"] for label in drafted(path)["labels"]] == sorted(names)
    assert [task["name"] for task in drafted(path)["tasks"]] == names


def test_a_name_of_a_file_becomes_a_name_of_a_path(tmp_path):
    for file, name in (("../my rows (2).csv", "my-rows-2"), ("...csv", "own"), ("ü.csv", "own")):
        path = tmp_path / Path(file).name
        path.write_bytes(b"text\nx\n")
        assert drafted(path)["name"] == name


def test_a_file_that_cannot_be_read_has_no_draft(tmp_path):
    with pytest.raises(DataError, match="cannot be opened"):
        draft(tmp_path / "nowhere.csv")


GOOD = {
    "csv": b"text,label,client,task\na,x,n,t\n" + b'"b, ""c""\nd",y,m,t\n' + b"e,x,n,u\nf,y,m,u\n",
    "jsonl": b'{"text": "a", "label": ["x", "y"], "client": 1, "task": "t"}\n' * 4,
    "conll": b"# client = a\n# task = t\nIda\tB-PER\nHolm\tI-PER\n\n# client = b\nRome\tB-LOC\n",
}
SHREDS = [b'"', b",", b"\n", b"\r", b"\0", b"\xff", b"\\", b"[", b"]", b"{", b"}", b"\xed\xa0\x80"]
SHREDS += [b"# a = b\n", b'\\ud800"', b"\xef\xbb\xbf", b"\t", b" ", b"|", b"O", b"B-", b"=", b":"]


@st.composite
def mangled(draw: st.DrawFn, ending: str) -> bytes:
    """Valid bytes with random pieces removed, duplicated and inserted."""
    content = GOOD[ending]
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(content)))
        stop = draw(st.integers(start, min(len(content), start + 12)))
        piece = draw(
            st.sampled_from([*SHREDS, content[start:stop] * 2, b""]) | st.binary(max_size=4)
        )
        content = content[:start] + piece + content[stop:]
    return content


@pytest.mark.parametrize("zipped", ["", ".gz"])
@pytest.mark.parametrize("ending", list(GOOD))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_mangled_bytes_are_an_error_of_ours_or_a_stream(tmp_path, ending, zipped, data):
    content = data.draw(mangled(ending))
    path = tmp_path / f"rows.{ending}{zipped}"
    if zipped:
        packed = gzip.compress(content, mtime=0)
        content = packed[: len(packed) - data.draw(st.sampled_from([0, 0, 0, 3, 12]))]
    path.write_bytes(content)
    declared = declaration_path(path)
    try:
        declared.write_text(filled(draft(path)), encoding="utf-8")
        tomllib.loads(declared.read_text(encoding="utf-8"))
        declaration = load_declaration(declared)
        report = check(path, declaration, skip_bad_rows=True)
        own = load_own(path, declaration, PUBLIC, skip_bad_rows=True)
    except CslrError:
        return
    assert report.ready
    assert sum(own.skipped.values()) == sum(report.totals.values())
    assert len(own.stream.train) == sum(task.train for task in report.tasks) > 0
    if not own.skipped:
        load_own(path, declaration, PUBLIC, skip_bad_rows=False)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_mangled_parquet_is_an_error_of_ours_or_a_stream(write, rows, declare, data):
    path = write("parquet", rows)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    with suppress(CslrError):
        draft(path)
        load_own(path, declare(), PUBLIC, skip_bad_rows=True)


PLAIN = st.characters(exclude_categories=["Cs"], exclude_characters="\0|[")


@given(name=st.text(PLAIN, min_size=1, max_size=30))
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_name_survives_a_draft(write, rows, name):
    path = write("jsonl", [rows[0] | {"label": name}])
    names = [label["name"] for label in drafted(path).get("labels", [])]
    assert names == ([name.strip()] if name.strip() else [])


def test_a_column_name_that_is_no_text_is_drafted_all_the_same(write):
    text = draft(write("jsonl", b'{"\\ud800": 1, "text": "x"}\n'))
    assert '# Columns in the file: "?", "text"' in text
    text.encode()
