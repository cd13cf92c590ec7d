"""Five nodes and a server in one process: real files, real messages, no network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from cslr.config import HeadConfig, ReplayConfig
from cslr.errors import CslrError
from cslr.federation.parties.charter import Charter, CharterTask, Member, Roster
from cslr.federation.parties.coordinator import Coordinator, Counters, Event, Reply
from cslr.federation.parties.node import Node
from cslr.federation.parties.node_files import NodeFiles, PinnedNode
from cslr.federation.parties.question import digest_of, pack_agreement
from cslr.federation.parties.refusals import code_of
from cslr.federation.parties.remote import RemoteClients
from cslr.federation.simulation import Population
from cslr.methods.cslr import agree, stages
from cslr.methods.gradient_rounds import CLIP
from cslr.methods.method import MethodContext
from cslr.paper_constants import PaperConstants
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.records import EphemeralKeys
from cslr.privacy.plan import Budget, ClientNoise, Schedule, Unit, calibrate
from cslr.protocol.head import FamilyName
from cslr.protocol.step4_aggregate.contribution import Units
from cslr.seeding import Seeds

N, T, C = 5, 4, 1


def held_by(population: Population, node: int, unit: Unit) -> Population:
    """What one node holds: itself as the unit, or every fifth person."""
    units = np.array([node]) if unit == "client" else np.arange(node, population.count, N)
    mine = np.isin(population.clients, units)
    return replace(
        population,
        z=population.z[mine],
        labels=population.labels[mine],
        tasks=population.tasks[mine],
        clients=np.searchsorted(units, population.clients[mine]),
        count=len(units),
        targets=None if population.targets is None else population.targets[mine],
        ids=units,
    )


def context_of(
    world,
    family: FamilyName,
    unit: Unit,
    cap: int | None = None,
    rounds: int = 0,
    evaluation: bool = False,
) -> MethodContext:
    """The server's side without clients, ledger and keep: these come with the machines."""
    units = world.population.count
    shares = ClientNoise(N, T, C, coordinates=1000, spare=2)
    schedule = Schedule(int(not rounds), head=rounds, evaluation=int(evaluation))
    budget = Budget(4.0, unit=unit)
    plan = calibrate(budget, len(world.tasks), cap=cap, schedule=schedule, clients=shares)
    tasks, head = world.tasks, HeadConfig()
    if rounds:
        if family != "tagging":  # where tasks keep their own types
            tasks = (tuple(range(world.family(family).labels)),) * len(tasks)
        head = HeadConfig(kind="rounds", rounds=rounds)
    return MethodContext(
        clients=world.told(family).population,
        tasks=tasks,
        family=world.family(family),
        label_texts=world.texts,
        topics=None,
        public=world.public,
        encoder="synthetic",
        replay=ReplayConfig(dimension=8),
        head=head,
        constants=PaperConstants(m=24, n_r=40),
        plan=plan,
        ledger=None,
        seeds=Seeds(13),
        test_shares=world.test_shares,
        keep=None,
        units=Units(units, 40 if unit == "person" else 8),
    )


def charter_of(context: MethodContext) -> tuple[Charter, bytes]:
    agreement = pack_agreement(agree(context))
    plan = context.plan
    return (
        Charter(
            name="hospitals",
            family=context.family.name,
            labels=tuple(f"label {n}" for n in range(context.labels)),
            tasks=tuple(
                CharterTask(name=f"task {n}", labels=each) for n, each in enumerate(context.tasks)
            ),
            encoder="synthetic",
            agreement=digest_of(agreement),
            declaration="0" * 64,
            unit=plan.budget.unit,
            epsilon=plan.budget.epsilon,
            delta=plan.budget.delta,
            rounds=plan.schedule.head,
            clip=CLIP,
            evaluation=bool(plan.schedule.evaluation),
            cap=plan.cap,
            units=context.clients.count,
            members=N,
            threshold=T,
            colluders=C,
            spare=plan.clients.spare,
            coordinates=plan.clients.coordinates,
            noise=plan.unit,
        ),
        agreement,
    )


@dataclass
class InProcess:
    """A transport that calls nodes directly; ``tamper`` may lose or change what travels."""

    nodes: dict[int, Node | None]
    tamper: Callable[[str, int, bytes], bytes | None] = lambda route, member, body: body
    refused: list[tuple[str, int, CslrError]] = field(default_factory=list)
    sizes: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def present(self) -> frozenset[int]:
        return frozenset(member for member, node in self.nodes.items() if node is not None)

    def ask(self, route: str, bodies: Mapping[int, bytes], seconds: float) -> dict[int, Reply]:
        return dict(self._replies(route, bodies))

    def _replies(self, route: str, bodies: Mapping[int, bytes]) -> Iterator[tuple[int, Reply]]:
        for member, body in bodies.items():
            asked = self.tamper(route, member, body)
            node = self.nodes.get(member)
            if asked is None or node is None:
                continue
            try:
                answer = node.answer(route, asked)
            except CslrError as error:
                self.refused.append((route, member, error))
                yield member, Reply(code=code_of(error))
                continue
            self.sizes.setdefault(route, []).append((len(asked), len(answer)))
            yield member, Reply(answer)


@dataclass
class Machines:
    """A federation under a folder."""

    folder: Path
    context: MethodContext
    charter: Charter = field(init=False)
    agreement: bytes = field(init=False)
    transport: InProcess = field(init=False)
    events: list[Event] = field(default_factory=list)
    attempts: int | None = None
    """Sessions that a release may take; None: as many as the charter has room for."""

    def __post_init__(self) -> None:
        self.charter, self.agreement = charter_of(self.context)
        members, keys = [], {}
        for number in range(N):
            files = self.files(number)
            pinned = PinnedNode(name=f"node-{number}", charter=self.charter, most_sessions=20)
            identity = files.create(pinned)
            keys[number] = identity
            public = identity.public_key().public_bytes_raw().hex()
            members.append(Member(name=f"node-{number}", identity=public))
        self.roster = Roster.of(self.charter, tuple(members))
        for number in range(N):
            files = self.files(number)
            files.pin(files.pinned().model_copy(update={"roster": self.roster}))
        self.transport = InProcess({})
        for number in range(N):
            self.start(number)
            self.node(number).answer("agreement", self.agreement)

    def files(self, number: int) -> NodeFiles:
        return NodeFiles(self.folder / f"node-{number}")

    def node(self, number: int) -> Node:
        found = self.transport.nodes[number]
        assert found is not None
        return found

    def start(self, number: int) -> None:
        """A node's process, with what an earlier one left on disk."""
        rows = held_by(self.context.clients, number, self.charter.unit)
        self.transport.nodes[number] = Node(self.files(number), lambda: rows)

    def end(self, number: int) -> None:
        """A process that is gone, whatever it was doing: what it had not written is lost."""
        self.node(number).close()
        self.transport.nodes[number] = None

    def server(self, keep, seconds: float = 1.0) -> tuple[MethodContext, Coordinator]:
        """A server's process, with what an earlier one left on disk."""
        terms = self.roster.terms(self.charter)
        counters = Counters.at(self.folder / "server" / "counters.json")
        coordinator = Coordinator(
            terms,
            self.transport,
            counters,
            seconds,
            self.attempts or 1 + self.charter.spare,
            0.0,
            self.events.append,
        )
        path = self.folder / "server" / "ledger.jsonl"
        keys = EphemeralKeys(self.folder / "server" / "keys")
        ledger = Ledger.at(path, self.charter.federation, keys)
        context = replace(
            self.context,
            clients=RemoteClients(self.charter, coordinator),
            plan=self.charter.plan,
            ledger=ledger,
            keep=keep,
        )
        return context, coordinator

    def learn(self, keep):
        """All tasks, by a server that begins now."""
        context, coordinator = self.server(keep)
        with context.ledger:
            fitted = [stage() for stage in stages(context)]
        return fitted, context.ledger, coordinator

    def spent(self, number: int) -> list[str]:
        return [charge.label for charge in self.node(number).ledger.charges]

    def close(self) -> None:
        for node in self.transport.nodes.values():
            if node is not None:
                node.close()
