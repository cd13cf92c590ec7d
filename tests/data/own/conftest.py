"""One small declaration of each family, and a fixture that writes rows to a file."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cslr.data.own import Declaration

CLASSIFICATION: dict[str, Any] = {
    "confirmed": True,
    "name": "shops",
    "family": "classification",
    "scenario": "class",
    "clients": 4,
    "columns": {"task": "task", "split": "split", "person": "person"},
    "privacy": {"epsilon": 4.0},
    "labels": [
        {"name": "praise", "description": "A customer is pleased."},
        {"name": "blame", "description": "A customer is angry."},
        {"name": "order", "description": "A customer orders something."},
    ],
    "tasks": [
        {"name": "spring", "labels": ["praise", "blame"]},
        {"name": "autumn", "labels": ["order"]},
    ],
}

TAGGING: dict[str, Any] = CLASSIFICATION | {
    "family": "tagging",
    "scenario": "domain",
    "labels": [
        {"name": "PER", "description": "A person.", "examples": ["[Ida Holm|PER] waits ."]},
        {"name": "LOC", "description": "A place.", "examples": ["In [Rome|LOC] it rains ."]},
    ],
    "tasks": [{"name": "spring"}, {"name": "autumn", "labels": ["LOC"]}],
}

ROWS: list[dict[str, Any]] = [
    {
        "text": "What a lovely, bright shop",
        "label": "praise",
        "client": "north",
        "task": "spring",
        "split": "train",
        "person": "p1",
    },
    {
        "text": 'They said "no refunds"\nand shut the door',
        "label": "blame",
        "client": "east",
        "task": "spring",
        "split": "train",
        "person": "p2",
    },
    {
        "text": "Zwölf Äpfel, bitte 🍎",
        "label": "order",
        "client": "north",
        "task": "autumn",
        "split": "train",
        "person": "p1",
    },
    {
        "text": "Never again",
        "label": "blame",
        "client": "west",
        "task": "spring",
        "split": "test",
        "person": "p3",
    },
]


def as_csv(rows: list[dict[str, Any]], separator: str = "|") -> bytes:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        joined = {k: separator.join(v) if isinstance(v, list) else v for k, v in row.items()}
        writer.writerow(joined)
    return file.getvalue().encode()


def as_jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def as_conll(rows: list[dict[str, Any]]) -> bytes:
    lines: list[str] = []
    for row in rows:
        lines += [f"# {key} = {row[key]}" for key in row if key not in ("text", "label")]
        lines += [
            f"{word}\t{tag}" for word, tag in zip(row["text"].split(" "), row["label"], strict=True)
        ]
        lines.append("")
    return "\n".join(lines).encode()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(rows), file)
    return file.getvalue()


WRITERS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "csv": as_csv,
    "csv.gz": lambda rows: gzip.compress(as_csv(rows)),
    "jsonl": as_jsonl,
    "jsonl.gz": lambda rows: gzip.compress(as_jsonl(rows)),
    "conll": as_conll,
    "conll.gz": lambda rows: gzip.compress(as_conll(rows)),
    "parquet": as_parquet,
}


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    """Four good rows of three clients."""
    return [dict(row) for row in ROWS]


@pytest.fixture
def declare() -> Callable[..., Declaration]:
    """A declaration by family, with changes on top."""

    def make(family: str = "classification", **changes: Any) -> Declaration:
        plain = TAGGING if family == "tagging" else CLASSIFICATION | {"family": family}
        return Declaration.model_validate(plain | changes)

    return make


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Rows, or bytes as they are, in a file of the format its ending says."""

    def put(ending: str, content: bytes | list[dict[str, Any]]) -> Path:
        path = tmp_path / f"shops.{ending}"
        path.write_bytes(content if isinstance(content, bytes) else WRITERS[ending](content))
        return path

    return put
