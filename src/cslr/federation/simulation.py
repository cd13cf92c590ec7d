"""All clients in one process, stacked: the engine of every experiment.

Clients of similar size are padded to a common length and handled in one batched call. Because
contributions are added up as integers and every random stream is addressed by client, neither the
order of clients nor the batching changes a result beyond the rounding of floating point.

Where privacy is enforced, not even the rounding of one unit's answer may depend on another unit's
rows. So only units with the same number of rows are stacked, without padding: NumPy then handles
each of them by calls of the same shapes as if it were alone, and every bit of its answer depends on
its own rows only. A test compares stacked answers of every kind with those of units on devices of
their own. Clients that train a network, for which this is not known, are handled one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from cslr.arrays import BoolArray, FloatArray, IntArray
from cslr.errors import DataError
from cslr.federation.poisoning import opposed
from cslr.privacy.ledger.cap_memory import CapMemory
from cslr.privacy.values import Bounded, Summed, plain_sum
from cslr.protocol.messages import Device
from cslr.protocol.ports import Ask, Examples, Request
from cslr.protocol.step5_rounds import GradientRound
from cslr.seeding import Seeds

__all__ = ["Population", "SimulatedCohort"]

Attack = Literal["oppose", "mislead"]
MISLEADING: Final = 64
"""Texts of a hostile client that misleads: enough for the largest weight a client can have."""
BATCH_ROWS: Final = 16_384
"""Padded rows in one batch: bounds memory at about 100 MB."""
BATCH_UNITS: Final = 192
"""Units in one batch, at most: one block of ``public_space`` where each has one row."""
BATCH_NUMBERS: Final = 1 << 18
"""Coordinates of the contributions of one batch: few enough to stay in a processor's cache."""


@dataclass(frozen=True, eq=False, repr=False)
class Population:
    """PRIVATE. The rows of all N registered clients, in one process."""

    z: FloatArray  # (n, d)
    labels: IntArray  # (n,)
    tasks: IntArray  # (n,)
    clients: IntArray  # (h,) client clients[i] holds row rows[i]
    count: int  # N
    rows: IntArray | None = None  # (h,) None: every row once, in order
    targets: FloatArray | None = None  # (n, outputs) where labels do not determine them
    kinds: IntArray | None = None  # (n,) true modes, to measure alignment; no client reads them
    hostile: IntArray | None = None  # (h,) clients that poison every release, in studies
    attack: Attack = "oppose"
    ids: IntArray | None = None
    """(N,) the address of each client's own random stream; None: its number. Required where clients
    are numbered by who has rows: one client's rows would otherwise change another's choices."""

    clients_per_unit: int = 1
    """PUBLIC. The most of these clients that may hold rows of one unit of privacy."""

    def __post_init__(self) -> None:
        bad = np.flatnonzero(~np.isfinite(self.z).all(axis=1))
        if bad.size:
            raise DataError(
                f"the embedding of train row {bad[0]} is not finite: check the encoder, or remove "
                "the row"
            )

    @property
    def held(self) -> IntArray:
        """(h,) the row of each entry of ``clients``."""
        return np.arange(len(self.z)) if self.rows is None else self.rows

    @property
    def addresses(self) -> IntArray:
        """(N,) ``ids``, or by default the clients' numbers."""
        return np.arange(self.count) if self.ids is None else self.ids

    def cohort(
        self,
        task: int,
        taking_part: BoolArray,
        cap: int,
        cap_memory: CapMemory | None = None,
        alone: bool = False,
    ) -> SimulatedCohort:
        """The clients asked about a task; one that uses its cap for other tasks sends zeros.

        cap_memory: the tasks that clients were asked about before; this one is added. A task counts
        against the cap whatever a client's participation coin: a second coin for another task
        would be one more chance to take part than is charged.
        alone: whether each client's answer must be the one it would give alone, bit for bit.
        """
        honest = np.ones(self.count, dtype=np.bool_)
        if self.hostile is not None:
            honest[self.hostile] = False
        hostile = tuple(np.flatnonzero(taking_part & ~honest).tolist())
        within_cap = honest & self._contributes(task, cap)
        if cap_memory is not None:
            asked = self.addresses[within_cap].tolist()
            within_cap[within_cap] = cap_memory.admit(asked, task, cap)
        return SimulatedCohort(self, task, taking_part & within_cap, hostile, alone)

    def _contributes(self, task: int, cap: int) -> BoolArray:
        """(N,) whether the task is among those that each client contributes to.

        A client with rows of more than ``cap`` tasks chooses among them at random, from its own
        random stream and in advance, so that late tasks have as many contributors as early ones.
        """
        tasks = max(task, int(self.tasks.max(initial=0))) + 1
        held = np.zeros((self.count, tasks), dtype=np.bool_)
        held[self.clients, self.tasks[self.held]] = True
        contributes: BoolArray = held[:, task].copy()
        choosing = np.flatnonzero(contributes & (held.sum(axis=1) > cap))
        if len(choosing):
            priority = _priorities_of(self._drawn, self.addresses[choosing].tolist(), tasks)
            order = np.where(held[choosing], priority, np.inf).argsort(axis=1, kind="stable")
            contributes[choosing] = order.argsort(axis=1)[:, task] < cap
        return contributes

    @cached_property
    def _drawn(self) -> dict[tuple[int, int], FloatArray]:
        """Priorities drawn so far, by address and number of tasks: a task may have many rounds."""
        return {}


def _priorities_of(
    drawn: dict[tuple[int, int], FloatArray], addresses: Sequence[int], tasks: int
) -> FloatArray:
    """(b, tasks) random priorities of tasks by address; more tasks do not change the first ones."""
    for address in addresses:
        if (address, tasks) not in drawn:
            drawn[address, tasks] = Seeds(address).at("cap").random(tasks)
    return np.stack([drawn[address, tasks] for address in addresses])


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedCohort:
    """PRIVATE. The clients of one round, as the server may ask them; who takes part is secret."""

    population: Population
    task: int
    taking_part: BoolArray  # (N,)
    hostile: tuple[int, ...] = ()
    """Hostile clients: they respect the clip and nothing else."""
    alone: bool = False
    """Whether an answer depends on that client's rows alone, bit for bit."""
    device: Device = field(default_factory=Device, init=False, repr=False)

    @property
    def size(self) -> int:
        """How many of the clients that take part have rows of the task."""
        held = self.population.tasks[self.population.held] == self.task
        holders = np.unique(self.population.clients[held])
        return int(self.taking_part[holders].sum())

    def total(self, ask: Ask[Any]) -> Summed:
        """An ideal secure sum over the clients that take part."""
        return plain_sum(self.answers(ask))

    def answers(self, ask: Ask[Any]) -> Iterator[Bounded]:
        """The clients' answers in batches, for a sum; those of hostile clients come last."""
        self._check_clip(ask)
        answers = (self.device.answer(batch, ask) for batch in self.batches(ask))
        if not self.hostile:
            yield from answers
            return
        honest = list(answers)
        yield from (*honest, *self._hostile_answers(honest, ask))

    def each(self, ask: Ask[Any]) -> tuple[tuple[int, ...], list[Bounded]]:
        """The answers of all clients that take part, in batches, and who gave them.

        A client without rows of the task answers, too: its silence would reveal that.
        """
        self._check_clip(ask)
        batches = list(self.batches(ask))
        answering = {client for batch in batches for client in batch.clients}
        participants = self.population.addresses[self.taking_part].tolist()
        without_rows = [client for client in participants if client not in answering]
        if without_rows:
            batches.append(self._without_rows(tuple(without_rows)))
        clients = tuple(client for batch in batches for client in batch.clients)
        answers = [self.device.answer(batch, ask) for batch in batches]
        return (*clients, *self.hostile), [*answers, *self._hostile_answers(answers, ask)]

    def _check_clip(self, ask: Ask[Any]) -> None:
        """Refuse a grid on which the contributions of one unit could exceed the bound together."""
        several = self.population.clients_per_unit
        if ask.grid.share < several:
            raise ValueError(
                f"the grid of {ask.label!r} must have share >= {several}, not {ask.grid.share}: so "
                "many clients may hold rows of one person"
            )

    def _hostile_answers(self, answers: Sequence[Bounded], ask: Ask[Any]) -> list[Bounded]:
        if not self.hostile:
            return []
        if self.population.attack == "mislead":
            return [self.device.answer(self._misleading(), ask)]
        return [opposed(answers, len(self.hostile))]

    def _misleading(self) -> Examples:
        """Examples of hostile clients: texts of one label, sent under another label.

        With several labels in the task each text gets the task's next label. With only one, texts
        of all other labels get that one. The device clips the contribution like any other.
        """
        people = self.population
        labels = np.unique(people.labels[people.tasks == self.task])
        inside = np.isin(people.labels, labels) & (people.tasks == self.task)
        rows = np.flatnonzero(inside if len(labels) > 1 else ~np.isin(people.labels, labels))
        following = dict(zip(labels.tolist(), np.roll(labels, -1), strict=True))
        rng = Seeds(self.task).at("misleading")
        chosen = rng.choice(rows, size=(len(self.hostile), MISLEADING))
        wrong = np.vectorize(lambda label: following.get(label, labels[0]))(people.labels[chosen])
        targets = None
        if people.targets is not None:
            usual = {
                label: np.flatnonzero(inside & (people.labels == label))[0] for label in labels
            }
            targets = people.targets[np.vectorize(usual.get)(wrong)]
        mask = np.ones(chosen.shape, dtype=np.bool_)
        return Examples(people.z[chosen], wrong, mask, self.hostile, targets)

    def batches(self, ask: Ask[Any] | None = None) -> Iterator[Examples]:
        """The rows of the clients that take part, in batches of clients of similar size.

        ask: the question that the batches answer, which limits their size.
        """
        most = self._units_together(ask)
        population, held = self.population, self.population.held
        in_task = (population.tasks[held] == self.task) & self.taking_part[population.clients]
        positions = np.flatnonzero(in_task)
        positions = positions[np.argsort(population.clients[positions], kind="stable")]
        rows, clients = held[positions], population.clients[positions]
        ids, first, sizes = np.unique(clients, return_index=True, return_counts=True)
        if not len(ids):
            yield self._without_rows()
        by_size = np.argsort(sizes, kind="stable")
        ordered, begun = sizes[by_size], 0
        while begun < len(by_size):
            ahead = ordered[begun : begun + most]
            fitting = int(
                np.searchsorted(np.arange(1, len(ahead) + 1) * ahead, BATCH_ROWS, "right")
            )
            if self.alone:  # none is padded
                fitting = min(fitting, int(np.searchsorted(ahead, ahead[0], "right")))
            chosen = by_size[begun : begun + max(1, fitting)]
            begun += len(chosen)
            yield self._padded(rows, ids[chosen], first[chosen], sizes[chosen])

    def _units_together(self, ask: Ask[Any] | None) -> int:
        """The most units in one batch, so that their answers stay in the cache."""
        request = None if ask is None else ask.request
        if self.alone and not isinstance(request, Request | GradientRound):
            return 1
        if isinstance(request, Request):
            return max(1, min(BATCH_UNITS, BATCH_NUMBERS // max(request.layout.held, 1)))
        return BATCH_UNITS

    def _without_rows(self, clients: tuple[int, ...] = (0,)) -> Examples:
        """Clients without rows; by default a single one, so that an empty cohort sums to zeros."""
        nothing = np.zeros((len(clients), 1), dtype=np.int64)
        z = np.zeros((*nothing.shape, self.population.z.shape[1]))
        targets = self.population.targets
        if targets is not None:
            targets = np.zeros((*nothing.shape, targets.shape[1]), dtype=targets.dtype)
        return Examples(z, labels=nothing, mask=nothing > 0, clients=clients, targets=targets)

    def _padded(self, rows: IntArray, ids: IntArray, first: IntArray, sizes: IntArray) -> Examples:
        """Clients ``ids``, whose rows are ``rows[first : first + size]``, padded to one length."""
        offset = np.arange(int(sizes.max()))
        mask = offset < sizes[:, None]
        chosen = rows[np.where(mask, first[:, None] + offset, 0)]
        return Examples(
            z=self.population.z[chosen],
            labels=self.population.labels[chosen],
            mask=mask,
            clients=tuple(self.population.addresses[ids].tolist()),
            targets=None if self.population.targets is None else self.population.targets[chosen],
            kinds=None if self.population.kinds is None else self.population.kinds[chosen],
        )
