"""OntoNotes-Genre: eighteen types of name and number in texts of up to six genres.

OntoNotes 5 is licensed by the LDC and cannot be distributed with this program. Read from the
user's own data directory:

    **/*gold_conll                       CoNLL-2012 files; those below a directory called arabic,
                                         chinese or development are skipped
    anchors/wikipedia_sentences.txt.gz   public sentences in hash order, one a line

A task is a genre, the first part of a document's id: bc (talk shows), bn (broadcast news), mz
(magazines), nw (newswire), tc (telephone calls), wb (the web), in this order, those that occur.
pt (the Bible) has no marked names and is skipped. All tasks share all labels and every client has
rows of one genre.

Files below a directory called train or test belong to that part. In other files a document is test
if SHA-256("cslr/ontonotes/1/test" NUL id) modulo 10 is 0 or 1, else train. Sentences are chosen
genre by genre and document by document, since those of one document belong together. Documents are
ordered by SHA-256("cslr/ontonotes/1" NUL id), which does not depend on seeds, file order or
results, and used one after the other, the last one in part if need be:

    subset      train documents of each genre until there are 1,000 sentences, but no more than
                three fifths of the documents; test documents until there are 300
    held-out    train documents outside the subset only: until there are 400 sentences, but no more
                than three fifths of the documents, to train on, then 200 to test on
    all         every sentence of the genres

Settings are chosen on ``held-out``; it opens no file below test and skips test documents in other
files.
"""

from __future__ import annotations

from pathlib import Path

from cslr.data.stream import Row, Rows, Stream, Task, as_rows, declared_labels
from cslr.data.streams.conll import numbered, read_conll2012
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

__all__ = ["GENRES", "load_ontonotes"]

GENRES = ("bc", "bn", "mz", "nw", "tc", "wb")

_WITHOUT_NAMES = "pt"
_FILES = "*gold_conll"
_OTHER_LANGUAGES = frozenset({"arabic", "chinese"})
_PREFIX = b"cslr/ontonotes/1"
_REPORTED = Sizes(1_000, 300, held_out_train=400, held_out_test=200)

Sentence = tuple[str, tuple[int, ...]]
"""A text and its tags."""
Documents = dict[str, list[Sentence]]
"""The sentences of each document; documents in hash order."""


def load_ontonotes(
    data: Path | None,
    rows: str = "subset",
    scenario: str | None = None,
    sizes: Sizes = _REPORTED,
) -> Stream:
    """The user's own OntoNotes 5 below ``data``: one task per genre, which share O and 18 types."""
    if rows not in ("subset", "held-out", "all"):
        raise unknown_rows(rows)
    directory = data_directory(data, "ontonotes", "**", (_FILES,))
    labels = declared_labels("ontonotes.toml")
    train, test = _parts(directory, [label.name for label in labels], rows, sizes)
    genres = _genres(train)
    return Stream(
        name="ontonotes",
        labels=labels,
        tasks=tuple(Task(genre, tuple(range(len(labels)))) for genre in genres),
        train=_rows(train, genres),
        test=_rows(test, genres),
        public=tuple(map(spaced, public_sentences(directory, sizes.public))),
        scenarios=("domain",),
        clients=30,
        family="tagging",
        partition="task",
        cap=1,
        person="document",
    )


def _parts(
    directory: Path, types: list[str], rows: str, sizes: Sizes
) -> tuple[Documents, Documents]:
    """The train and test documents selected by ``rows``; an error if a genre lacks one of them."""
    train = whole = _read(directory, types, "train")
    if rows == "held-out":
        rest = _without(train, _first(train, sizes.train, leave_some=True))
        train = _first(rest, sizes.held_out_train, leave_some=True)
        test = _first(_without(rest, train), sizes.held_out_test)
    else:
        test = _read(directory, types, "test")
        if torn := train.keys() & test.keys():
            raise DataError(
                f"{directory}: document {min(torn)} is in both train and test; remove one"
            )
        whole = train | test
        if rows == "subset":
            train, test = _first(train, sizes.train, leave_some=True), _first(test, sizes.test)
    for genre in _genres(whole):
        if genre not in _genres(train) or genre not in _genres(test):
            raise DataError(
                f"{directory} has too few documents of genre {genre} for a train and a test "
                f"part; add documents, or remove {genre}"
            )
    return train, test


def _genres(documents: Documents) -> list[str]:
    """The genres that occur, in the order of tasks."""
    genres = {_genre(document) for document in documents}
    return [genre for genre in GENRES if genre in genres]


def _genre(document: str) -> str:
    return document.split("/")[0]


def _first(documents: Documents, sentences: int, *, leave_some: bool = False) -> Documents:
    """For each genre the first documents that together have this many sentences."""
    chosen: Documents = {}
    for genre in _genres(documents):
        of_genre = [name for name in documents if _genre(name) == genre]
        left = sentences
        for name in of_genre[: leaving_some(len(of_genre), len(of_genre)) if leave_some else None]:
            if left > 0:
                chosen[name] = documents[name][:left]
                left -= len(chosen[name])
    return chosen


def _without(documents: Documents, others: Documents) -> Documents:
    return {name: sentences for name, sentences in documents.items() if name not in others}


def _rows(documents: Documents, genres: list[str]) -> Rows:
    """The rows genre by genre; the sentences of a document belong to one person."""
    return as_rows(
        [
            Row(text, tags[0], task, tags[1:], name)
            for task, genre in enumerate(genres)
            for name, sentences in documents.items()
            if _genre(name) == genre
            for text, tags in sentences
        ]
    )


def _read(directory: Path, types: list[str], part: str) -> Documents:
    """The documents of ``part``, ``"train"`` or ``"test"``, from every file that may hold some."""
    documents: Documents = {}
    paths = sorted(path for path in directory.rglob(_FILES) if path.is_file())
    for path in paths:
        declared = _declared(path.relative_to(directory))
        if declared in (part, None):
            contents = _file(path, types, part if declared is None else None)
            if twice := documents.keys() & contents.keys():
                raise DataError(
                    f"{path}: document {min(twice)} is also in another file; remove one"
                )
            documents |= contents
    if not documents:
        raise DataError(
            f"{directory} has no {part} document of the genres {', '.join(GENRES)} in its "
            f"{len(paths)} files {_FILES}; give --data DIR with the files made by the LDC's "
            "scripts"
        )
    return dict(sorted(documents.items(), key=lambda item: hash_of(_PREFIX, item[0])))


def _declared(path: Path) -> str | None:
    """The part that a file's directories name (the last that names one); None if none does."""
    folders = path.parts[:-1]
    if _OTHER_LANGUAGES.intersection(folders):
        return "another language"
    named = [name for name in folders if name in ("train", "development", "test")]
    return named[-1] if named else None


def _file(path: Path, types: list[str], hashed: str | None) -> Documents:
    """The documents of one file; hashed: only those that belong to this part by their hash."""

    def wanted(document: str) -> bool:
        genre = _genre(document)
        if genre not in (*GENRES, _WITHOUT_NAMES):
            raise DataError(
                f"{path}: document {document!r} has no genre; its id must begin with one of "
                f"{', '.join(GENRES)} or {_WITHOUT_NAMES}"
            )
        return genre in GENRES and hashed in (None, _hashed_part(document))

    documents: Documents = {}
    for sentence in read_conll2012(path, wanted):
        tags = numbered(sentence, types, path)
        documents.setdefault(sentence.document, []).append((sentence.text, tags))
    return documents


def _hashed_part(document: str) -> str:
    """The part of a document by its hash: two of ten are test."""
    return "test" if int.from_bytes(hash_of(_PREFIX + b"/test", document)) % 10 < 2 else "train"
