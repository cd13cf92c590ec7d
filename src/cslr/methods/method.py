"""What a method is given, and what it must give back.

A method is a generator of stages: one before any task and one after each. A stage is called only
if its row of the accuracy matrix is wanted, and answers with what was learnt: above all a scorer,
embeddings (n, d) to scores (n, outputs), −inf for outputs it knows nothing about.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from cslr.arrays import BoolArray, FloatArray
from cslr.config import Config, HeadConfig, ReplayConfig, with_settings
from cslr.errors import PrivacyError
from cslr.federation.simulation import Population, SimulatedCohort
from cslr.paper_constants import THE_PAPERS, PaperConstants
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.cap_memory import CapMemory
from cslr.privacy.mechanism import KeyStream, poisson_cohort
from cslr.privacy.plan import Plan, Schedule
from cslr.protocol.carry_over import Carry
from cslr.protocol.head import (
    Batch,
    Family,
    Head,
    HeadSettings,
    initial_head,
    label_targets,
    train_head,
)
from cslr.protocol.ports import Cohort, Keep
from cslr.protocol.step4_aggregate.contribution import UNKNOWN_UNITS, Units
from cslr.protocol.translation import Affine
from cslr.seeding import Seeds

__all__ = [
    "Clients",
    "Earlier",
    "Fitted",
    "Method",
    "MethodContext",
    "Reads",
    "Scorer",
    "Stage",
    "Stages",
    "View",
    "fitted_by",
    "head_on_rows",
]

Scorer = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Fitted:
    """What a method knows at some stage."""

    scores: Scorer
    artefacts: Mapping[str, Mapping[str, FloatArray]] = field(default_factory=dict)
    """Arrays worth keeping with the run, by file and name."""
    personal: Sequence[tuple[int, Scorer]] = ()
    """(client, its own scorer), where every client has a model of its own."""
    own: Sequence[Scorer] = ()
    """One for each encoder that clients run, of that encoder's own embeddings."""
    diagnosis: Mapping[str, float] = field(default_factory=dict)
    """What the method measured about itself; not private, for studies."""


Reads = Literal["nothing", "privately", "openly"]
Stage = Callable[[], Fitted]
Stages = Iterator[Stage]


class Clients(Protocol):
    """The registered clients, as far as a method may know of them."""

    @property
    def count(self) -> int:
        """N."""

    def cohort(
        self,
        task: int,
        taking_part: BoolArray,
        cap: int,
        cap_memory: CapMemory | None = None,
        alone: bool = False,
    ) -> Cohort:
        """Those of ``taking_part`` (N,) that are asked about a task."""


@dataclass(frozen=True, eq=False)
class Earlier:
    """The tasks that were released under another encoder."""

    context: MethodContext
    tasks: int
    carry: Carry
    between: Affine
    """From that encoder's embeddings to this one's, fitted on public sentences."""


@dataclass(frozen=True, eq=False)
class View:
    """What clients with one of several encoders see."""

    context: MethodContext
    """The same with that encoder's embeddings of everything public."""
    back: Affine | None
    """From common coordinates to that encoder's embeddings; None: they are the same."""


@dataclass(frozen=True, eq=False)
class MethodContext:
    """One seed of one run."""

    clients: Clients
    """Who can be asked, by ``cohort`` alone; rows are read through ``open_rows`` or not at all."""
    tasks: tuple[tuple[int, ...], ...]
    """The labels of each task."""
    family: Family
    label_texts: FloatArray  # (c, d), public
    topics: FloatArray | None  # (c, J, d), public: where labels declare several topics
    public: FloatArray  # (n, d), public
    encoder: str
    replay: ReplayConfig
    head: HeadConfig
    plan: Plan
    ledger: Ledger
    seeds: Seeds
    test_shares: FloatArray  # (T, c) labels' shares of a task, for the majority yardstick alone
    keep: Keep
    """Where a released vector is made safe, and found again after an interruption."""
    earlier: Earlier | None = None
    views: tuple[View, ...] = ()
    """One for each encoder that clients run, where these are common coordinates."""
    cap_memory: CapMemory | None = None
    """What clients remember, where privacy is enforced and a cap is promised."""
    reads: Reads = "privately"
    """What the method may learn from clients."""
    units: Units = UNKNOWN_UNITS
    """What is declared of the units of privacy."""
    constants: PaperConstants = THE_PAPERS
    """The paper's."""

    @property
    def paper(self) -> PaperConstants | None:
        """The paper's constants, where its protocol is run to the letter."""
        return self.constants if self.replay.release == "paper" else None

    @property
    def labels(self) -> int:
        """c: the declared labels of the whole stream."""
        return len(self.label_texts)

    def seen(self, tasks: int) -> BoolArray:
        """(c,) the labels of the first ``tasks`` tasks."""
        seen = np.zeros(self.labels, dtype=np.bool_)
        for labels in self.tasks[:tasks]:
            seen[list(labels)] = True
        return seen

    @property
    def head_settings(self) -> HeadSettings:
        """Shape and step size of any head of this run."""
        return HeadSettings(sigmoid=self.family.sigmoid)

    def coins(self, task: int, update: int | None = None) -> bytes:
        """The key of a round's participation coins: forgotten where privacy is enforced.

        update: the round of federated training within the task; None: the release of its replay.
        """
        if self.enforced:
            return os.urandom(32)
        names = ("cohort", task) if update is None else ("cohort", task, "update", update)
        return self.seeds.digest(*names)

    def cohort(self, task: int, update: int | None = None) -> Cohort:
        """The clients that take part in a round, as the server may ask them."""
        q = self.plan.q if update is None else self.plan.head_q
        coins = KeyStream(self.coins(task, update))
        taking_part = poisson_cohort(self.clients.count, q, coins)
        return self.clients.cohort(task, taking_part, self.plan.cap, self.cap_memory, self.enforced)

    @property
    def enforced(self) -> bool:
        """Whether privacy is enforced: the rows belong to real clients."""
        return self.ledger.federation.privacy == "enforced"

    def open_cohort(self, task: int, update: int | None = None) -> SimulatedCohort:
        """NON-PRIVATE. The same clients with access to their rows, for studies and audits."""
        cohort = self.cohort(task, update)
        if self.enforced or not isinstance(cohort, SimulatedCohort):
            raise PrivacyError(
                "single clients can be looked at in a simulation alone; ask cohort(task) for a sum"
            )
        return cohort

    def open_rows(self) -> Population:
        """NON-PRIVATE. All rows of all clients, for methods that read them without noise."""
        if self.reads != "openly" or self.enforced or not isinstance(self.clients, Population):
            raise PrivacyError(
                f"rows are not given to a method that reads {self.reads} where privacy is "
                f"{self.ledger.federation.privacy}; ask context.cohort(task) for a sum"
            )
        return self.clients

    def initial_head(self) -> Head:
        """The head every method of this seed begins with."""
        width = self.public.shape[1]
        outputs, rng = self.family.outputs, self.seeds.at("initial head")
        return initial_head(width, outputs, self.head_settings, rng)


def _nothing(config: Config) -> Schedule:
    return Schedule(replay=0)


@dataclass(frozen=True)
class Method:
    """A method as an experiment knows it."""

    stages: Callable[[MethodContext], Stages]
    reads: Reads
    """What it learns from clients: ε = 0, the calibrated one, or ∞."""
    schedule: Callable[[Config], Schedule] = _nothing
    """What it releases about each task, for the plan."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings (dotted names) that make the method what it is."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Settings it prefers where none is given."""
    head_q: float | None = None
    """Participation rate of the rounds that train a head; None: that of the run."""
    meaning: str = ""
    """A few words for tables."""
    carries: bool = False
    """Whether what it released can be carried over to another encoder."""
    keeps_head: bool = True
    """Whether a run leaves one head that answers for new texts."""
    faces_hostile: bool = True
    """Whether it can be studied with clients that poison its releases."""
    hides_people: bool = True
    """Whether a person inside a client can be its unit of privacy."""
    chooses_head: bool = False
    """Whether the declared stream decides about its head, where none is asked for."""
    pools: bool = False
    """Whether a trusted curator asks every unit about all tasks at once: in a simulation alone."""

    def settled(self, config: Config) -> Config:
        """``config`` with what the method fixes and what it prefers."""
        chosen = dict(self.settings)
        for name, value in self.defaults.items():
            section, key = name.split(".")
            if name not in chosen and getattr(getattr(config, section), key) is None:
                chosen[name] = value
        return with_settings(config, chosen) if chosen else config


def fitted_by(
    head: Head, known_labels: BoolArray, family: Family, **more: Mapping[str, FloatArray]
) -> Fitted:
    """What a head knows; it is silent about labels it was never shown."""
    known_outputs = known_labels[family.label_of_output()]

    def scores(z: FloatArray) -> FloatArray:
        return np.where(known_outputs, head.scores(z), -np.inf)

    return Fitted(scores, {"head": vars(head), **more})


def head_on_rows(
    context: MethodContext, rows: BoolArray, start: Head, steps: int, name: str
) -> Head:
    """``start`` trained for at least ``steps`` steps on raw rows, as non-private yardsticks do."""
    population = context.open_rows()
    if population.targets is None:
        targets = label_targets(population.labels[rows], context.labels)
    else:
        targets = population.targets[rows]
    batch: Batch = (population.z[rows], targets)
    settings = HeadSettings(learning_rate=1e-3, sigmoid=context.family.sigmoid)
    passes = math.ceil(steps / math.ceil(max(len(batch[0]), 1) / settings.batch))
    return train_head(start, [batch] * passes, settings, context.seeds.at(name, "batches"))


def all_labels_in_every_task(tasks: Sequence[Sequence[int]], labels: int) -> bool:
    """Whether each task declares all labels."""
    return all(len(set(task)) == labels for task in tasks)


def may_choose_rounds(config: Config, tasks: Sequence[Sequence[int]], labels: int) -> bool:
    """Whether gradient rounds may be chosen for a declared stream.

    That is: no head is configured, every task has all labels, there is one encoder, and no setting
    asks for a released replay.
    """
    replay = config.replay
    asked = (replay.release, replay.sub_modes, config.paper.list_size)
    return (
        config.head.kind is None
        and all_labels_in_every_task(tasks, labels)
        and not config.encoders
        and replay.prior == "labels"
        and asked == (None,) * len(asked)
    )
