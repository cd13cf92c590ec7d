"""Where detectors work: a small federation, its rounds, and ways to look inside."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cslr.federation.simulation import Population
from cslr.privacy import values
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import EphemeralKeys, NoiseKeys, SeededKeys
from cslr.privacy.plan import Budget, Plan, Schedule, calibrate
from cslr.protocol import messages, updates
from cslr.protocol import round as protocol_round
from cslr.protocol.agreement import Agreement
from cslr.protocol.ports import Keep
from cslr.seeding import Seeds

CLIENTS = 12
TASKS = 2
LABELS = (0, 1)
"""Of task 0 in the small world."""
LOOSE = 1000.0
"""An ε that refuses nothing."""

# Everybody is clipped in every mode, so that a wrong clip shows.
SETTINGS: dict[str, dict[str, Any]] = {
    "joint": {"family": "tagging", "bounds": (0.02,)},
    "separate": {"family": "tagging", "clipping": "separate", "bounds": (0.1, 0.02, 0.05, 0.05)},
    "list": {
        "release": "list",
        "pooled": True,
        "sub_modes": 4,
        "list_size": 4,
        "list_bound": 0.05,
        "bounds": (0.02,),
    },
}
SCHEDULES = {
    "joint": Schedule(),
    "separate": Schedule(replay=4),
    "list": Schedule(replay=1, lists=1),
    "update": Schedule(replay=0, head=1),
}


@dataclass(frozen=True)
class Finding:
    """What a detector has to say."""

    alarm: bool
    figure: str


class Crash(Exception):
    """The process dies here."""


@dataclass
class Drawer:
    """A ``Keep`` that remembers everything it was ever handed, and may die instead of keeping."""

    dies: bool = False
    kept: dict[str, np.ndarray] = field(default_factory=dict)
    handed: list[tuple[str, bytes]] = field(default_factory=list)

    def load(self, label: str) -> np.ndarray | None:
        return self.kept.get(label)

    def save(self, label: str, vector: np.ndarray, *receipt: object) -> None:
        self.handed.append((label, vector.tobytes()))
        if self.dies:
            raise Crash(label)
        self.kept[label] = vector


@dataclass(frozen=True, eq=False)
class Lab:
    """Hands out what detectors need; nothing is shared between two of their runs."""

    world: Any
    make_context: Callable[..., Any]
    rooms: Path
    draws: int = 200_000
    """Residuals of one look at the noise."""

    def room(self) -> Path:
        """An empty directory."""
        return Path(tempfile.mkdtemp(dir=self.rooms))

    def ledger(self, seed: int, epsilon: float = LOOSE, keys: NoiseKeys | None = None) -> Ledger:
        """A ledger in memory; simulated unless it is given keys of its own."""
        privacy = "simulated" if keys is None else "enforced"
        federation = Federation("lab", Budget(epsilon), privacy)
        return Ledger.in_memory(federation, keys or SeededKeys(Seeds(seed)))

    def ledger_in(self, room: Path, epsilon: float = LOOSE) -> Ledger:
        """The ledger that lies in a room, as a new process would open it; keys of the system."""
        federation = Federation("lab", Budget(epsilon), "enforced")
        return Ledger.at(room / "ledger.jsonl", federation, EphemeralKeys(room / "keys"))

    def people(self, seed: int, mode: str) -> Population:
        """The small world's clients, each row moved a little."""
        family = SETTINGS[mode].get("family", "classification")
        people = self.world.told(family).population
        moved = np.random.default_rng([seed, 1]).normal(0.0, 0.02, people.z.shape)
        return replace(people, z=people.z + moved)

    def agreement(self, mode: str) -> Agreement:
        return _agreement(self.world, mode)

    def round(
        self,
        seed: int,
        mode: str,
        ledger: Ledger,
        keep: Keep,
        epsilon: float = 20.0,
        q: float = 1.0,
        taking_part: np.ndarray | None = None,
    ) -> Any:
        """Task 0 from the clients' rows to its release, by the real protocol."""
        came = np.ones(CLIENTS, dtype=bool) if taking_part is None else taking_part
        cohort = self.people(seed, mode).cohort(0, came, TASKS)
        plan = self.plan(mode, epsilon, q)
        agreement = self.agreement(mode)
        return (
            protocol_round.Session(agreement, plan, ledger, keep).release(0, LABELS, cohort).value
        )

    def update(
        self,
        vectors: np.ndarray,
        norm: float,
        ledger: Ledger,
        keep: Keep,
        epsilon: float = 20.0,
        q: float = 1.0,
        clients: int = 50,
    ) -> np.ndarray:
        """(D,) the average update of a model, by the real protocol."""
        update = updates.UpdateId(0, 0, clients)
        ask = updates.update_ask(update, _Trained(vectors), norm)
        plan = self.plan("update", epsilon, q)
        return updates.release_update(ask, update, _Everybody, plan, ledger, keep)

    def plan(self, mode: str, epsilon: float, q: float = 1.0) -> Plan:
        return calibrate(Budget(epsilon), 1, q, schedule=SCHEDULES[mode], head_q=q)


@dataclass(frozen=True, eq=False)
class _Trained:
    """Training whose outcome is known."""

    vectors: np.ndarray

    def updates(self, examples: object) -> np.ndarray:
        return self.vectors


class _Everybody:
    """All clients at once, who need no rows."""

    def total(self, ask: Any) -> Any:
        return values.plain_sum([messages.answer(None, ask)])


@cache
def _agreement(world: Any, mode: str) -> Agreement:
    return world.agreement(**SETTINGS[mode])


@contextmanager
def everywhere(current: Any, other: Any) -> Iterator[None]:
    """``other`` in the place of ``current`` in every module of the package that knows it."""
    modules = [module for name, module in sys.modules.items() if name.split(".")[0] == "cslr"]
    found = 0
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            tables = [value for value in vars(module).values() if isinstance(value, dict)]
            for table in tables if module.__name__ == "cslr.protocol.messages" else ():
                for kind in [kind for kind, value in table.items() if value is current]:
                    patch.setitem(table, kind, other)
            for name in [name for name, value in vars(module).items() if value is current]:
                patch.setattr(module, name, other)
                found += 1
        assert found, f"nobody uses {current}"
        yield


@contextmanager
def instead(owner: Any, name: str, other: Any) -> Iterator[None]:
    """``other`` in the place of an attribute of a class or a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, other)
        yield
