"""Rows of the data sets of ``outside.py``, read from public packages."""

from __future__ import annotations

import email
import gettext
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from email.message import Message
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["SOURCES", "Row"]

LONGEST: Final = 400
LONGEST_MAIL: Final = 4_000
NOUN, VERB = 3, 29
"""Numbers of the first lexicographer files of nouns and verbs, in the order of lexnames(5)."""
_NOUNS: Final = (
    "Tops act animal artifact attribute body cognition communication event feeling food group "
    "location motive object person phenomenon plant possession process quantity relation shape "
    "state substance time"
)
_VERBS: Final = (
    "body change cognition communication competition consumption contact creation emotion motion "
    "perception possession social stative weather"
)
LEXNAMES: Final = {
    **{NOUN + place: f"noun.{name}" for place, name in enumerate(_NOUNS.split())},
    **{VERB + place: f"verb.{name}" for place, name in enumerate(_VERBS.split())},
}
GROUPS: Final = {
    **{0: "smileys", 1: "people", 3: "animals", 4: "food"},
    **{5: "travel", 6: "activities", 7: "objects", 8: "symbols"},
}
CATALOGUES: Final = {
    "gcc": ("gcc-12", "cpplib-12"),
    "postgres": ("postgres-15", "plpgsql-15"),
    "gnupg": ("gnupg2",),
    "gimp": ("gimp20",),
    "gnumeric": ("gnumeric-1.12.55",),
    "apt": ("apt", "aptitude"),
}
"""Names of message catalogues, for programs whose catalogue has another name."""

KINDS: Final = {
    "language": "LANGUAGE",
    **dict.fromkeys(("company", "body"), "ORGANISATION"),
    "operating system": "SYSTEM",
    "protocol": "PROTOCOL",
}
"""Of subjects of a dictionary of computing, the kind of name that their entries are about."""
_REFERENCE: Final = re.compile(r"\{([^{}()]+)\}")

_Labels = Mapping[str, str]


class Row(NamedTuple):
    """A text, its labels with the main one first, and its keeper, which determines its client."""

    text: str
    labels: tuple[str, ...]
    keeper: str
    person: str = ""
    """The person it is about; empty: each row is a person of its own."""
    task: str = ""
    """Given only if all tasks have the same labels."""


def packages(available: Path) -> Iterator[dict[str, str]]:
    """The fields of every package that ``apt-cache dumpavail`` lists."""
    for block in available.read_text(encoding="utf-8").split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in block.splitlines():
            if line.startswith(" "):
                fields[name] += line
            elif ": " in line:
                name, fields[name] = line.split(": ", 1)
        if "Description" in fields:
            yield fields


def sections(folder: Path, labels: _Labels) -> Iterator[Row]:
    """Packages of the declared sections."""
    for fields in packages(folder / "available.txt"):
        if fields.get("Section") in labels:
            yield Row(_plain(fields["Description"]), (fields["Section"],), fields["Maintainer"])


def purposes(folder: Path, labels: _Labels) -> Iterator[Row]:
    """Packages that have one of the declared purposes among their tags."""
    return _tagged(folder, labels, "use")


def media(folder: Path, labels: _Labels) -> Iterator[Row]:
    """Packages that work with one of the declared media."""
    return _tagged(folder, labels, "works-with")


def _tagged(folder: Path, labels: _Labels, facet: str) -> Iterator[Row]:
    for fields in packages(folder / "available.txt"):
        tags = dict.fromkeys(re.findall(f"{facet}::([a-z-]+)", fields.get("Tag", "")))
        if chosen := tuple(tag for tag in tags if tag in labels):
            yield Row(_plain(fields["Description"]), chosen, fields["Maintainer"])


def sayings(folder: Path, labels: _Labels) -> Iterator[Row]:
    """Sayings of the declared files; each is its own keeper."""
    return _fortunes(folder / "games" / "fortunes", labels)


def deutsch(folder: Path, labels: _Labels) -> Iterator[Row]:
    """The same for German sayings."""
    return _fortunes(folder / "games" / "fortunes" / "de", labels)


def _fortunes(folder: Path, labels: _Labels) -> Iterator[Row]:
    for label in labels:
        for text in (folder / label).read_text(encoding="utf-8").split("\n%\n"):
            plain = _plain(text)
            yield Row(plain[:LONGEST], (label,), plain)


def glosses(folder: Path, labels: _Labels) -> Iterator[Row]:
    """Definitions in WordNet, and the lexicographer file of each."""
    for part in ("noun", "verb"):
        for line in (folder / "wordnet" / f"data.{part}").read_text(encoding="utf-8").splitlines():
            if not line.startswith("  "):
                label = LEXNAMES[int(line.split()[1])]
                gloss = line.split("| ", 1)[1].split('; "')[0].strip()
                if label in labels:
                    yield Row(gloss, (label,), gloss)


def messages(folder: Path, labels: _Labels) -> Iterator[Row]:
    """English messages of programs, from the catalogues of their translations."""
    for label in labels:
        for name in CATALOGUES.get(label, (label,)):
            path = folder / "locale" / "de" / "LC_MESSAGES" / f"{name}.mo"
            with path.open("rb") as file:
                catalogue: dict[Any, str] = vars(gettext.GNUTranslations(file))["_catalog"]
            for key in catalogue:
                message = key[0] if isinstance(key, tuple) else key
                text = _plain(message.rpartition("\x04")[2].replace("_", ""))
                yield Row(text, (label,), text)


def emoji(folder: Path, labels: _Labels) -> Iterator[Row]:
    """English names of emoji, and the group of each."""
    del labels
    return _emoji(folder, "en", "")


def languages(folder: Path, labels: _Labels) -> Iterator[Row]:
    """The same in four languages, one after the other."""
    del labels
    for language in ("en", "de", "fr", "es"):
        yield from _emoji(folder, language, language)


def _emoji(folder: Path, language: str, task: str) -> Iterator[Row]:
    path = folder / "emojibase-data" / language / "data.json"
    for each in json.loads(path.read_text(encoding="utf-8")):
        if each.get("group") in GROUPS:
            labels = (GROUPS[each["group"]],)
            yield Row(each["label"], labels, each["hexcode"], task=task)


def mail(folder: Path, labels: _Labels) -> Iterator[Row]:
    """Public mail and spam; the sender is the person."""
    del labels
    for path in sorted((folder / "spam-assassin").glob("*/*.json")):
        whole = email.message_from_string(json.loads(path.read_text(encoding="utf-8"))["text"])
        body = re.sub(r"<[^>]*>", " ", _body(whole)).replace("\x00", "")
        text = _plain(f"{whole.get('Subject', '')}. {body}").encode("utf-8", "ignore").decode()
        label, sender = "spam" if "spam" in path.parent.name else "mail", str(whole.get("From"))
        yield Row(text[:LONGEST_MAIL], (label,), sender, sender)


def _body(message: Message) -> str:
    """The first part of a message."""
    while message.is_multipart():
        message = message.get_payload(0)  # type: ignore[assignment]
    body = message.get_payload()
    return body if isinstance(body, str) else ""


class Entry(NamedTuple):
    """One entry of a dictionary of computing."""

    name: str
    subject: str
    body: str
    """What it says, with references in braces."""


def entries(folder: Path) -> Iterator[Entry]:
    """The entries of the dictionary that have one meaning."""
    with gzip.open(folder / "foldoc" / "foldoc.dict.dz", "rt", encoding="utf-8") as file:
        whole = file.read()
    for block in re.split(r"\n(?=\S)", whole):
        name, _, body = block.partition("\n")
        found = re.match(r"\s*<([a-z ]+)[,>]", body)
        if found:
            text = re.sub(r"^\s*<[^<>]*>\s*|\[[^\]]*\]|\(\d{4}-\d\d-\d\d\)", " ", body)
            yield Entry(name.strip(), found[1], " ".join(text.split()))


def terms(folder: Path, labels: _Labels) -> Iterator[Row]:
    """What the dictionary says of a term, and the first subject that it files it under."""
    for entry in entries(folder):
        if entry.subject in labels:
            text = _plain(re.sub(r"[{}]", "", entry.body))
            yield Row(text[:LONGEST], (entry.subject,), text)


def mentions(folder: Path, labels: _Labels) -> Iterator[Row]:
    """Sentences of the dictionary with a name in them, which is tagged as what its entry is."""
    del labels
    found = list(entries(folder))
    kinds = {each.name: KINDS[each.subject] for each in found if each.subject in KINDS}
    for entry in found:
        if entry.subject in {"language", "networking", "programming", "hardware"}:
            text = _plain(entry.body)
            names = {" ".join(name.split()) for name in _REFERENCE.findall(text)}
            known = {tuple(name.split()): kinds[name] for name in names if name in kinds}
            for sentence in re.split(r"(?<=[.!?]) (?=[A-Z{])", _REFERENCE.sub(r"\1", text)):
                words = re.findall(r"\w[\w+#/.-]*\w|\w[+#]*|[^\w\s]", sentence)
                if 6 <= len(words) <= 60:
                    tags = tuple(_tags(words, known))
                    if set(tags) != {"O"}:
                        yield Row(" ".join(words), tags, entry.name, entry.name, entry.subject)


def apart(folder: Path, labels: _Labels) -> Iterator[Row]:
    """The same sentences, each in the task of its first name's type; other names are O there."""
    tasks = {label: f"task {number}" for number, label in enumerate(labels, start=1)}
    for row in mentions(folder, labels):
        own = next(tag for tag in row.labels if tag != "O").partition("-")[2]
        tags = tuple(tag if tag.partition("-")[2] == own else "O" for tag in row.labels)
        yield row._replace(labels=tags, task=tasks[own])


def _tags(words: list[str], known: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    """A tag for each word; the longest name that begins at a word counts."""
    place = 0
    longest = sorted(known, key=len, reverse=True)
    while place < len(words):
        here = [name for name in longest if tuple(words[place : place + len(name)]) == name]
        if not here:
            yield "O"
            place += 1
            continue
        kind = known[here[0]]
        yield f"B-{kind}"
        yield from [f"I-{kind}"] * (len(here[0]) - 1)
        place += len(here[0])


def _plain(text: str) -> str:
    """The text as one line, without parts in round brackets."""
    return " ".join(re.sub(r"\(.*?\)", "", text, flags=re.DOTALL).split())


SOURCES: Final = {
    **{"sections": sections, "purposes": purposes, "sayings": sayings, "glosses": glosses},
    **{"messages": messages, "media": media, "emoji": emoji, "languages": languages},
    **{"deutsch": deutsch, "mail": mail, "terms": terms},
    **{"mentions": mentions, "apart": apart},
}
"""The rows of each data set, from the folder that the packages are unpacked in."""
