"""What a method is given, and what it must return.

A method is a generator of stages: one before any task and one after each. A stage is called only
if its row of the accuracy matrix is needed, and returns what was learnt: above all a scorer, which
maps embeddings (n, d) to scores (n, outputs), −inf for outputs it has not learnt.
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
    FamilyName,
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
    """What a method has learnt at some stage."""

    scores: Scorer
    artefacts: Mapping[str, Mapping[str, FloatArray]] = field(default_factory=dict)
    """Arrays that are saved with the run, by file and name."""
    personal: Sequence[tuple[int, Scorer]] = ()
    """(client, its own scorer), if every client has a model of its own."""
    own: Sequence[Scorer] = ()
    """One scorer for each encoder that clients run, on that encoder's own embeddings."""
    diagnosis: Mapping[str, float] = field(default_factory=dict)
    """What the method measured about itself; not private, for studies."""


Reads = Literal["nothing", "privately", "openly"]
Stage = Callable[[], Fitted]
Stages = Iterator[Stage]


@dataclass(frozen=True, eq=False)
class Corpus:
    """An embedded corpus as a cache key, compared by the identity of the array."""

    z: FloatArray

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Corpus) and other.z is self.z

    def __hash__(self) -> int:
        return id(self.z)


class Clients(Protocol):
    """The registered clients, through the interface that methods may use."""

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
        """The clients of ``taking_part`` (N,) that the server may query about a task."""


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
    """The run's context, with that encoder's embeddings of everything public."""
    back: Affine | None
    """From common coordinates to that encoder's embeddings; None: they are the same."""


@dataclass(frozen=True, eq=False)
class MethodContext:
    """Everything a method works with, for one seed of one run."""

    clients: Clients
    """Queried through ``cohort``; only the ``open_`` methods give access to rows."""
    tasks: tuple[tuple[int, ...], ...]
    """The labels of each task."""
    family: Family
    label_texts: FloatArray  # (c, d), public
    topics: FloatArray | None  # (c, J, d), public: if labels declare several topics
    public: FloatArray  # (n, d), public
    encoder: str
    replay: ReplayConfig
    head: HeadConfig
    plan: Plan
    ledger: Ledger
    seeds: Seeds
    test_shares: FloatArray  # (T, c) label frequencies of tasks' test rows, for majority alone
    keep: Keep
    """Where released vectors are saved, and read back after an interruption."""
    earlier: Earlier | None = None
    views: tuple[View, ...] = ()
    """One for each encoder that clients run, if this context has common coordinates."""
    cap_memory: CapMemory | None = None
    """Which tasks clients were asked about, if privacy is enforced and a cap is promised."""
    reads: Reads = "privately"
    """What the method may learn from clients."""
    units: Units = UNKNOWN_UNITS
    """What is declared about the units of privacy."""
    constants: PaperConstants = THE_PAPERS
    """The settings of the section ``[paper]``."""

    @property
    def paper(self) -> PaperConstants | None:
        """The paper's constants, if its protocol is run exactly as written."""
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
        """The key of a round's participation coins; with enforced privacy it is never stored.

        update: the round of federated training within the task; None: the release of its replay.
        """
        if self.enforced:
            return os.urandom(32)
        names = ("cohort", task) if update is None else ("cohort", task, "update", update)
        return self.seeds.digest(*names)

    def cohort(self, task: int, update: int | None = None) -> Cohort:
        """The clients that take part in a round, as the server may query them."""
        q = self.plan.q if update is None else self.plan.head_q
        coins = KeyStream(self.coins(task, update))
        taking_part = poisson_cohort(self.clients.count, q, coins)
        return self.clients.cohort(task, taking_part, self.plan.cap, self.cap_memory, self.enforced)

    @property
    def enforced(self) -> bool:
        """Whether privacy is enforced: the rows belong to real clients."""
        return self.ledger.federation.privacy == "enforced"

    def open_cohort(self, task: int, update: int | None = None) -> SimulatedCohort:
        """NON-PRIVATE. As ``cohort``, with access to the clients' rows, for studies and audits."""
        cohort = self.cohort(task, update)
        if self.enforced or not isinstance(cohort, SimulatedCohort):
            raise PrivacyError(
                "single clients can be read only in a simulation; ask cohort(task) for a sum"
            )
        return cohort

    def open_rows(self) -> Population:
        """NON-PRIVATE. All rows of all clients, for methods that read them without noise."""
        if self.reads != "openly" or self.enforced or not isinstance(self.clients, Population):
            raise PrivacyError(
                f"a method that reads {self.reads} has no access to rows where privacy is "
                f"{self.ledger.federation.privacy}; ask context.cohort(task) for a sum"
            )
        return self.clients

    def initial_head(self) -> Head:
        """The random head that every method of this seed starts from."""
        width = self.public.shape[1]
        outputs, rng = self.family.outputs, self.seeds.at("initial head")
        return initial_head(width, outputs, self.head_settings, rng)


def _nothing(config: Config) -> Schedule:
    return Schedule(replay=0)


@dataclass(frozen=True)
class Method:
    """A method: its stages, and the facts about it that runs and experiments need."""

    stages: Callable[[MethodContext], Stages]
    reads: Reads
    """How it reads rows: nothing (ε = 0), privately (the calibrated ε) or openly (ε = ∞)."""
    schedule: Callable[[Config], Schedule] = _nothing
    """What it releases about each task, for the plan."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings (dotted names) that define the method and cannot be changed."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Settings it uses if none is given."""
    head_q: float | None = None
    """Participation rate of the rounds that train a head; None: that of the run."""
    meaning: str = ""
    """A few words for tables."""
    carries: bool = False
    """Whether what it released can be carried over to another encoder."""
    keeps_head: bool = True
    """Whether a run saves one head that can predict new texts."""
    faces_hostile: bool = True
    """Whether it can be studied with clients that poison its releases."""
    hides_people: bool = True
    """Whether a person inside a client can be its unit of privacy."""
    chooses_head: bool = False
    """Whether its head is chosen from the declared stream, if none is configured."""
    pools: bool = False
    """Whether a trusted curator queries every unit about all tasks at once (simulation only)."""

    def settled(self, config: Config) -> Config:
        """``config`` with the method's fixed settings and its defaults."""
        chosen = dict(self.settings)
        for name, value in self.defaults.items():
            section, key = name.split(".")
            if name not in chosen and getattr(getattr(config, section), key) is None:
                chosen[name] = value
        return with_settings(config, chosen) if chosen else config


def fitted_by(
    head: Head, known_labels: BoolArray, family: Family, **more: Mapping[str, FloatArray]
) -> Fitted:
    """A head as ``Fitted``; outputs of labels that are not known get −inf."""
    known_outputs = known_labels[family.label_of_output()]

    def scores(z: FloatArray) -> FloatArray:
        return np.where(known_outputs, head.scores(z), -np.inf)

    return Fitted(scores, {"head": vars(head), **more})


def head_on_rows(
    context: MethodContext, rows: BoolArray, start: Head, steps: int, name: str
) -> Head:
    """NON-PRIVATE. ``start`` trained on raw rows for at least ``steps`` steps, for yardsticks."""
    population = context.open_rows()
    if population.targets is None:
        targets = label_targets(population.labels[rows], context.labels)
    else:
        targets = population.targets[rows]
    batch: Batch = (population.z[rows], targets)
    settings = HeadSettings(learning_rate=1e-3, sigmoid=context.family.sigmoid)
    passes = math.ceil(steps / math.ceil(max(len(batch[0]), 1) / settings.batch))
    return train_head(start, [batch] * passes, settings, context.seeds.at(name, "batches"))


def rounds_keep_labels(family: FamilyName, tasks: Sequence[Sequence[int]], labels: int) -> bool:
    """Whether gradient rounds of later tasks leave the labels of earlier ones as they are.

    They do if every task has all labels, and in tagging if every task has types (labels beyond O):
    it trains these only.
    """
    whole = all(len(set(task)) == labels for task in tasks)
    return whole or (family == "tagging" and all(map(any, tasks)))


def may_choose_rounds(
    config: Config, family: FamilyName, tasks: Sequence[Sequence[int]], labels: int
) -> bool:
    """Whether gradient rounds may be chosen for a declared stream.

    They may if no head is configured, they keep all labels, there is one encoder, and no setting
    asks for a released replay.
    """
    replay = config.replay
    asked = (replay.release, replay.sub_modes, config.paper.list_size)
    return (
        config.head.kind is None
        and rounds_keep_labels(family, tasks, labels)
        and not config.encoders
        and replay.prior == "labels"
        and asked == (None,) * len(asked)
    )
