"""Other streams than the reported ones, made from the shared data and the embedded streams.

They have other labels, tasks and products, and fewer rows. Rows of the shared data are all train
rows: for reported labels those outside the reported subset (``held-out``), for other labels any.
docs/transfer.md says on which groupings constants were chosen.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cslr.arrays import IntArray
from cslr.data.stream import Label, Rows, Stream, Task
from cslr.data.streams import load_stream
from cslr.data.streams.conll import read_conll, tag_numbers
from cslr.data.streams.data_directory import gzip_lines, hash_of

__all__ = ["GROUPINGS"]

TEXTS: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
REPORTED_PRODUCTS: Final = ("books", "dvd", "electronics", "kitchen_housewares", "music")
TRAIN, TEST = 150, 50
"""Numbers of reviews of a product."""


def _labels(name: str) -> tuple[Label, ...]:
    entries: list[dict[str, Any]] = TEXTS[name]
    return tuple(
        Label(each["name"], each["description"], tuple(each.get("examples", ())))
        for each in entries
    )


def _few(rows: Rows, most: int) -> Rows:
    """The first rows of each task and label, at most so many."""
    kept: list[int] = []
    for task in np.unique(rows.tasks):
        for label in np.unique(rows.labels[rows.tasks == task]):
            kept += np.flatnonzero((rows.tasks == task) & (rows.labels == label))[:most].tolist()
    return _taken(rows, np.sort(np.array(kept)))


def _taken(rows: Rows, kept: IntArray) -> Rows:
    def some(values: IntArray | None) -> IntArray | None:
        return None if values is None else values[kept]

    return Rows(
        tuple(rows.texts[row] for row in kept),
        tuple(rows.answers[row] for row in kept),
        rows.tasks[kept],
        some(rows.people),
        some(rows.clients),
        some(rows.kinds),
    )


def _news(data: Path) -> Stream:
    news = load_stream("ag-news", data, "held-out", None)
    return replace(news, train=_few(news.train, 700), test=_few(news.test, 250))


def _pairs(data: Path) -> Stream:
    pairs = load_stream("ag-news-pairs", data, "held-out", None)
    news = _news(data)
    texts = {*news.train.texts, *news.test.texts}
    train, test = (
        _taken(rows, np.array([place for place, text in enumerate(rows.texts) if text in texts]))
        for rows in (pairs.train, pairs.test)
    )
    return replace(pairs, train=train, test=test)


def _news_two_by_two(data: Path) -> Stream:
    """Two tasks of two labels."""
    news = _news(data)
    tasks = (Task("first", (0, 1)), Task("second", (2, 3)))
    return _regrouped(news, "news, two by two", news.labels, tasks, lambda row, label: label // 2)


def _news_periods(data: Path) -> Stream:
    """Every task has all labels: three periods."""
    news = _news(data)
    tasks = tuple(Task(f"period {number}", (0, 1, 2, 3)) for number in range(3))
    stream = _regrouped(news, "news, periods", news.labels, tasks, lambda row, label: row % 3)
    return replace(stream, scenarios=("domain",))


def _regrouped(
    stream: Stream,
    name: str,
    labels: tuple[Label, ...],
    tasks: tuple[Task, ...],
    task_of: Callable[[int, int], int],
) -> Stream:
    def rows(old: Rows) -> Rows:
        pairs = enumerate(old.labels.tolist())
        return replace(old, tasks=np.array([task_of(row, label) for row, label in pairs]))

    return replace(
        stream,
        name=name,
        labels=labels,
        tasks=tasks,
        train=rows(stream.train),
        test=rows(stream.test),
    )


def _moods(data: Path) -> Stream:
    moods = load_stream("amazon", data, "held-out", None)
    return replace(moods, train=_few(moods.train, 160), test=_few(moods.test, 50))


def _moods_by_product(data: Path) -> Stream:
    moods = load_stream("amazon", data, "held-out", "class")
    return replace(
        moods,
        train=_few(moods.train, 160),
        test=_few(moods.test, 50),
        scenarios=("class", "task"),
    )


def _reviews(data: Path) -> dict[tuple[str, int], list[str]]:
    """Train reviews of every product and mood, in hash order."""
    found: dict[tuple[str, int], list[str]] = {}
    for line in gzip_lines(data / "amazon" / "train.jsonl.gz"):
        row = json.loads(line)
        found.setdefault((row["domain"], row["label"]), []).append(row["text"])
    return {
        kind: sorted(texts, key=lambda text: hash_of(b"cslr/groupings", text))
        for kind, texts in found.items()
    }


def _other_products(data: Path) -> Stream:
    """Positive and negative reviews of the products that are not reported."""
    reported, reviews = load_stream("amazon", data, "held-out", None), _reviews(data)
    products = sorted({product for product, _ in reviews} - set(REPORTED_PRODUCTS))
    pairs = [(task, product, mood) for task, product in enumerate(products) for mood in (0, 1)]

    def rows(start: int, stop: int) -> Rows:
        each = [
            (text, mood, task)
            for task, product, mood in pairs
            for text in reviews[product, mood][start:stop]
        ]
        return _rows(each)

    return replace(
        reported,
        name="moods, other products",
        tasks=tuple(Task(product, (0, 1)) for product in products),
        train=rows(0, TRAIN),
        test=rows(TRAIN, TRAIN + TEST),
        scenarios=("domain",),
    )


def _kinds(data: Path) -> Stream:
    """Products as labels, two a task; reported ones outside the reported subset."""
    reported, reviews = load_stream("amazon", data, "held-out", None), _reviews(data)
    used = set(load_stream("amazon", data, "subset", None).train.texts)
    labels = _labels("kinds")

    def rows(start: int, stop: int) -> Rows:
        each = []
        for number, label in enumerate(labels):
            for mood in (0, 1):
                free = [text for text in reviews[label.name, mood] if text not in used]
                each += [(text, number, number // 2) for text in free[start:stop]]
        return _rows(each)

    return replace(
        reported,
        name="products",
        labels=labels,
        tasks=tuple(Task(f"shelf {task}", (2 * task, 2 * task + 1)) for task in range(7)),
        train=rows(0, 100),
        test=rows(100, 125),
        scenarios=("class",),
    )


def _rows(each: Sequence[tuple[str, int, int]]) -> Rows:
    texts, labels, tasks = zip(*each, strict=True)
    return Rows(texts, tuple((label,) for label in labels), np.array(tasks))


def _services(data: Path) -> Stream:
    """The service that a turn is about, without the intent."""
    intents = load_stream("multiwoz", data, "held-out", None)

    def rows(old: Rows) -> Rows:
        return replace(old, answers=tuple((answer[0] // 2,) for answer in old.answers))

    labels = _labels("services")
    return replace(
        intents,
        name="services",
        labels=labels,
        tasks=tuple(Task(label.name, (number,)) for number, label in enumerate(labels)),
        train=rows(intents.train),
        test=rows(intents.test),
        family="classification",
        scenarios=("class",),
    )


def _fine_names(data: Path) -> Stream:
    """Two domains with types of their own; other types count as no name."""
    coarse, labels = load_stream("ner", data, "held-out", None), _labels("names")
    names = [label.name for label in labels]
    parts: tuple[list[tuple[str, tuple[int, ...], int]], ...] = ([], [])
    for task, domain in enumerate(("music", "politics")):
        path = data / "ner_crossner" / "fine" / f"{domain}.train.conll.gz"
        for place, sentence in enumerate(read_conll(path)):
            known = [tag if tag[2:] in names else "O" for tag in sentence.tags]
            answer = tuple(int(tag) for tag in tag_numbers(known, names))
            parts[place % 4 == 3].append((sentence.text, answer, task))
    train, test = (
        Rows(
            tuple(t for t, _, _ in part),
            tuple(a for _, a, _ in part),
            np.array([k for *_, k in part]),
        )
        for part in parts
    )
    return replace(
        coarse,
        name="names, fine",
        labels=labels,
        tasks=(Task("music", (0, 1, 2, 3, 4)), Task("politics", (0, 5, 6, 7, 8))),
        train=train,
        test=test,
        scenarios=("class", "task"),
    )


GROUPINGS: Final[dict[str, Callable[[Path], Stream]]] = {
    "news": _news,
    "news, pairs of topics": _pairs,
    "news, two by two": _news_two_by_two,
    "news, periods": _news_periods,
    "moods": _moods,
    "moods by product": _moods_by_product,
    "moods, other products": _other_products,
    "products": _kinds,
    "intents": lambda data: load_stream("multiwoz", data, "held-out", None),
    "services": _services,
    "names": lambda data: load_stream("ner", data, "held-out", None),
    "names, fine": _fine_names,
    "clinic": lambda data: load_stream("clinic", None, "subset", None),
    "desk": lambda data: load_stream("desk", None, "subset", None),
    "ward": lambda data: load_stream("ward", None, "subset", None),
}
