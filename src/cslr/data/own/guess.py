"""Guess which column of a file has which role (text, label, client, ...), with the reason.

A column's name decides unless its cells contradict it. Where no name fits, the cells decide: long
texts are the text, few repeated values the label, repeated ids the client. Guesses are only written
into a draft, and used after somebody has confirmed it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cslr.data.own.reader.raw import Raw

__all__ = ["Guess", "Profile", "guess_columns", "profile_of"]

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "text": (
        *("text", "sentence", "review", "message", "utterance", "body", "content", "comment"),
        *("note", "document", "tokens", "words", "query", "question", "tweet", "post", "narrative"),
        *("texte", "texto", "nachricht", "kommentar", "meldung", "complaint", "description"),
    ),
    "label": (
        *("label", "labels", "intent", "intents", "class", "sentiment", "target", "category"),
        *("tags", "tag", "answer", "klasse", "kategorie", "categorie", "etiqueta", "gold", "type"),
        *("diagnosis", "emotion", "outcome", "topic"),
    ),
    "client": (
        *("client", "hospital", "clinic", "site", "bank", "shop", "branch", "owner", "device"),
        *("user", "institution", "store", "practice", "centre", "center", "agency", "filiale"),
        *("klinik", "krankenhaus", "organisation", "organization", "tenant"),
    ),
    "task": ("task", "domain", "period", "topic", "service", "quarter", "phase", "season"),
    "split": ("split", "fold", "set", "part", "partition", "subset"),
    "person": (
        *("person", "patient", "customer", "author", "speaker", "dialogue", "user", "reviewer"),
        *("subject", "member", "kunde"),
    ),
}
_SPLITS: Final = {"train", "test"}
_ID: Final = re.compile(r"(?=.*\d)[\w.:@-]+")
_MOST_LABELS: Final = 100
_TEXT_WORDS: Final = 3.0
"""Fewest words of a cell, on average, for a column to be guessed as the text by its cells."""


@dataclass(frozen=True, repr=False)
class Profile:
    """PRIVATE. Statistics of a column's cells in the first rows."""

    rows: int
    filled: int
    distinct: int
    words: float
    """Mean words of a cell."""
    ids: float
    """Share of cells that look like an id: one word with a digit in it."""
    lists: bool
    values: frozenset[str]
    """Different values, in lower case; empty if they are many."""


@dataclass(frozen=True)
class Guess:
    """A column, and why it was chosen."""

    column: str
    why: str
    """The reason in words. It is written into the draft, which becomes public."""
    figures: str = ""
    """PRIVATE. The counts behind it: shown to the data holder on the screen, never written."""

    @property
    def in_full(self) -> str:
        """PRIVATE. The reason with its counts."""
        return f"{self.why}, {self.figures}" if self.figures else self.why


def profile_of(rows: Sequence[Raw], column: str) -> Profile:
    """The profile of a column over the given rows."""
    cells = [row.cells.get(column) for row in rows]
    lists = any(isinstance(cell, list) for cell in cells)
    texts = [_text(cell) for cell in cells if cell not in (None, "")]
    distinct = set(texts)
    count = max(len(texts), 1)
    return Profile(
        len(rows),
        len(texts),
        len(distinct),
        sum(len(text.split()) for text in texts) / count,
        sum(_ID.fullmatch(text) is not None for text in texts) / count,
        lists,
        frozenset(text.lower() for text in distinct) if len(distinct) <= 10 else frozenset(),
    )


def guess_columns(
    rows: Sequence[Raw],
    columns: Sequence[str],
    given: Mapping[str, str],
    roles: Collection[str],
) -> dict[str, Guess]:
    """A guess for each of ``roles`` that can be made; ``given`` ones are taken as they are."""
    profiles = {column: profile_of(rows, column) for column in columns}
    guesses = {role: Guess(column, "as you said") for role, column in given.items()}
    for named in (_named_exactly, _named_in_part):
        for role in _NAMES:
            if role in roles and role not in guesses:
                free = _free(profiles, guesses)
                match = next((g for g in named(role, free) if _fits(role, free[g.column])), None)
                if match is not None:
                    guesses[role] = match
    for role, by_content in _BY_CONTENT.items():
        if role in roles and role not in guesses:
            free = _free(profiles, guesses)
            if (match := by_content(free)) is not None:
                guesses[role] = match
    return {role: guesses[role] for role in _NAMES if role in guesses}


def _free(profiles: Mapping[str, Profile], guesses: Mapping[str, Guess]) -> dict[str, Profile]:
    taken = {guess.column for guess in guesses.values()}
    return {column: each for column, each in profiles.items() if column not in taken}


def _named_exactly(role: str, free: Mapping[str, Profile]) -> list[Guess]:
    return [
        Guess(column, "by its name")
        for usual_name in _NAMES[role]
        for column in free
        if column.lower() == usual_name
    ]


def _named_in_part(role: str, free: Mapping[str, Profile]) -> list[Guess]:
    return [
        Guess(column, f"its name has the word {usual_name!r}")
        for usual_name in _NAMES[role]
        for column in free
        if usual_name in _words(column)
    ]


def _words(name: str) -> list[str]:
    """The words of a column's name: user and id for userId, user_id and USER-ID."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return re.split(r"[\W_]+", parted.lower())


def _fits(role: str, profile: Profile) -> bool:
    """Whether the cells do not contradict the name."""
    few = profile.rows < 10  # too few rows to say
    if role == "text":
        return few or profile.lists or profile.words > 1.5 or profile.ids < 0.5
    if role in ("label", "task"):
        texts = profile.words > 6 and profile.distinct > profile.filled / 2
        return few or profile.lists or not texts
    if role == "client":
        return few or profile.words < 8
    return True


def _text_by_content(free: Mapping[str, Profile]) -> Guess | None:
    long = {c: p for c, p in free.items() if p.words >= _TEXT_WORDS and p.distinct > p.filled / 3}
    if not long:
        return None
    column = max(long, key=lambda each: long[each].words)
    return Guess(column, "long texts", f"{long[column].words:.0f} words on average")


def _split_by_content(free: Mapping[str, Profile]) -> Guess | None:
    for column, profile in free.items():
        if profile.values == _SPLITS:
            return Guess(column, "its values are train and test")
    return None


def _label_by_content(free: Mapping[str, Profile]) -> Guess | None:
    """The column of repeated words with the fewest different ones; else of any repeated values."""
    repeated = {c: p for c, p in free.items() if _repeats(p) and p.words <= 4}
    plain = {c: p for c, p in repeated.items() if p.ids < 0.5}
    chosen = plain or {c: p for c, p in repeated.items() if p.distinct <= 10}
    if not chosen:
        return None
    column = min(chosen, key=lambda each: chosen[each].distinct)
    return Guess(column, "repeated values", f"{chosen[column].distinct} different ones")


def _client_by_content(free: Mapping[str, Profile]) -> Guess | None:
    """The column of repeated ids with the fewest different ones; else of any repeated values."""
    repeated = {c: p for c, p in free.items() if 2 <= p.distinct <= p.filled / 2 and p.words <= 4}
    ids = {c: p for c, p in repeated.items() if p.ids >= 0.5}
    chosen = ids or repeated
    if not chosen:
        return None
    column = min(chosen, key=lambda each: chosen[each].distinct)
    profile = chosen[column]
    what = "repeated ids" if column in ids else "repeated names"
    rows = profile.filled / profile.distinct
    return Guess(column, what, f"each in {rows:.0f} rows on average")


def _repeats(profile: Profile) -> bool:
    return 2 <= profile.distinct <= min(_MOST_LABELS, profile.filled / 3)


_BY_CONTENT: Final[Mapping[str, Callable[[Mapping[str, Profile]], Guess | None]]] = {
    "text": _text_by_content,
    "split": _split_by_content,
    "label": _label_by_content,
    "client": _client_by_content,
}


def _text(cell: object) -> str:
    if isinstance(cell, list):
        return " ".join(map(str, cell))
    return str(cell).strip()
