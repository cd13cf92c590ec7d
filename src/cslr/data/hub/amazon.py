"""Amazon reviews: ``amazon/train.jsonl.gz`` and ``amazon/test.jsonl.gz``.

``McAuley-Lab/Amazon-Reviews-2023`` has a loading script, which ``datasets`` no longer runs, beside
plain files ``raw/review_categories/CATEGORY.jsonl`` of up to 31 GB; these are streamed from the
start until enough reviews are found. The columns ``text`` and ``rating`` (1.0 to 5.0) are used:

    Books → books                       Electronics → electronics
    Movies_and_TV → dvd                 Home_and_Kitchen → kitchen_housewares
    Toys_and_Games → toys_games

File names and columns were taken from the hub's pages and from programs that stream these files;
the conversion was tested on invented files of that form. The five domains of Split-Amazon come from
an older collection (FDU-MTL), so these are other reviews of nearly the same kinds of product.

A directory with these files works as well, and so does any data set with columns for the text
(``text``, ``review_body``), the domain (``domain``, ``product_category``) and the stars
(``rating``, ``stars``, ``star_rating``) or the ``label`` (0 negative, 1 positive).

One and two stars are negative, four and five positive. Reviews with three stars, reviews of under
20 characters and repeated texts are skipped. If the source has no split ``test``, the texts whose
SHA-256("cslr/amazon/split/1" NUL text) is a multiple of 5 are test. Of each domain and label the
first 1,000 train and 250 test reviews are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final

from cslr.data.hub.columns import Lines, Row, clean, column, json_lines
from cslr.data.hub.library import splits
from cslr.data.streams.amazon import DOMAINS
from cslr.errors import DataError

__all__ = ["amazon_files"]

_CATEGORIES: Final = {
    "Books": "books",
    "Movies_and_TV": "dvd",
    "Electronics": "electronics",
    "Home_and_Kitchen": "kitchen_housewares",
    "Toys_and_Games": "toys_games",
}
_BY_FILES: Final = "McAuley-Lab/Amazon-Reviews-2023"
_FOLDER: Final = "raw/review_categories"

_DOMAIN_OF: Final = {
    **{domain: domain for domain in DOMAINS},
    **{category.lower(): domain for category, domain in _CATEGORIES.items()},
    "video_dvd": "dvd",
    "kitchen": "kitchen_housewares",
    "toys": "toys_games",
}
_MOST: Final = {"train": 1_000, "test": 250}
_SHORTEST: Final = 20
_LABELS: Final = ("negative", "positive")


@dataclass
class _Kept:
    """The reviews kept so far, and how many of each kind."""

    reviews: dict[str, list[Row]] = field(default_factory=lambda: {part: [] for part in _MOST})
    counts: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    seen: set[str] = field(default_factory=set)

    def add(self, text: str, label: int, domain: str, part: str) -> None:
        """Keep the review unless its text is known or there are enough of its kind."""
        kind = (part, domain, label)
        if text in self.seen or self.counts[kind] == _MOST[part]:
            return
        self.seen.add(text)
        self.counts[kind] += 1
        self.reviews[part].append({"text": text, "label": label, "domain": domain, "split": part})

    def is_full(self, parts: Iterable[str], domains: Iterable[str]) -> bool:
        """Whether there are enough reviews of every label in these parts and domains."""
        return all(
            self.counts[part, domain, label] == _MOST[part]
            for part, domain, label in product(parts, domains, (0, 1))
        )


def amazon_files(source: str) -> dict[str, Lines]:
    """Lines of {"text", "label", "domain", "split"} by file."""
    kept = _Kept()
    for part, domain, rows in _readings(source):
        parts, domains = [part] if part else list(_MOST), [domain] if domain else list(DOMAINS)
        for text, label, of_domain in _reviews(rows, domain, source):
            kept.add(text, label, of_domain, part or _part(text))
            if kept.is_full(parts, domains):
                break
    for part, domain, label in product(_MOST, DOMAINS, (0, 1)):
        if not kept.counts[part, domain, label]:
            raise DataError(
                f"{source}: no {_LABELS[label]} {part} review of {domain}; give a data set "
                "that has them with --source"
            )
    return {f"amazon/{part}.jsonl.gz": json_lines(rows) for part, rows in kept.reviews.items()}


def _readings(source: str) -> Iterator[tuple[str | None, str | None, Iterator[Row]]]:
    """Rows with their part and domain (None: to be found out for each row); test comes first."""
    paths = {
        domain: path
        for category, domain in _CATEGORIES.items()
        if (path := _category_file(source, category))
    }
    for domain, path in paths.items():
        loaded = splits(source, builder="text", data_files=[path], streaming=True)
        yield None, domain, _parsed(loaded["train"], path)
    if not paths:
        loaded = splits(source, streaming=True)
        has_both = {"train", "test"} <= loaded.keys()
        for name in ("test", "train") if has_both else loaded:
            yield name if has_both else None, None, loaded[name]


def _category_file(source: str, category: str) -> str | None:
    """The file of a category, if the source has one file per category."""
    if source == _BY_FILES:
        return f"hf://datasets/{source}/{_FOLDER}/{category}.jsonl"
    folders = (Path(source), Path(source) / _FOLDER)
    paths = [folder / f"{category}.jsonl{end}" for folder in folders for end in ("", ".gz")]
    return next((str(path) for path in paths if path.is_file()), None)


def _parsed(lines: Iterable[Row], path: str) -> Iterator[Row]:
    """Rows of JSON lines. ``datasets`` could parse them, but requires one type per column, and the
    type of ``images`` is unknown until some review has an image.
    """
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line["text"])
        except ValueError as error:
            raise DataError(
                f"{path}, line {number}: not valid JSON ({error}); download the file again"
            ) from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: not a review: {line['text'][:40]!r}")
        yield row


def _reviews(
    rows: Iterable[Row], domain: str | None, source: str
) -> Iterator[tuple[str, int, str]]:
    """Text, label and domain of the rows that have all three."""
    for number, row in enumerate(rows, start=1):
        text = clean(row[column(row, source, "text", "review_body")] or "")
        label = _label(row, source, number)
        of_domain = domain or _domain(row[column(row, source, "domain", "product_category")])
        if label is not None and of_domain and len(text) >= _SHORTEST:
            yield text, label, of_domain


def _label(row: Row, source: str, number: int) -> int | None:
    """0 negative, 1 positive, None neither."""
    name = column(row, source, "rating", "stars", "star_rating", "label")
    value, allowed = row[name], (0, 1) if name == "label" else (1, 2, 3, 4, 5)
    if value is None:
        return None
    if value not in allowed:
        raise DataError(f"{source}, row {number}: {name} {value!r}, expected one of {allowed}")
    if name == "label":
        return int(value)
    return None if value == 3 else int(value > 3)


def _domain(name: Any) -> str | None:
    """The domain with this name or alias; None if it is another kind of product."""
    words = str(name).lower().replace("&", " ").replace("_", " ").split()
    return _DOMAIN_OF.get("_".join(words))


def _part(text: str) -> str:
    digest = hashlib.sha256(b"cslr/amazon/split/1\0" + text.encode()).digest()
    return "test" if int.from_bytes(digest) % 5 == 0 else "train"
