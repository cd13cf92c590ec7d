"""All clients in one process, stacked: the engine of every experiment.

Clients of similar size are padded to a common length and handled in one batched call. Because
contributions are added up as integers and every random stream is addressed by client, neither the
order of clients nor the batching changes a result beyond the rounding of floating point.

Where privacy is enforced not even that may pass from one unit to another. Only units with the same
number of rows are stacked then, without padding: NumPy handles each of them by the same calls, of
the same shapes, as if it were alone, so every bit of its answer is its own. A test holds stacked
answers of every kind against those of units on devices of their own. Where that is not known to be
so (clients that train a network), each is handled alone.
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
"""Texts of a hostile client that misleads: enough that its weight is the largest there is."""
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
    clients: IntArray  # (h,) who holds what: client clients[i] has row rows[i]
    count: int  # N
    rows: IntArray | None = None  # (h,) None: every row once, in order
    targets: FloatArray | None = None  # (n, outputs) where the label does not settle them
    kinds: IntArray | None = None  # (n,) true modes, to measure alignment; no client reads them
    hostile: IntArray | None = None  # (h,) clients that poison every release, in a study of that
    attack: Attack = "oppose"
    ids: IntArray | None = None
    """(N,) what each client's own random choices are addressed by; None: its number. Where numbers
    depend on who else has rows, they must not: one client's rows would move the others' answers."""

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
        """(h,) the rows that are held, in the order of ``clients``."""
        return np.arange(len(self.z)) if self.rows is None else self.rows

    @property
    def addresses(self) -> IntArray:
        """(N,) ``ids``, or the clients' numbers."""
        return np.arange(self.count) if self.ids is None else self.ids

    def cohort(
        self,
        task: int,
        taking_part: BoolArray,
        cap: int,
        cap_memory: CapMemory | None = None,
        alone: bool = False,
    ) -> SimulatedCohort:
        """The clients asked about a task; one that spends its cap on others sends zeros.

        cap_memory: what clients remember of earlier tasks, and of this one from now on. A task
        counts against the cap whichever way a client's coin fell: tossing again for another task
        would be one more chance to take part than is charged for.
        alone: whether each client's answer must be the one it would give alone, bit for bit.
        """
        honest = np.ones(self.count, dtype=np.bool_)
        if self.hostile is not None:
            honest[self.hostile] = False
        hostile = tuple(np.flatnonzero(taking_part & ~honest).tolist())
        within_cap = honest & self._speaks(task, cap)
        if cap_memory is not None:
            asked = self.addresses[within_cap].tolist()
            within_cap[within_cap] = cap_memory.admit(asked, task, cap)
        return SimulatedCohort(self, task, taking_part & within_cap, hostile, alone)

    def _speaks(self, task: int, cap: int) -> BoolArray:
        """(N,) whether the task is among those each client contributes to.

        A client with more than ``cap`` of them picks at random and ahead, by its own address, so
        that late tasks find as many speakers as early ones.
        """
        tasks = max(task, int(self.tasks.max(initial=0))) + 1
        held = np.zeros((self.count, tasks), dtype=np.bool_)
        held[self.clients, self.tasks[self.held]] = True
        speaks: BoolArray = held[:, task].copy()
        choosing = np.flatnonzero(speaks & (held.sum(axis=1) > cap))
        if len(choosing):
            lot = _lots_of(self._lots, self.addresses[choosing].tolist(), tasks)
            rank = np.where(held[choosing], lot, np.inf).argsort(axis=1, kind="stable")
            speaks[choosing] = rank.argsort(axis=1)[:, task] < cap
        return speaks

    @cached_property
    def _lots(self) -> dict[tuple[int, int], FloatArray]:
        """The random orders of tasks that were drawn so far: a task may have many rounds."""
        return {}


def _lots_of(
    drawn: dict[tuple[int, int], FloatArray], addresses: Sequence[int], tasks: int
) -> FloatArray:
    """(b, tasks) each address's own random order; more tasks leave those before as they are."""
    for address in addresses:
        if (address, tasks) not in drawn:
            drawn[address, tasks] = Seeds(address).at("cap").random(tasks)
    return np.stack([drawn[address, tasks] for address in addresses])


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedCohort:
    """PRIVATE. The clients of one round, as the server may ask them; coins are secret, too."""

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
        """How many of the clients that take part hold anything of the task."""
        held = self.population.tasks[self.population.held] == self.task
        holders = np.unique(self.population.clients[held])
        return int(self.taking_part[holders].sum())

    def total(self, ask: Ask[Any]) -> Summed:
        """An ideal secure sum over the clients that take part."""
        return plain_sum(self.answers(ask))

    def answers(self, ask: Ask[Any]) -> Iterator[Bounded]:
        """What a sum adds up: the clients' answers in batches, hostile ones last."""
        self._check_clip(ask)
        answers = (self.device.answer(batch, ask) for batch in self.batches(ask))
        if not self.hostile:
            yield from answers
            return
        honest = list(answers)
        yield from (*honest, *self._opposition(honest, ask))

    def each(self, ask: Ask[Any]) -> tuple[tuple[int, ...], list[Bounded]]:
        """The answers of all clients that take part, in batches, and who gave them.

        One that holds nothing of the task answers too: a silence would tell.
        """
        self._check_clip(ask)
        batches = list(self.batches(ask))
        speaking = {client for batch in batches for client in batch.clients}
        participants = self.population.addresses[self.taking_part].tolist()
        silent = [client for client in participants if client not in speaking]
        if silent:
            batches.append(self._nobody(tuple(silent)))
        clients = tuple(client for batch in batches for client in batch.clients)
        answers = [self.device.answer(batch, ask) for batch in batches]
        return (*clients, *self.hostile), [*answers, *self._opposition(answers, ask)]

    def _check_clip(self, ask: Ask[Any]) -> None:
        """Refuse a clip that several contributions of one unit would exceed together."""
        several = self.population.clients_per_unit
        if ask.grid.share < several:
            raise ValueError(
                f"the grid of {ask.label!r} must have share >= {several}, not {ask.grid.share}: so "
                "many clients may hold rows of one person"
            )

    def _opposition(self, answers: Sequence[Bounded], ask: Ask[Any]) -> list[Bounded]:
        if not self.hostile:
            return []
        if self.population.attack == "mislead":
            return [self.device.answer(self._misleading(), ask)]
        return [opposed(answers, len(self.hostile))]

    def _misleading(self) -> Examples:
        """Texts of one label under the name of another: of the task, or where it has one, of all.

        The honest device clips what comes of it, so it is as long as any contribution may be.
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
        """The rows of the clients that take part, those of like size side by side.

        ask: the question they are for, which decides how many may stand together.
        """
        most = self._units_together(ask)
        population, held = self.population, self.population.held
        in_task = (population.tasks[held] == self.task) & self.taking_part[population.clients]
        positions = np.flatnonzero(in_task)
        positions = positions[np.argsort(population.clients[positions], kind="stable")]
        rows, clients = held[positions], population.clients[positions]
        ids, first, sizes = np.unique(clients, return_index=True, return_counts=True)
        if not len(ids):
            yield self._nobody()
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
        """The most units of one batch: so many that their answers stay small."""
        request = None if ask is None else ask.request
        if self.alone and not isinstance(request, Request | GradientRound):
            return 1
        if isinstance(request, Request):
            return max(1, min(BATCH_UNITS, BATCH_NUMBERS // max(request.layout.held, 1)))
        return BATCH_UNITS

    def _nobody(self, clients: tuple[int, ...] = (0,)) -> Examples:
        """Clients that hold nothing; one of them, so that an empty cohort sums to zeros."""
        nothing = np.zeros((len(clients), 1), dtype=np.int64)
        z = np.zeros((*nothing.shape, self.population.z.shape[1]))
        targets = self.population.targets
        if targets is not None:
            targets = np.zeros((*nothing.shape, targets.shape[1]), dtype=targets.dtype)
        return Examples(z, labels=nothing, mask=nothing > 0, clients=clients, targets=targets)

    def _padded(self, rows: IntArray, ids: IntArray, first: IntArray, sizes: IntArray) -> Examples:
        """Clients ``ids`` whose rows stand at ``first`` .. ``first + sizes`` of ``rows``."""
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
