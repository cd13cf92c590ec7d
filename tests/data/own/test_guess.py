"""Guesses of column roles on twenty files with unusual column names, written for this test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cslr.data.own.draft import draft, look
from cslr.errors import DataError
from cslr.seeding import Seeds

SENTENCE = "the waiter brought cold soup and nobody said a word about it because it rained on"
WORDS = SENTENCE.split(" ")
ROWS = 60


def long_text(n: int) -> str:
    rng = Seeds(n).at("text")
    return " ".join(rng.choice(WORDS, size=12)) + f" {n}"


def short_text(n: int) -> str:
    return (
        f"{WORDS[n % 16]} {WORDS[(n * 7 + 3) % 16]} {WORDS[(n * 3 + n // 16) % 16]} {WORDS[n % 13]}"
    )


def one_of(*values: Any, every: int = 1):
    return lambda n: values[n // every % len(values)]


MOOD, TOPIC = one_of("angry", "happy", "calm"), one_of("billing", "delivery", "returns", "other")
SITE, PATIENT = one_of(*[f"S-{n:02}" for n in range(6)]), one_of(*[f"P{n}" for n in range(20)])
TOWN = one_of("Aarhus", "Bergen", "Cork", "Delft", "Essen", "Faro")
SPLIT = one_of("train", "train", "train", "test")
YEAR = one_of("2023", "2024", every=30)

# name of the file: its columns, and the columns of (text, label, client, task, split, person).
FILES: dict[str, tuple[dict[str, Any], tuple[str | None, ...]]] = {
    "plain.csv": (
        {"text": long_text, "label": MOOD, "client": SITE},
        ("text", "label", "client", None, None, None),
    ),
    "german.csv": (
        {"Nachricht": long_text, "Kategorie": TOPIC, "Filiale": TOWN, "Kunde": PATIENT},
        ("Nachricht", "Kategorie", "Filiale", None, None, "Kunde"),
    ),
    "spanish.tsv": (
        {"texto": long_text, "etiqueta": MOOD, "centro": SITE},
        ("texto", "etiqueta", "centro", None, None, None),
    ),
    "nameless.csv": (
        {"a": SITE, "b": long_text, "c": MOOD},
        ("b", "c", "a", None, None, None),
    ),
    "excel.csv": (
        {"Column1": long_text, "Column2": TOPIC, "Column3": SITE, "Column4": SPLIT},
        ("Column1", "Column2", "Column3", None, "Column4", None),
    ),
    "clinic.jsonl": (
        {"narrative": long_text, "diagnosis": TOPIC, "hospitalNo": SITE, "patientId": PATIENT},
        ("narrative", "diagnosis", "hospitalNo", None, None, "patientId"),
    ),
    "label_is_a_text.csv": (
        {"label": long_text, "y": MOOD, "site": SITE},
        ("label", "y", "site", None, None, None),
    ),
    "text_is_an_id.csv": (
        {
            "text_id": one_of(*[f"t{n}" for n in range(ROWS)]),
            "raw": long_text,
            "cls": MOOD,
            "org": SITE,
        },
        ("raw", "cls", "org", None, None, None),
    ),
    "numbers.csv": (
        {"review_body": long_text, "stars": one_of("1", "5"), "shop": SITE},
        ("review_body", "stars", "shop", None, None, None),
    ),
    "sentiment.csv": (
        {"id": lambda n: str(1000 + n), "tweet": long_text, "polarity": MOOD, "device": SITE},
        ("tweet", "polarity", "device", None, None, None),
    ),
    "intents.jsonl": (
        {"query": short_text, "intents": one_of(["ask"], ["ask", "book"]), "bank": SITE},
        ("query", "intents", "bank", None, None, None),
    ),
    "piped.csv": (
        {"utt": short_text, "acts": one_of("ask|book", "book", "ask"), "who": SITE},
        ("utt", "acts", "who", None, None, None),
    ),
    "tagged.jsonl": (
        {
            "tokens": one_of(["Ann", "left"], ["He", "sang"]),
            "tags": one_of(["B-PER", "O"]),
            "source_site": SITE,
        },
        ("tokens", "tags", "source_site", None, None, None),
    ),
    "waves.csv": (
        {"comment": long_text, "class": MOOD, "branch": TOWN, "quarter": YEAR},
        ("comment", "class", "branch", "quarter", None, None),
    ),
    "semicolon.csv": (
        {"BODY TEXT": long_text, "TARGET": MOOD, "OWNER-ID": SITE, "SET": SPLIT},
        ("BODY TEXT", "TARGET", "OWNER-ID", None, "SET", None),
    ),
    "camel.jsonl": (
        {"messageText": long_text, "topicLabel": TOPIC, "storeCode": SITE, "userName": PATIENT},
        ("messageText", "topicLabel", "storeCode", None, None, "userName"),
    ),
    "two_texts.csv": (
        {"headline": short_text, "article": long_text, "section": TOPIC, "newspaper": TOWN},
        ("article", "section", "newspaper", None, None, None),
    ),
    "hashes.jsonl": (
        {"h": one_of(*[f"{n:x}f9c" for n in range(5)]), "said": long_text, "mood": MOOD},
        ("said", "mood", "h", None, None, None),
    ),
    "people.tsv": (
        {"author": PATIENT, "post": long_text, "flair": TOPIC, "sub": TOWN},
        ("post", "flair", "sub", None, None, "author"),
    ),
    "dates.csv": (
        {
            "date": lambda n: f"2024-03-{n % 28 + 1:02}",
            "complaint": long_text,
            "product": TOPIC,
            "company": TOWN,
        },
        ("complaint", "product", "company", None, None, None),
    ),
}
ROLES = ("text", "label", "client", "task", "split", "person")


def written(folder: Path, name: str) -> Path:
    columns, _ = FILES[name]
    rows = [{column: make(n) for column, make in columns.items()} for n in range(ROWS)]
    path = folder / name
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path
    between = {"semicolon.csv": ";"}.get(name, "\t" if path.suffix == ".tsv" else ",")
    lines = [between.join(columns), *[between.join(map(str, row.values())) for row in rows]]
    path.write_text("\n".join(lines) + "\n")
    return path


def right(folder: Path, name: str, given: dict[str, str] | None = None) -> bool:
    roles = look(written(folder, name), given).roles
    return tuple(roles.get(role) for role in ROLES) == FILES[name][1]


def test_at_least_seventeen_of_twenty_files_are_guessed_right(tmp_path):
    assert len(FILES) == 20
    wrong = [name for name in FILES if not right(tmp_path, name)]
    assert len(wrong) <= 3, wrong


def test_a_topic_is_a_label_where_no_other_column_is(tmp_path):
    path = tmp_path / "complaints.csv"
    lines = [
        f"The parcel {n} came late,{('bill', 'van')[n % 2]},s{n % 3},q{n % 4}" for n in range(40)
    ]
    path.write_text("\n".join(["message,topic,store,quarter", *lines]))
    assert look(path, None).roles == {
        "text": "message",
        "label": "topic",
        "client": "store",
        "task": "quarter",
    }


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_guess_is_corrected_by_flags_in_one_try(tmp_path, name):
    wanted = {role: col for role, col in zip(ROLES, FILES[name][1], strict=True) if col}
    roles = look(written(tmp_path, name), wanted).roles
    assert {role: roles[role] for role in wanted} == wanted


def test_every_guess_says_why(tmp_path):
    seen = look(written(tmp_path, "nameless.csv"))
    assert {role: guess.in_full for role, guess in seen.guesses.items()} == {
        "text": "long texts, 13 words on average",
        "label": "repeated values, 3 different ones",
        "client": "repeated ids, each in 10 rows on average",
    }
    text = draft(written(tmp_path, "nameless.csv"))
    assert "(guessed because: repeated ids)" in text
    guessed = [line for line in text.splitlines() if "(guessed" in line]
    assert not any(each.isdigit() for line in guessed for each in line), "the draft becomes public"
    assert look(written(tmp_path, "plain.csv"), {"label": "label"}).guesses["label"].why == (
        "as you said"
    )


def test_a_flag_that_names_no_column_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(DataError, match=r"--text nope: no such column .*: 'a', 'b', 'c'"):
        look(written(tmp_path, "nameless.csv"), {"text": "nope"})


def test_clients_are_not_counted_where_none_is_known(tmp_path):
    path = tmp_path / "no_client.csv"
    lines = [f"{long_text(n)},{MOOD(n)}" for n in range(ROWS)]
    path.write_text("\n".join(["text,label", *lines]))
    assert "clients = 1  # fill in: no column of clients was found" in draft(path)


def test_bad_rows_are_counted_and_the_first_are_kept(tmp_path):
    path = written(tmp_path, "plain.csv")
    path.write_text(path.read_text() + "one cell\n" * 7)
    seen = look(path)
    assert seen.bad == 7
    assert [problem.line for problem in seen.problems] == [62, 63, 64, 65, 66]
