"""Declarations: what is accepted, and a one-line error for everything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from cslr.data.own import declaration_path, load_declaration
from cslr.errors import ConfigError

WHOLE = """
confirmed = true
name = "shops"
family = "classification"
scenario = "class"
clients = 12

[columns]
text = "message"
label = "kind"
client = "shop"
task = "season"

[privacy]
epsilon = 3.0

[[labels]]
name = "praise"
description = "A customer is pleased."
examples = ["Lovely!"]

[[labels]]
name = "blame"
description = "A customer is angry."

[[tasks]]
name = "spring"

[[tasks]]
name = "autumn"
labels = ["blame"]
"""


@pytest.fixture
def put(tmp_path: Path):
    def write(*changes: tuple[str, str], text: str = WHOLE) -> Path:
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "shops.cslr.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_declaration_is_what_the_file_says(put):
    declaration = load_declaration(put())
    assert (declaration.name, declaration.clients) == ("shops", 12)
    assert declaration.columns.roles() == {
        "text": "message",
        "label": "kind",
        "client": "shop",
        "task": "season",
    }
    assert (declaration.privacy.epsilon, declaration.privacy.delta) == (3.0, 1e-5)
    assert declaration.labels[0].examples == ("Lovely!",)
    assert declaration.tasks[0].labels is None
    assert declaration.tasks[1].labels == ("blame",)
    assert (declaration.separator, declaration.test_share, declaration.public) == ("|", None, None)
    assert declaration.missing() == ()


def test_a_file_of_public_sentences_is_looked_for_beside_the_declaration(put, tmp_path):
    path = put(("clients = 12", 'clients = 12\npublic = "more/own.txt"'))
    assert load_declaration(path).public == tmp_path / "more/own.txt"
    path = put(("clients = 12", 'clients = 12\npublic = "/else/own.txt"'))
    assert load_declaration(path).public == Path("/else/own.txt")


@pytest.mark.parametrize("name", ["shops.csv", "shops.csv.gz", "shops.parquet", "shops.jsonl.gz"])
def test_a_declaration_lies_beside_its_data(name):
    assert declaration_path(Path("some") / name) == Path("some/shops.cslr.toml")
    assert declaration_path(Path("some") / name, Path("my.toml")) == Path("my.toml")


TYPES = (
    ('family = "classification"', 'family = "tagging"'),
    ('examples = ["Lovely!"]', ""),
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([("clients = 12", "")], "clients: Field required"),
        ([("clients = 12", "clients = 0")], "clients: .*greater than or equal to 1"),
        ([("clients = 12", "clients = 12\ncleints = 3")], "did you mean 'clients'"),
        ([("epsilon = 3.0", "epsilon = -1")], "privacy.epsilon: .*greater than 0"),
        ([("epsilon = 3.0", "epsilon = inf")], "privacy.epsilon: .*finite"),
        ([("epsilon = 3.0", "")], "privacy.epsilon: Field required"),
        ([("epsilon = 3.0", "epsilon = 3.0\nsigma = 1")], "unknown setting privacy.sigma; known"),
        (
            [('description = "A customer is angry."', 'descripton = "x"')],
            "labels.2.description: .*; unknown setting labels.2.descripton; did you mean 'desc",
        ),
        ([('name = "blame"', 'name = " "')], "labels.2.name: "),
        ([('name = "blame"', 'name = "praise"')], "labels.*'praise' is duplicated"),
        ([('name = "autumn"', 'name = "spring"')], "tasks.*'spring' is duplicated"),
        ([('label = "kind"', 'label = "message"')], "columns.*'message' is duplicated"),
        ([('["blame"]', '["joy"]')], "task 'autumn' has label 'joy', which is not in"),
        (
            [('["blame"]', '["blame", "blame"]')],
            "task 'autumn', labels: 'blame' is duplicated",
        ),
        ([('["blame"]', "[]")], "tasks.2.labels"),
        (
            [('name = "spring"', 'name = "spring"\nlabels = ["blame"]')],
            "'praise' is in no task",
        ),
        ([('name = "shops"', 'name = "../shops"')], "name: "),
        ([('scenario = "class"', 'scenario = "task"')], "task 'autumn' has one label only"),
        ([('scenario = "class"', 'scenario = "some"')], "scenario: .*'class', 'domain' or 'task'"),
        ([('task = "season"', "")], "columns.task must name the column"),
        (
            [
                ('task = "season"', 'task = "season"\nsplit = "s"'),
                ("= 12", "= 12\ntest_share = 0.2"),
            ],
            "cannot be combined",
        ),
        ([("clients = 12", "clients = 12\ntest_share = 1.0")], "test_share: .*less than 1"),
        ([("clients = 12", 'clients = 12\ndelimiter = "::"')], "delimiter: .*',', ';',"),
        ([("confirmed = true", 'confirmed = "true"')], "confirmed: .*valid boolean"),
        (
            [('"classification"', '"intents"'), ("clients = 12", 'clients = 12\nseparator = "a"')],
            "label 'praise' contains the separator 'a'",
        ),
        ([*TYPES, ('"praise"', '"O"')], "label 'O': declare the entity type only, such as PER"),
        ([*TYPES, ('"praise"', '"B-PER"')], "label 'B-PER': declare the entity type only"),
        ([*TYPES, ('"praise"', '"a b"')], "label 'a b': an entity type must be one word"),
        ([TYPES[0]], "label 'praise', example 'Lovely!': mark every entity as"),
        ([TYPES[0], ('"Lovely!"', '"[Ann|joy] ."')], "mark every entity as"),
        ([TYPES[0], ('"Lovely!"', '"[Ann|praise"')], "the example .*cannot be parsed at"),
    ],
)
def test_a_mistake_is_told_in_one_line(put, changes, message):
    path = put(*changes)
    with pytest.raises(ConfigError, match=rf"shops\.cslr\.toml: .*{message}") as caught:
        load_declaration(path)
    assert "\n" not in str(caught.value)


def test_classification_needs_something_to_tell_apart(put):
    blame = WHOLE.index('[[labels]]\nname = "blame"')
    alone = WHOLE[:blame] + '[[tasks]]\nname = "spring"\n'
    with pytest.raises(ConfigError, match="at least two labels"):
        load_declaration(put(text=alone))


def test_a_missing_or_unreadable_declaration_says_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match=r"does not exist; draft one with `cslr data init FILE`"):
        load_declaration(tmp_path / "nowhere.cslr.toml")
    with pytest.raises(ConfigError, match=r"cannot read .*: Is a directory"):
        load_declaration(tmp_path)
    path = tmp_path / "shops.cslr.toml"
    for content in (b"name = ", b"\xff\xfe", b"a = " + b"[" * 100_000):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="is not valid TOML"):
            load_declaration(path)
