"""A small run on rows of one's own, where privacy is enforced: everything `cslr run` does to files.

The encoder is a stand-in (a text says which topic it is near), entropy is replayed: what the
operating system would give is a function of who asks for what. So a run that was killed and taken
up again must end with the very bytes of one that nobody disturbed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import cslr.privacy.ledger.fingerprints as ledger_rows
import cslr.privacy.mechanism as mechanism
import cslr.runs.embedded as study_module
import cslr.runs.learn as runner_module
from cslr.config import Config, load_config
from cslr.files import write_atomic
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import load_embedded, settle
from cslr.runs.learn import run

from .points import Points

WIDTH = 16  # d
SMALL = {
    "replay.dimension": 6,
    "paper.m": 12,
    "paper.n_r": 8,
    "yardsticks": False,
}


@dataclass(frozen=True)
class Case:
    """A kind of run, and where it happens."""

    root: Path
    tasks: int = 3
    settings: Mapping[str, object] = field(default_factory=dict)
    entropy: str = "replayed"
    """``replayed``, or a salt: then every process tosses other coins and makes other keys."""

    @property
    def rows(self) -> Path:
        return self.root / "rows.csv"

    @property
    def federation(self) -> Path:
        return self.root / "rows.cslr-federation"

    @property
    def ledger(self) -> Path:
        return self.federation / "ledger.jsonl"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def kept(self) -> Path:
        return self.run / "seed-13"

    def config(self) -> Config:
        given = {"stream.data": self.rows, **SMALL, **self.settings}
        return settle(load_config(None, given)).given

    def begin(self) -> None:
        """Nothing but rows, their declaration and public sentences."""
        shutil.rmtree(self.root, ignore_errors=True)
        Points(self.root).witness.unlink(missing_ok=True)
        self.root.mkdir(parents=True)
        _write_rows(self)


def _write_rows(case: Case, clients: int = 5) -> None:
    rng = np.random.default_rng(5)
    lines = ["text,label,client,task,split"]
    for number in range(16 * case.tasks):
        task, split = number % case.tasks, "test" if number < 4 * case.tasks else "train"
        lines.append(f"{task} row {number},label{task},c{rng.integers(clients)},t{task},{split}")
    case.rows.write_text("\n".join(lines) + "\n")
    public = [f"{rng.integers(12)} sentence {number}" for number in range(110)]
    (case.root / "public.txt").write_text("\n".join(public) + "\n")
    names = range(case.tasks)
    declared = [
        "confirmed = true",
        'name = "small"',
        'family = "classification"',
        'scenario = "class"',
        f"clients = {clients}",
        f'public = "{case.root / "public.txt"}"',
        'columns = { task = "task", split = "split" }',
        "privacy = { epsilon = 8.0 }",
        *[f'[[labels]]\nname = "label{n}"\ndescription = "{n} described"' for n in names],
        *[f'[[tasks]]\nname = "t{n}"\nlabels = ["label{n}"]' for n in names],
    ]
    (case.root / "rows.cslr.toml").write_text("\n".join(declared) + "\n")


class StandIn:
    """An encoder: near the topic with the number a text begins with."""

    id = "stand-in"
    dimension = WIDTH

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        z = np.stack([_vector(text) for text in texts])
        return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)


def _vector(text: str) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    z = 0.2 * np.random.default_rng(seed).standard_normal(WIDTH)
    z[int(text.split()[0]) % WIDTH] += 1.0
    return z


def whole_run(case: Case, points: Points) -> None:
    """What `cslr run` does between its arguments and the screen."""
    with _in_the_small(case, points), points.installed():
        config = case.config()
        directory = RunDirectory(case.run, config)
        result = run(config, load_embedded(config), directory, lambda what, done, total: None)
        plain = json.dumps(result.stored_json(), indent=2)
        write_atomic(case.run / "result.json", plain.encode() + b"\n")


@contextmanager
def _in_the_small(case: Case, points: Points) -> Iterator[None]:
    """The stand-in, replayed entropy, a clock that stands still, and a witness of releases."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(study_module, "load_encoder", lambda name: StandIn()))
        stack.enter_context(patch.dict(os.environ, {"CSLR_CACHE_DIR": str(case.root / "cache")}))
        stack.enter_context(patch.object(os, "urandom", lambda size: _entropy(case, size)))
        stack.enter_context(patch.object(time, "perf_counter", lambda: 0.0))
        # Every case begins with a new file of rows, whose inode and time would tell them apart.
        for name in ("_identity", "_identity_and_time"):
            stack.enter_context(patch.object(ledger_rows, name, lambda path: [7]))
        if case.settings.get("method") == "cslr-paper":
            # Lists are refused where privacy is enforced, for what they show of their senders. What
            # is asked here is whether they survive: with keys of the operating system, as sums do.
            stack.enter_context(patch.object(runner_module, "check_privacy", lambda config: None))
        stack.enter_context(_witnessed(case, points))
        yield


def _entropy(case: Case, size: int) -> bytes:
    """A function of who asks and for what: the same again after a restart, unless salted."""
    frame = sys._getframe(2)
    asked = {k: v for k, v in frame.f_locals.items() if isinstance(v, str | int)}
    salt = "" if case.entropy == "replayed" else f"{case.entropy} {os.getpid()}"
    text = f"{frame.f_code.co_name} {sorted(asked.items())} {salt}"
    return hashlib.shake_256(text.encode()).digest(size)


@contextmanager
def _witnessed(case: Case, points: Points) -> Iterator[None]:
    """Note every value that leaves the mechanism, and what was on the disk when it did."""
    released = mechanism.Released

    def watched(value: Any, seal: Any) -> Any:
        frame = sys._getframe(1)
        if frame.f_code.co_name in ("release", "release_each", "finish"):
            durable = points.durable(str(case.ledger.relative_to(case.root)))
            charges = [line for line in map(json.loads, durable.splitlines()) if _is_charge(line)]
            points.note(
                kind="released",
                label=frame.f_locals["charge"].label,
                digest=hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest(),
                key=hashlib.sha256(frame.f_locals["key"]).hexdigest(),
                durable=[line["body"]["commitment"] for line in charges],
            )
        return released(value, seal)

    with patch.object(mechanism, "Released", watched):
        yield


def _is_charge(record: dict[str, Any]) -> bool:
    return record["kind"] == "charge"
