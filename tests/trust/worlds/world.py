"""Whole runs of the program on files that differ in one client, and every byte that leaves them.

The program runs as a user starts it. Two things are replaced. The encoder is one that lets the
texts it is given together move each other's vectors, far more than rounding does, so that any
company between public and private texts shows. And the mechanism publishes a vector that follows
from the release's name alone: with the same transcript in both worlds, all that is not a sum before
noise must be the same byte for byte, and every sum may differ by its bound.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import cslr.privacy.mechanism as mechanism
import cslr.runs.embedded as study_module
from cslr.cli.main import main
from cslr.methods.fedcil import schedules
from cslr.text.words import WordVectors

WIDTH = 24  # d
SMALL = """yardsticks = false
seeds = [13]
[replay]
dimension = 8
[paper]
m = 12
n_r = 12
"""
COMPANY = 0.05
"""How far the texts that are given together move each other's vectors."""

SHORT = replace(schedules.RECIPE, rounds=2, iterations=5, consolidation=5, imitation=40)
"""How long FedCIL trains here: what depends on what is the same after a few steps."""

Rows = list[dict[str, str]]


def vector(text: str) -> np.ndarray:
    """Near the topic with the number that the text begins with, if it begins with one."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    z = 0.25 * np.random.default_rng(seed).standard_normal(WIDTH)
    first = text.split(" ")[0]
    if first.isdigit():
        z[int(first) % WIDTH] += 1.0
    return z


@dataclass
class Company:
    """An encoder of texts whose vectors depend on the texts beside them."""

    name: str = "minilm"
    dimension = WIDTH

    @property
    def id(self) -> str:
        return f"company-{self.name}"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        beside = COMPANY * np.mean([vector(text) for text in texts], axis=0)
        z = np.stack([vector(text) for text in texts]) + beside
        if self.name != "minilm":
            z = z[:, ::-1] + 0.1
        return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)


@dataclass
class CompanyOfWords:
    """The same for words: "3w7" is near topic 3."""

    id = "company of words"
    dimension = WIDTH

    def encode(self, texts: Sequence[str]) -> WordVectors:
        words = [[word.replace("w", " ", 1) for word in text.split(" ")] for text in texts]
        z = Company().encode([word for each in words for word in each])
        return WordVectors(z, np.cumsum([0, *map(len, words)]))


@dataclass(frozen=True)
class Case:
    """A kind of run: its family and the flags it is started with."""

    family: str = "classification"
    flags: tuple[str, ...] = ()
    upgrade: bool = False
    """Whether the encoder is exchanged after the first task."""
    clients_per_person: int = 0
    """Of people as units; 0: a client is the unit."""
    apart: bool = False
    """Whether tasks have types of their own where names are tagged, as labels of texts have."""

    def __str__(self) -> str:
        flags = " ".join(self.flags).replace("--", "").replace("--set ", "")
        more = " upgrade" * self.upgrade + " apart" * self.apart
        return f"{self.family} {flags}{more}{self._unit}".strip()

    @property
    def _unit(self) -> str:
        return f" people in {self.clients_per_person}" if self.clients_per_person else ""


@dataclass
class Transcript:
    """What a world shows to anybody, and the sums that only the mechanism sees."""

    exits: list[tuple[int, str, str]] = field(default_factory=list)
    sums: dict[str, tuple[np.ndarray, int]] = field(default_factory=dict)
    """(D,) before noise, and the bound of one unit in grid steps, by release and attempt."""
    files: dict[str, bytes] = field(default_factory=dict)


PRIVATE = (
    "rows.csv",
    "cache/embeddings/private/",
    "rows.cslr-federation/spoken.json",
    "ledger/spoken.json",
    "rows.cslr-federation/rows.json",
)
"""As private as the rows: never leaves their holder."""


def differences(one: Transcript, other: Transcript) -> list[str]:
    """What differs between two worlds and may not."""
    found = []
    if one.exits != other.exits:
        found.append(f"exit code or messages: {one.exits} and {other.exits}")
    for name in sorted(one.files.keys() | other.files.keys()):
        if one.files.get(name) != other.files.get(name):
            found.append(f"file {name}")
    if one.sums.keys() != other.sums.keys():
        found.append(f"releases: {sorted(one.sums)} and {sorted(other.sums)}")
    for name in sorted(one.sums.keys() & other.sums.keys()):
        (mine, bound), (theirs, _) = one.sums[name], other.sums[name]
        if np.linalg.norm((mine - theirs).astype(float)) > bound:
            found.append(f"sum {name} moved by more than its bound")
    return found


def moved(one: Transcript, other: Transcript) -> bool:
    """Whether any sum shows the difference at all: else the test would test nothing."""
    return any(not np.array_equal(one.sums[name][0], other.sums[name][0]) for name in one.sums)


# -- rows ------------------------------------------------------------------------------------------


def rows_of(family: str, clients: int = 6) -> Rows:
    """Client c0 has many rows, c5 a single one; two tasks with a label each and one with two.

    Person many has twelve rows of both tasks at c0, c0-20 a single one of t1, and c5-0 is alone
    with its client.
    """
    rows = []
    for client in range(clients):
        for number in range({0: 30, clients - 1: 1}.get(client, 6)):
            label = number % 3
            person = f"c{client}-{number // 2 if client else number}"
            if client == 0 and number < 12:
                person = "many"
            row = _row(family, f"{client}-{number}", label, f"c{client}", "train")
            rows.append(row | {"person": person})
    for number in range(6):
        row = _row(family, f"test-{number}", number % 3, "c1", "test")
        rows.append(row | {"person": f"tested-{number // 2}"})
    return rows


def _row(family: str, name: str, label: int, client: str, split: str) -> dict[str, str]:
    task = "t0" if label < 2 else "t1"
    if family == "tagging":
        words = [f"{label}w{name}", f"{label}w{name}x", "9w and"]
        text = " ".join(word.replace(" ", "") for word in words)
        answer = f"B-L{label}|I-L{label}|O"
    else:
        text, answer = f"{label} message {name}", f"L{label}"
    return {"text": text, "label": answer, "client": client, "task": task, "split": split}


def without(rows: Rows, client: str) -> Rows:
    """The same rows, less the train rows of one client."""
    return [row for row in rows if row["client"] != client or row["split"] == "test"]


def without_person(rows: Rows, person: str) -> Rows:
    """The same rows, less those of one person."""
    return [row for row in rows if row["person"] != person]


def only_person(rows: Rows, person: str) -> Rows:
    """One person's rows, and the test rows."""
    return [row for row in rows if row["person"] == person or row["split"] == "test"]


def gone(rows: Rows, client: str) -> Rows:
    """The same rows without any of one client."""
    return [row for row in rows if row["client"] != client]


def _declaration(case: Case) -> str:
    family = case.family
    scenario = "domain" if family == "tagging" else "class"
    columns, privacy, people = 'task = "task", split = "split"', "epsilon = 8.0", []
    if case.clients_per_person:
        columns, privacy = f'{columns}, person = "person"', f'{privacy}, unit = "person"'
        people = ["people = 200", f"clients_per_person = {case.clients_per_person}"]
    lines = [
        "confirmed = true",
        'name = "small"',
        f'family = "{family}"',
        f'scenario = "{scenario}"',
        "clients = 8",
        *people,
        'public = "public.txt"',
        f"columns = {{ {columns} }}",
        f"privacy = {{ {privacy} }}",
    ]
    for label in range(3):
        lines += ["[[labels]]", f'name = "L{label}"']
        lines.append(f'description = "{label} described"')
        if family == "tagging":
            lines.append(f'examples = ["[{label}wdeclared|L{label}] 9wand 7wso 8won"]')
    tasks = {"t0": [0, 1], "t1": [2]}
    for task, labels in tasks.items():
        if family == "tagging" and not case.apart:
            labels = [0, 1, 2]
        names = ", ".join(f'"L{label}"' for label in labels)
        lines += ["[[tasks]]", f'name = "{task}"', f"labels = [{names}]"]
    return "\n".join(lines) + "\n"


def _public(family: str) -> list[str]:
    rng = np.random.default_rng(5)
    if family != "tagging":
        return [f"{rng.integers(12)} sentence {number}" for number in range(150)]
    return [
        " ".join(f"{rng.integers(12)}wp{number}x{place}" for place in range(8))
        for number in range(150)
    ]


# -- worlds ----------------------------------------------------------------------------------------


class World:
    """One directory with rows, in which the program is called. Every world has the same path."""

    def __init__(self, root: Path, case: Case, rows: Rows) -> None:
        self.root, self.case = root, case
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        (root / "rows.cslr.toml").write_text(_declaration(case))
        (root / "public.txt").write_text("\n".join(_public(case.family)) + "\n")
        (root / "small.toml").write_text(SMALL)
        self.write(rows)
        self.transcript = Transcript()

    def write(self, rows: Rows) -> None:
        """The file of rows, as CSV."""
        columns = ["text", "label", "client", "task", "split", "person"]
        lines = [",".join(columns), *[",".join(row[name] for name in columns) for row in rows]]
        (self.root / "rows.csv").write_text("\n".join(lines) + "\n")

    def run(self, *more: str, dies_at: str | None = None) -> int:
        """``cslr run`` on the rows; dies_at: the release after whose charge the process ends."""
        given = ("run", "small.toml", "--data", "rows.csv", "--run-dir", "run", *self.case.flags)
        return self.call(*given, *more, dies_at=dies_at)

    def call(self, *arguments: str, dies_at: str | None = None) -> int:
        """The program, and what it shows."""
        out, err = io.StringIO(), io.StringIO()
        with (
            self._inside(dies_at),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            patch.object(sys, "argv", ["cslr", *arguments]),
        ):
            try:
                main()
                code = 0
            except SystemExit as stop:
                code = int(stop.code or 0)
            except Died:
                return -9
        self.transcript.exits.append((code, out.getvalue(), err.getvalue()))
        return code

    def end(self) -> Transcript:
        """Everything the directory holds that is not as private as the rows."""
        self.transcript.files = {
            name: path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and not (name := str(path.relative_to(self.root))).startswith(PRIVATE)
        }
        return self.transcript

    @contextmanager
    def _inside(self, dies_at: str | None) -> Iterator[None]:
        before = Path.cwd()
        environment = {
            "CSLR_CACHE_DIR": str(self.root / "cache"),
            "COLUMNS": "100",
            "NO_COLOR": "1",
        }
        with ExitStack() as stack:
            enter = stack.enter_context
            enter(patch.object(study_module, "load_encoder", Company))
            enter(patch.object(study_module, "load_token_encoder", lambda *_: CompanyOfWords()))
            enter(patch.dict(os.environ, environment))
            enter(patch.object(os, "urandom", _entropy))
            enter(patch.object(schedules, "RECIPE", SHORT))
            enter(patch.object(mechanism, "_noised", self._published(dies_at)))
            # A keyed name of the sum: without the key it says nothing, so here it may say nothing.
            enter(patch.object(mechanism, "tag_for_sum", lambda key, total: "tag"))
            os.chdir(self.root)
            try:
                yield
            finally:
                os.chdir(before)

    def _published(self, dies_at: str | None) -> Callable[..., np.ndarray]:
        """Instead of sum and noise: a vector that follows from the release's name."""

        def published(kept: Any, charge: Any, key: bytes, ledger: Any) -> np.ndarray:
            attempt = sum(name.startswith(f"{charge.label}/") for name in self.transcript.sums)
            self.transcript.sums[f"{charge.label}/{attempt}"] = (kept.total, kept.grid.steps)
            if charge.label == dies_at:
                raise Died
            name = int.from_bytes(hashlib.sha256(charge.label.encode()).digest()[:8], "big")
            noise = np.random.default_rng(name).standard_normal(kept.total.shape)
            return kept.grid.decode(np.rint(noise * kept.grid.steps).astype(np.int64))

        return published


class Died(BaseException):
    """The process ends here, between the charge of a release and its result."""


def _entropy(size: int) -> bytes:
    """A function of who asks and for what: the same key material in both worlds."""
    frame = sys._getframe(1)
    asked = {name: value for name, value in frame.f_locals.items() if isinstance(value, str | int)}
    text = f"{frame.f_code.co_name} {sorted(asked.items())}"
    return hashlib.shake_256(text.encode()).digest(size)


def ledger_kinds(transcript: Transcript) -> list[str]:
    """What the ledger noted, in order."""
    content = transcript.files["rows.cslr-federation/ledger.jsonl"]
    return [json.loads(line)["kind"] for line in content.splitlines()]
