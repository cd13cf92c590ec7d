"""Found a federation: from what is declared to the plan, the agreement and the charter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from cslr.errors import ConfigError
from cslr.federation.parties.charter import Charter, CharterTask
from cslr.federation.parties.question import digest_of, pack_agreement
from cslr.federation.simulation import Population
from cslr.files import PRIVATE_FOLDER, make_directory, write_atomic
from cslr.methods.cslr import agree
from cslr.methods.gradient_rounds import CLIP, prefers_rounds
from cslr.methods.method import MethodContext, rounds_keep_labels
from cslr.methods.registry import method_named
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.plan import Budget, ClientNoise, Plan, Schedule, Unit, calibrate
from cslr.privacy.secure_sum import SumTerms
from cslr.protocol.agreement import Agreement
from cslr.protocol.step4_aggregate.contribution import Units
from cslr.protocol.step5_rounds import trained_outputs
from cslr.runs.deployment.source import Source
from cslr.runs.directory import SeedDirectory
from cslr.runs.embedded import EmbeddedStream, embed_stream
from cslr.runs.prepare import server_context, units_of_people
from cslr.seeding import Seeds

__all__ = [
    "Founded",
    "Wanted",
    "found",
    "public_context",
    "public_side",
    "usual_colluders",
    "usual_threshold",
    "wanted_of",
]


@dataclass(frozen=True)
class Wanted:
    """What a founder decides."""

    name: str
    source: Source
    members: int  # n
    threshold: int  # t
    colluders: int  # c
    spare: int
    epsilon: float
    delta: float
    unit: Unit
    cap: int | None = None
    rounds: int = 0
    """Gradients that are asked for of each task; 0: its statistics, once."""
    evaluation: bool = False
    """Whether right answers on nodes' test rows are counted after the last task."""


@dataclass(frozen=True, eq=False)
class Founded:
    """A federation as its server knows it before the first message."""

    charter: Charter
    agreement: bytes
    source: Source
    embedded: EmbeddedStream

    @property
    def suits_rounds(self) -> bool:
        """Whether `cslr run` would choose gradient rounds where this one sends statistics."""
        charter = self.charter
        tasks = [task.labels for task in charter.tasks]
        kept = rounds_keep_labels(charter.family, tasks, len(charter.labels))
        enough = prefers_rounds(charter.plan, charter.units, charter.family)
        return not charter.rounds and kept and enough

    def save(self, folder: Path) -> None:
        """Write the offer, the files that every member gets."""
        make_directory(folder, PRIVATE_FOLDER)
        write_atomic(folder / "agreement.safetensors", self.agreement)
        write_atomic(folder / "source.json", self.source.model_dump_json().encode())
        self.charter.save(folder / "charter.json")


def usual_colluders(members: int) -> int:
    """c: a tenth of the members, and at least one."""
    return max(1, members // 10)


def usual_threshold(members: int, colluders: int) -> int:
    """t: two thirds of the members, and enough that two sets of survivors cannot both be signed."""
    return max((members + colluders) // 2 + 1, math.ceil(2 * members / 3))


def found(wanted: Wanted) -> Founded:
    """Calibrate the plan, build the agreement and write the charter.

    A part of δ is reserved for each coordinate of a release, and the number of coordinates follows
    from the plan. So the plan is made again until its releases have the reserved number.
    """
    _check_wanted(wanted)
    embedded = public_side(wanted.source, wanted)
    coordinates = 1
    for _ in range(3):
        stream = embedded.stream
        plan = _plan(wanted, len(stream.tasks), stream.tasks_per_person, coordinates)
        agreement = agree(public_context(embedded, plan, wanted))
        needed = _coordinates(agreement, embedded, wanted)
        if needed == coordinates:
            break
        coordinates = needed
    else:
        raise ConfigError("no plan fits its own number of coordinates; use another ε or δ")
    packed = pack_agreement(agreement)
    return Founded(_charter(wanted, embedded, plan, packed), packed, wanted.source, embedded)


def _check_wanted(wanted: Wanted) -> None:
    """Refuse what nodes cannot answer, before anything is embedded."""
    stream = wanted.source.without_rows()
    tasks = [task.labels for task in stream.tasks]
    if wanted.rounds and not rounds_keep_labels(stream.family, tasks, len(stream.labels)):
        raise ConfigError(
            "--head rounds learns from the rows of the current task alone, and here tasks have "
            "different labels: earlier ones would be forgotten; use --head released"
        )
    if not wanted.evaluation:
        return
    declaration = wanted.source.declared()
    if declaration is None or declaration.test_rows == "public":
        raise ConfigError(
            "--evaluate private counts right answers on test rows of nodes; the test rows of an "
            "embedded stream and those declared public belong to no node. Use --evaluate shown"
        )
    if declaration.columns.split is None and declaration.test_share is None:
        raise ConfigError(
            "--evaluate private: the declaration has no test rows; add columns.split or "
            "test_share, or use --evaluate shown"
        )
    if stream.clients_per_person > 1:
        raise ConfigError(
            "--evaluate private counts a person's answers in one node; with clients_per_person > 1 "
            "use --evaluate shown"
        )


def public_side(source: Source, wanted: Wanted) -> EmbeddedStream:
    """Everything public, embedded; not one row."""
    config = source.config(wanted)
    return embed_stream(source.without_rows(), config, 0.0, progress=False)


def _plan(wanted: Wanted, tasks: int, tasks_per_person: int, coordinates: int) -> Plan:
    n, t, c = wanted.members, wanted.threshold, wanted.colluders
    # Refuses numbers that a secure sum does not allow; the keys are placeholders.
    SumTerms("check", tuple(i.to_bytes(32) for i in range(n)), t, c)
    shares = ClientNoise(n, t, c, coordinates, wanted.spare)
    cap = wanted.cap or (tasks_per_person if wanted.unit == "person" else None)
    budget = Budget(wanted.epsilon, wanted.delta, unit=wanted.unit)
    schedule = Schedule(int(not wanted.rounds), head=wanted.rounds, evaluation=wanted.evaluation)
    return calibrate(budget, tasks, cap=cap, schedule=schedule, clients=shares)


def _coordinates(agreement: Agreement, embedded: EmbeddedStream, wanted: Wanted) -> int:
    """D: the most coordinates of a release."""
    tasks = embedded.stream.tasks
    evaluated = 2 * len(tasks) if wanted.evaluation else 0
    if wanted.rounds:
        inputs: int = embedded.public.shape[1] + 1
        trained = (len(trained_outputs(embedded.family, task.labels)) for task in tasks)
        return max(inputs * max(trained), evaluated)
    requests = [agreement.request(number, task.labels) for number, task in enumerate(tasks)]
    return max(evaluated, *(request.layout.size for request in requests))


def public_context(embedded: EmbeddedStream, plan: Plan, wanted: Wanted) -> MethodContext:
    """The server's side of a run, before it has clients, a ledger and a place to keep releases."""
    config = method_named("cslr").settled(wanted.source.config(wanted))
    units, seeds = _units(embedded, wanted), Seeds(wanted.source.seed)
    nobody = Federation(wanted.name, plan.budget, "simulated")
    ledger = Ledger.in_memory(nobody, SeededKeys(seeds))
    clients, keep = _nobody(embedded, units.count), SeedDirectory(Path("nowhere"))
    return server_context(
        config, embedded, clients, plan, ledger, units=units, seeds=seeds, keep=keep
    )


def _units(embedded: EmbeddedStream, wanted: Wanted) -> Units:
    """Public facts about the units of privacy, as declared."""
    stream = embedded.stream
    if wanted.unit == "client":
        return Units(wanted.members)
    return units_of_people(stream, stream.registered_people)


def _nobody(embedded: EmbeddedStream, count: int) -> Population:
    """Registered units without rows, in place of the nodes."""
    train = embedded.train
    return Population(train.z, train.labels, train.tasks, train.labels, count)


def _charter(wanted: Wanted, embedded: EmbeddedStream, plan: Plan, agreement: bytes) -> Charter:
    stream, shares = embedded.stream, plan.clients
    if shares is None or plan.unit is None:
        raise ValueError("plan: clients must add the noise")
    return Charter(
        name=wanted.name,
        family=stream.family,
        labels=tuple(label.name for label in stream.labels),
        tasks=tuple(CharterTask(name=task.name, labels=task.labels) for task in stream.tasks),
        encoder=embedded.encoder,
        agreement=digest_of(agreement),
        declaration=wanted.source.digest,
        unit=wanted.unit,
        epsilon=wanted.epsilon,
        delta=wanted.delta,
        rounds=wanted.rounds,
        clip=CLIP,
        evaluation=wanted.evaluation,
        cap=plan.cap,
        units=_units(embedded, wanted).count,
        members=shares.members,
        threshold=shares.threshold,
        colluders=shares.colluders,
        spare=shares.spare,
        coordinates=shares.coordinates,
        noise=plan.unit,
    )


def wanted_of(charter: Charter, source: Source) -> Wanted:
    """The founder's decisions, from a charter."""
    return Wanted(
        charter.name,
        source,
        charter.members,
        charter.threshold,
        charter.colluders,
        charter.spare,
        charter.epsilon,
        charter.delta,
        charter.unit,
        charter.cap,
        charter.rounds,
        charter.evaluation,
    )
