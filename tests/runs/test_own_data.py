"""Own rows in a run: the declaration settles what is promised; contradictions are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cslr.config import Config, load_config
from cslr.errors import ConfigError, CslrError, DataError
from cslr.runs.own_data import (
    complete,
    declaration_of,
    load_own_stream,
    pointer_beside,
    public_warning,
    rows_of,
)

DECLARATION = """confirmed = true
name = "mine"
family = "classification"
scenario = "domain"
clients = 2
people = 9
columns = { person = "who", split = "split" }
[privacy]
epsilon = 3
delta = 1e-6
unit = "person"
[[labels]]
name = "a"
description = "about a"
[[labels]]
name = "b"
description = "about b"
[[tasks]]
name = "all"
labels = ["a", "b"]
"""
ROWS = [
    "text,label,client,who,split",
    "first text,a,x,anna,train",
    "second text,b,x,bert,train",
    "third text,a,y,carl,test",
    ",b,y,dora,train",
]


@pytest.fixture
def own(tmp_path):
    """``own(**settings)``: a configuration about a file of rows in this folder."""
    (tmp_path / "mine.csv").write_text("\n".join(ROWS) + "\n")
    (tmp_path / "mine.cslr.toml").write_text(DECLARATION)
    sentences = [f"Public sentence number {n}" for n in range(120)]
    (tmp_path / "public.txt").write_text("\n".join(sentences) + "\n")

    def configured(**settings: object) -> Config:
        files = {"stream.data": tmp_path / "mine.csv", "stream.public": tmp_path / "public.txt"}
        given = {name.replace("__", "."): value for name, value in settings.items()}
        return load_config(None, {**files, **given})

    return configured


def declare(folder: Path, before: str, after: str) -> None:
    """Change the declaration."""
    path = folder / "mine.cslr.toml"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def completed(config: Config) -> Config:
    return complete(config, declaration_of(config.stream))


def test_the_declaration_settles_what_is_promised_and_privacy_is_enforced(own, tmp_path):
    config = completed(own())
    assert (config.stream.name, config.stream.scenario) == ("mine", "domain")
    assert config.stream.declaration == tmp_path / "mine.cslr.toml"
    privacy = config.privacy
    assert (privacy.mode, privacy.epsilon, privacy.budget) == ("enforced", 3.0, 3.0)
    assert (privacy.delta, privacy.adversary, privacy.unit) == (1e-6, "roster", "person")
    assert privacy.federation == tmp_path / "mine.cslr-federation"
    assert completed(config) == config


def test_a_run_may_spend_less_than_the_budget_and_not_more(own):
    config = completed(own(privacy__epsilon=1.0))
    assert (config.privacy.epsilon, config.privacy.budget) == (1.0, 3.0)
    assert completed(own(privacy__epsilon=3.0)).privacy.epsilon == 3.0
    with pytest.raises(ConfigError, match=r"--epsilon 3\.5 exceeds the budget .* epsilon = 3 in"):
        completed(own(privacy__epsilon=3.5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stream__name": "desk"}, "--stream desk and --data .* are two data sets"),
        ({"stream__clients": 2}, "--clients is for simulated clients"),
        ({"stream__alpha": 1.0}, "--alpha is for simulated clients"),
        ({"stream__rows": "all"}, "--rows is for simulated clients"),
        ({"stream__min_rows": 7}, "--min-rows is for simulated clients"),
        ({"stream__poisoning": "mislead-0.25"}, r"stream\.poisoning is for simulated clients"),
        ({"stream__scenario": "class"}, "--scenario class contradicts .* declares domain"),
        ({"privacy__delta": 1e-5}, "--delta 1e-05 contradicts .* declares 1e-06"),
        ({"privacy__adversary": "public"}, "--adversary public contradicts .* against roster"),
        ({"privacy__unit": "client"}, "--unit client: .* promises to hide one person"),
        ({"privacy__budget": 5.0}, r"privacy\.budget = 5 contradicts the budget declared"),
        ({"privacy__mode": "simulated"}, "--privacy simulated is not allowed on your own data"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_that_contradict_the_declaration_are_refused_by_name(own, settings, message):
    with pytest.raises(CslrError, match=message):
        completed(own(**settings))


def test_the_same_settings_as_declared_are_no_contradiction(own):
    same = {
        "stream__name": "mine",
        "stream__scenario": "domain",
        "privacy__delta": 1e-6,
        "privacy__adversary": "roster",
        "privacy__unit": "person",
        "privacy__budget": 3.0,
    }
    assert completed(own(**same)).privacy == completed(own()).privacy


def test_public_rows_are_simulated_only_where_that_is_asked_for(own, tmp_path):
    declare(tmp_path, "confirmed = true\n", "confirmed = true\npublic = true\n")
    assert completed(own()).privacy.mode == "enforced"
    config = completed(own(privacy__mode="simulated", privacy__epsilon=99.0))
    assert (config.privacy.mode, config.privacy.epsilon) == ("simulated", 99.0)
    assert config.privacy.federation is None
    with pytest.raises(ConfigError, match="are for enforced privacy"):
        completed(own(privacy__mode="simulated", privacy__evaluate="private"))


@pytest.mark.parametrize(
    ("declared", "given", "expected"),
    [
        ("clients", None, "shown"),
        ("public", None, "stored"),
        ("public", "none", "none"),
        ("clients", "stored", "stored"),
        ("clients", "private", "private"),
    ],
)
def test_scores_are_stored_by_default_only_on_public_test_rows(
    own, tmp_path, declared, given, expected
):
    declare(tmp_path, "clients = 2\n", f'clients = 2\ntest_rows = "{declared}"\n')
    settings = {} if given is None else {"privacy__evaluate": given}
    assert completed(own(**settings)).privacy.evaluation == expected


def test_test_rows_that_are_public_or_not_there_are_not_counted_privately(own, tmp_path):
    declare(tmp_path, ', split = "split"', "")
    with pytest.raises(ConfigError, match=r"declares no test rows; add columns\.split"):
        completed(own(privacy__evaluate="private"))
    declare(tmp_path, "clients = 2\n", "clients = 2\ntest_share = 0.2\n")
    assert completed(own(privacy__evaluate="private")).privacy.evaluation == "private"
    declare(tmp_path, "test_share = 0.2\n", 'test_rows = "public"\n')
    declare(tmp_path, 'person = "who"', 'person = "who", split = "split"')
    with pytest.raises(ConfigError, match="declares test rows public; remove it"):
        completed(own(privacy__evaluate="private"))


def test_a_declaration_must_be_confirmed_and_the_rows_must_be_there(own, tmp_path):
    config = own()
    declare(tmp_path, "confirmed = true", "confirmed = false")
    with pytest.raises(CslrError, match="confirmed"):
        completed(config)
    (tmp_path / "mine.csv").unlink()
    with pytest.raises(DataError, match=r"mine\.csv does not exist; give --data FILE"):
        declaration_of(config.stream)


def test_without_public_sentences_it_is_said_where_to_get_them(own):
    with pytest.raises(ConfigError, match=r"give --anchors FILE, .* at least 100 sentences"):
        completed(own(stream__public=None))


def test_public_sentences_may_be_named_by_the_declaration(own, tmp_path):
    declare(tmp_path, "confirmed = true\n", 'confirmed = true\npublic = "public.txt"\n')
    found = completed(own(stream__public=None)).stream.public
    assert found.resolve() == tmp_path / "public.txt"


# -- rows, and what their holder is told of them ---------------------------------------------------


def test_bad_rows_are_skipped_and_counted_only_where_that_is_asked_for(own):
    config = own(stream__rows="valid")
    stream, notices = load_own_stream(config.stream, declaration_of(config.stream))
    assert (len(stream.train), len(stream.test)) == (2, 1)
    assert [notice.partition("(")[2] for notice in notices] == ["empty text 1)"]
    assert notices[0].startswith("skipped 1 bad rows of ")
    plain = own()
    with pytest.raises(DataError, match="empty"):
        load_own_stream(plain.stream, declaration_of(plain.stream))


@pytest.mark.parametrize(
    ("shared", "lines"), [(5, "line 1, 2, 3, 4, 5)"), (6, "line 1, 2, 3, 4, 5, ...)")]
)
def test_of_public_sentences_in_clients_texts_the_first_five_lines_are_named(
    own, tmp_path, shared, lines
):
    """In train and test rows alike."""
    sentences = (tmp_path / "public.txt").read_text().splitlines()
    rows = [f"{each},a,x,p{n},{('train', 'test')[n % 2]}" for n, each in enumerate(sentences)]
    (tmp_path / "mine.csv").write_text("\n".join([ROWS[0], *rows[:shared]]) + "\n")
    config = own()
    _, (notice,) = load_own_stream(config.stream, declaration_of(config.stream))
    assert notice.startswith(f"warning: {shared} sentences of {tmp_path / 'public.txt'} also occur")
    assert lines in notice


def test_few_public_sentences_are_a_warning_and_enough_of_them_none(own):
    config = own(replay__dimension=20)
    family, many = "classification", tuple(f"sentence {n}" for n in range(100))
    assert public_warning(config, many, 384, family) is None
    assert "contains 99 distinct sentences" in public_warning(config, many[:99], 384, family)
    assert public_warning(config, many[:40], 8, family) is None  # no more directions
    assert public_warning(own(stream__public=None), many[:3], 384, family) is None


def test_for_names_distinct_words_count_and_not_sentences(own):
    """A hundred sentences of a template have few words, however often they are repeated."""
    config = own(replay__dimension=20)
    many = tuple(f"word{n} and more" for n in range(98))
    assert public_warning(config, many, 384, "tagging") is None
    few = public_warning(config, ("The same word .",) * 500, 384, "tagging")
    assert "contains 4 distinct words, which are few for 20 directions" in few
    assert few.endswith("Use sentences with 100 distinct words or more")


def test_what_changes_neither_rows_nor_their_meaning_keeps_their_ledger(own, tmp_path):
    """More clients, another budget or more public sentences: the same rows, so the same ledger."""
    config = own()
    before = rows_of(config.stream, declaration_of(config.stream))
    assert (before.path, before.stem) == (tmp_path / "mine.csv", "mine")
    assert pointer_beside(tmp_path / "mine.csv") == before.pointer == tmp_path / "mine.cslr-ledger"
    for old, new in (
        ("clients = 2", "clients = 3"),
        ("people = 9", "people = 10"),
        ("epsilon = 3", "epsilon = 4"),
        ("confirmed = true\n", 'confirmed = true\npublic = "public.txt"\n'),
        ("people = 10", "people = 10\nrows_per_person = 2\nclients_per_person = 2"),
    ):
        declare(tmp_path, old, new)
        assert rows_of(config.stream, declaration_of(config.stream)) == before
    declare(tmp_path, 'name = "b"', 'name = "c"')
    declare(tmp_path, '["a", "b"]', '["a", "c"]')
    assert rows_of(config.stream, declaration_of(config.stream)) != before
