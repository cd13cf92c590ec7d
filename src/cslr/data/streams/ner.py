"""NER-Domain: names of people, organisations, places and other things in texts of six domains.

Read from a data directory:

    ner_crossner/coarse/DOMAIN.train.conll.gz and .test.conll.gz for politics, science, music,
                                         literature, ai and wiki: a word, a tab and a tag a line,
                                         BIO tags of PER, ORG, LOC and MISC
    anchors/wikipedia_sentences.txt.gz   public sentences in hash order, one a line

A task is a domain; all tasks share all labels, and every client has rows of one domain. Sentences
are chosen domain by domain in the order of SHA-256("cslr/ner/1" NUL text), which does not depend on
seeds, file order or results. A text that occurs twice in a file is used once; the few that occur in
two domains, mostly with different tags, are used in both. No sentence is left out for its length:
the longest has 144 words and nearly all have fewer than 85.

    subset      of each domain the first 400 train sentences, but at most three fifths of its
                train sentences, and the first 250 test sentences
    held-out    train sentences outside the subset only: of each domain the next 240, but at most
                three fifths, to train on, then 160, or as many as are left, to test on
    all         every sentence

Settings are chosen on ``held-out``; it never opens the test files.
"""

from __future__ import annotations

from pathlib import Path

from cslr.data.stream import Label, Row, Stream, Task, as_rows, declared_labels
from cslr.data.streams.conll import TaggedSentence, numbered, read_conll
from cslr.data.streams.data_directory import (
    Sizes,
    data_directory,
    hash_of,
    leaving_some,
    public_sentences,
    unknown_rows,
)
from cslr.errors import DataError
from cslr.text.spacing import spaced

__all__ = ["DOMAINS", "load_ner"]

DOMAINS = ("politics", "science", "music", "literature", "ai", "wiki")

_FOLDER = "ner_crossner/coarse"
_PREFIX = b"cslr/ner/1"
_REPORTED = Sizes(400, 250, held_out_train=240, held_out_test=160)


def load_ner(
    data: Path | None,
    rows: str = "subset",
    scenario: str | None = None,
    sizes: Sizes = _REPORTED,
) -> Stream:
    """NER-Domain from the data directory ``data``: 6 tasks that share O and four types of name."""
    if rows not in ("subset", "held-out", "all"):
        raise unknown_rows(rows)
    files = ("DOMAIN.train.conll.gz", "DOMAIN.test.conll.gz")
    directory = data_directory(data, "ner", _FOLDER, files)
    labels = declared_labels("ner.toml")
    train: list[Row] = []
    test: list[Row] = []
    for task in range(len(DOMAINS)):
        own_train, own_test = _domain(directory / _FOLDER, task, labels, rows, sizes)
        train += own_train
        test += own_test
    return Stream(
        name="ner",
        labels=labels,
        tasks=tuple(Task(domain, tuple(range(len(labels)))) for domain in DOMAINS),
        train=as_rows(train),
        test=as_rows(test),
        public=tuple(map(spaced, public_sentences(directory, sizes.public))),
        scenarios=("domain",),
        clients=30,
        family="tagging",
        partition="task",
        cap=1,
        person="sentence",
    )


def _domain(
    folder: Path, task: int, labels: tuple[Label, ...], rows: str, sizes: Sizes
) -> tuple[list[Row], list[Row]]:
    """The train and the test rows of one domain that ``rows`` stands for."""
    train_path = folder / f"{DOMAINS[task]}.train.conll.gz"
    test_path = folder / f"{DOMAINS[task]}.test.conll.gz"
    train = _read(train_path, task, labels)
    if rows == "all":
        return train, _read(test_path, task, labels)
    train = _distinct(train)
    cut = leaving_some(sizes.train, len(train))
    if rows == "subset":
        return train[:cut], _distinct(_read(test_path, task, labels))[: sizes.test]
    rest = train[cut:]
    cut = leaving_some(sizes.held_out_train, len(rest))
    if not rest[cut:]:
        raise DataError(
            f"{train_path} has {len(train)} distinct sentences, too few for a held-out part; "
            "use the complete file, or --rows all"
        )
    return rest[:cut], rest[cut:][: sizes.held_out_test]


def _distinct(rows: list[Row]) -> list[Row]:
    """Each text once, in hash order; of rows with the same text the first in order of tags."""
    mixed = sorted(rows, key=lambda row: (hash_of(_PREFIX, row.text), row.label, row.others))
    kept: dict[str, Row] = {}
    for row in mixed:
        kept.setdefault(row.text, row)
    return list(kept.values())


def _read(path: Path, task: int, labels: tuple[Label, ...]) -> list[Row]:
    """Every sentence of one file; an error if there is none."""
    types = [label.name for label in labels]
    rows = [_row(sentence, types, path, task) for sentence in read_conll(path)]
    if not rows:
        raise DataError(f"{path} contains no sentence; download the file again")
    return rows


def _row(sentence: TaggedSentence, types: list[str], path: Path, task: int) -> Row:
    first, *others = numbered(sentence, types, path)
    return Row(sentence.text, first, task, tuple(others))
