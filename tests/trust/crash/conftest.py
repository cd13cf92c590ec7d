"""Small runs in memory-backed directories, and what each leaves when nobody disturbs it."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from .checks import Tree, spent, tree
from .children import run_in_child
from .points import Points
from .study import Case, whole_run

KINDS = {
    "sum": (3, {}),
    "list": (
        2,
        {"method": "cslr-paper", "head.kind": "released", "paper.list_size": 2},
    ),
    "evaluated": (2, {"privacy.evaluate": "private"}),
    "heads": (2, {"head.kind": "dp-fedavg", "head.rounds": 2}),
}


@dataclass(frozen=True)
class Known:
    """A case and its undisturbed end."""

    case: Case
    files: Tree
    points: tuple[str, ...]
    epsilon: float

    @cached_property
    def asked(self) -> dict[str, tuple[str, ...]]:
        """Where a disk that is ``full`` or ``broken`` may refuse."""
        found = {}
        for how in ("full", "broken"):
            self.case.begin()
            found[how] = run_in_child(self.case, how=how).points
        return found

    @property
    def key_made_and_nothing_kept(self) -> range:
        """Points between the key of the first sum and its result; at the last it is charged."""
        kept = _first(self.points, "replace run/seed-13/.task-0")
        synced = "fsync rows.cslr-federation/keys"
        key = max(n for n, name in enumerate(self.points[:kept]) if name.startswith(synced))
        return range(key + 1, kept)


def _first(names: tuple[str, ...], start: str) -> int:
    return next(n for n, name in enumerate(names) if name.startswith(start))


class Cases:
    """Undisturbed runs by kind, each made once."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._known: dict[str, Known] = {}

    def __getitem__(self, kind: str) -> Known:
        if kind not in self._known:
            tasks, settings = KINDS[kind]
            case = Case(self.home / kind, tasks, settings)
            self._known[kind] = _undisturbed(case)
        return self._known[kind]


def _undisturbed(case: Case) -> Known:
    case.begin()
    whole_run(case, Points(case.root))  # in this process: what it loads, its children find loaded
    gc.collect()
    gc.freeze()  # a child that looks for garbage would copy all of this process's memory
    case.begin()
    outcome = run_in_child(case)
    assert outcome.end == "finished", outcome
    return Known(case, tree(case), outcome.points, spent(case))


@pytest.fixture(scope="session")
def cases() -> Iterator[Cases]:
    """``cases["sum"]``; in memory where the system has a place for that, since fsync is slow."""
    shared = Path("/dev/shm")
    home = Path(tempfile.mkdtemp(prefix="cslr-crash-", dir=shared if shared.is_dir() else None))
    yield Cases(home)
    gc.unfreeze()
    shutil.rmtree(home)
