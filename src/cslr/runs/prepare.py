"""Preparation of a run: checks of its configuration, then plan, population, ledger and method
context of each seed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.config import Config, with_settings
from cslr.data.stream import Stream, assign_clients
from cslr.errors import ConfigError
from cslr.federation.simulation import Population
from cslr.methods.gradient_rounds import prefers_rounds
from cslr.methods.method import Clients, Earlier, MethodContext, View, may_choose_rounds
from cslr.paper_constants import NOISE_TABLE
from cslr.privacy.accounting import Scope
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.cap_memory import CapMemory
from cslr.privacy.ledger.pointer import open_ledger
from cslr.privacy.ledger.records import EphemeralKeys, SeededKeys
from cslr.privacy.plan import Budget, Plan, Schedule, calibrate, with_noise
from cslr.protocol.ports import Keep
from cslr.protocol.step4_aggregate.contribution import MOST_ROWS, Units
from cslr.protocol.translation import fit_map
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import EmbeddedStream, SettledConfig, is_own
from cslr.runs.mixed_encoders import encoder_of
from cslr.runs.own_data import rows_of
from cslr.seeding import Seeds

__all__ = [
    "check_evaluation",
    "check_people",
    "check_privacy",
    "check_upgrade",
    "context_of",
    "ledger_of",
    "plan_of",
    "population_of",
    "server_context",
    "units_of_people",
    "with_head",
]

MANY_CLIENTS: Final = 500
"""With so many registered clients each is assumed to have few rows, as phones do."""
FEW_ROWS: Final = 2
"""Rows that such a client is expected to have of one task."""


def plan_of(settled: SettledConfig, tasks: int, cap: int | None, tasks_per_person: int = 1) -> Plan:
    """The calibrated plan; without noise for methods that release nothing.

    cap: the most tasks a client can have rows of, where the stream knows it. A person contributes
    to ``tasks_per_person`` tasks; with one, that task gets its whole budget. A method that pools
    all rows has no cap.
    """
    config, method = settled.config, settled.method
    privacy, private = config.privacy, method.reads == "privately"
    schedule = method.schedule(config) if private else Schedule()
    if privacy.evaluation == "private":
        schedule = replace(schedule, evaluation=1)
    written = config.replay.release == "paper" and private
    q = config.paper.q if written else privacy.participation
    head_q = q if written else method.head_q or q
    sigma = noise_of_the_paper(config) if written else None
    epsilon = privacy.epsilon if private and sigma is None else math.inf
    budget = Budget(epsilon, privacy.delta, privacy.adversary, unit=privacy.unit)
    most = privacy.cap or (tasks_per_person if privacy.unit == "person" else cap)
    plan = calibrate(budget, tasks, q, tasks if method.pools else most, schedule, head_q)
    return plan if sigma is None else with_noise(plan, sigma)


def noise_of_the_paper(config: Config) -> float | None:
    """σ of the paper's table for ``privacy.epsilon``; None: noise is computed from ε."""
    if config.paper.calibration == "epsilon" or math.isinf(config.privacy.epsilon):
        return None
    sigma = NOISE_TABLE.get(config.privacy.epsilon)
    if sigma is None:
        listed = ", ".join(f"{epsilon:g}" for epsilon in NOISE_TABLE)
        raise ConfigError(
            f"paper.calibration = 'sigma': the paper has a noise multiplier for ε = {listed}, not "
            f"for {config.privacy.epsilon:g}; use one of these with --epsilon"
        )
    return sigma


def with_head(settled: SettledConfig, stream: Stream) -> SettledConfig:
    """With the head that suits the declared stream, if the method leaves the choice open."""
    tasks = [task.labels for task in stream.tasks]
    if not settled.method.chooses_head or not may_choose_rounds(
        settled.config, stream.family, tasks, len(stream.labels)
    ):
        return settled
    rounds = replace(settled, config=with_settings(settled.config, {"head.kind": "rounds"}))
    plan = plan_of(rounds, len(tasks), stream.cap, stream.tasks_per_person)
    units = _registered(settled, stream)
    return rounds if prefers_rounds(plan, units, stream.family) else settled


def _registered(settled: SettledConfig, stream: Stream) -> int:
    """Registered clients or people; for own rows the declared number, since rows are private."""
    if settled.config.privacy.unit == "client":
        return settled.config.stream.clients or stream.clients
    if stream.people is not None or settled.declaration is not None:
        return stream.people or 0
    people = stream.train.people
    return len(stream.train) if people is None else len(np.unique(people))


def population_of(config: Config, embedded: EmbeddedStream, seed: int) -> Population:
    """The clients with their examples: simulated, or as given in own rows."""
    clients, rows = assign_clients(embedded.stream, config.stream, Seeds(seed).at("partition"))
    train = embedded.train
    count = config.stream.clients or embedded.stream.clients
    ids = embedded.stream.client_ids
    ids = None if ids is None else _addresses(ids, count)
    if embedded.encoders > 1:  # a client holds what its own encoder makes of a row
        runs = encoder_of(count, embedded.encoders, Seeds(seed), ids)
        rows = rows + len(embedded.stream.train) * runs[clients]
    hostile = Seeds(seed).at("hostile").permutation(count)[: round(config.stream.hostile * count)]
    if config.privacy.unit == "person":
        clients, count, ids = _people(embedded.stream, clients, rows % len(embedded.stream.train))
    lengths = np.diff(train.starts)[rows]
    first = np.repeat(train.starts[rows] - np.cumsum(lengths) + lengths, lengths)
    return Population(
        train.z,
        train.labels,
        train.tasks,
        np.repeat(clients, lengths),
        count,
        first + np.arange(lengths.sum()),
        train.targets,
        _kinds(embedded),
        hostile,
        config.stream.attack,
        ids,
        embedded.stream.clients_per_person if config.privacy.unit == "person" else 1,
    )


def _people(
    stream: Stream, clients: IntArray, rows: IntArray
) -> tuple[IntArray, int, IntArray | None]:
    """(h,) the person that each row belongs to, N registered people, and the people's addresses.

    A client adds up its people's contributions, and the server adds up clients: so in one process
    the people themselves are asked. A person with rows in two clients is one unit in each.
    """
    declared = stream.train.people
    person = np.arange(len(stream.train)) if declared is None else declared
    if stream.person_ids is not None:  # identified within their client, see ``data.own``
        ids = stream.person_ids
        count = (stream.people or len(ids)) * stream.clients_per_person
        return person[rows], count, _addresses(ids, count)
    pairs, unit = np.unique(np.stack([clients, person[rows]]), axis=1, return_inverse=True)
    if len(np.unique(pairs[1])) < pairs.shape[1]:
        raise ConfigError(
            f"with so many --clients rows of {stream.name!r} are drawn for several of them, so a "
            f"person would be in several; use at most {stream.clients}, or --unit client"
        )
    return unit.ravel(), pairs.shape[1], None


def _units(config: Config, stream: Stream, count: int) -> Units:
    """Public facts about the units, from what is declared about people or clients."""
    if config.privacy.unit == "person":
        return units_of_people(stream, count)
    if stream.partition == "given":  # clients' numbers of rows are private
        return Units(count, FEW_ROWS if count >= MANY_CLIENTS else MOST_ROWS)
    rows = len(stream.train) / (count * (stream.cap or len(stream.tasks)))
    return Units(count, max(1, int(rows)), tasks=_tasks_of_a_client(config, stream, count))


def units_of_people(stream: Stream, count: int) -> Units:
    """Units that are people. Without declared tasks per person they follow from the rows."""
    tasks = stream.tasks_per_person if stream.tasks_per_person > 1 else None
    return Units(count, stream.rows_per_person, stream.clients_per_person, tasks)


def _tasks_of_a_client(config: Config, stream: Stream, count: int) -> float:
    """Tasks that a client is expected to have rows of, with the declared partition.

    With shares of Dirichlet(α) the rows of a task at one of many clients are negative binomial.
    """
    rows = len(stream.train) / (count * len(stream.tasks))
    alpha = config.stream.alpha or stream.alpha
    return len(stream.tasks) * float(1 - (1 + rows / alpha) ** -alpha)


def _addresses(ids: IntArray, count: int) -> IntArray:
    """(N,) the addresses ``ids`` of units with rows, then negative ones for units without."""
    return np.concatenate([ids, -1 - np.arange(count - len(ids))])


def _kinds(embedded: EmbeddedStream) -> IntArray:
    """(n,) the true mode of each train example, if the stream knows it, else its label."""
    kinds = embedded.stream.train.kinds
    return embedded.train.labels if kinds is None else kinds[embedded.train.rows]


def ledger_of(settled: SettledConfig, seed: int, directory: RunDirectory) -> Ledger:
    """The federation's ledger if privacy is enforced, else the run's own.

    Methods that the run is compared with have a ledger in memory.
    """
    config, privacy = settled.config, settled.config.privacy
    name = config.stream.name
    if settled.is_compared:
        unlimited = Budget(math.inf, privacy.delta, unit=privacy.unit)
        federation = Federation(name, unlimited, "simulated")
        return Ledger.in_memory(federation, SeededKeys(Seeds(seed)))
    epsilon = math.inf if settled.method.reads == "openly" else privacy.budget or privacy.epsilon
    if config.replay.release == "paper" and noise_of_the_paper(config) is not None:
        epsilon = math.inf  # the cost follows from the paper's noise; the ledger reports it
    scope: Scope = "replay" if config.head.kind == "federated" else "end_to_end"
    budget = Budget(epsilon, privacy.delta, privacy.adversary, scope, privacy.unit)
    federation = Federation(name, budget, privacy.mode)
    if privacy.mode == "enforced" and privacy.federation is not None:
        if settled.declaration is not None:
            rows = rows_of(config.stream, settled.declaration)
            return open_ledger(rows, privacy.federation, federation)
        keys = EphemeralKeys(privacy.federation / "keys")
        return Ledger.at(privacy.federation / "ledger.jsonl", federation, keys)
    path = directory.seed(seed).path / "ledger.jsonl"
    return Ledger.at(path, federation, SeededKeys(Seeds(seed)))


def context_of(
    settled: SettledConfig,
    embedded: EmbeddedStream,
    population: Population,
    seed: int,
    plan: Plan,
    ledger: Ledger,
    directory: RunDirectory,
) -> MethodContext:
    """One seed of one method, with the releases of an earlier encoder, if there are any."""
    config = settled.config
    context = replace(
        server_context(
            config,
            embedded,
            population,
            plan,
            ledger,
            units=_units(config, embedded.stream, population.count),
            seeds=Seeds(seed),
            keep=directory.seed(seed, ledger),
        ),
        test_shares=_shares(embedded),
        reads=settled.method.reads,
    )
    if settled.is_compared:
        return context
    memory, views = _cap_memory(config, plan, ledger), _views(context, embedded)
    return _upgraded(replace(context, cap_memory=memory, views=views), config, embedded, seed)


def server_context(
    config: Config,
    embedded: EmbeddedStream,
    clients: Clients,
    plan: Plan,
    ledger: Ledger,
    *,
    units: Units,
    seeds: Seeds,
    keep: Keep,
) -> MethodContext:
    """What a method works with on the server, wherever the clients are; without test rows."""
    return MethodContext(
        clients=clients,
        tasks=tuple(task.labels for task in embedded.stream.tasks),
        family=embedded.family,
        label_texts=embedded.label_texts,
        topics=embedded.topics,
        public=embedded.public,
        encoder=embedded.encoder,
        replay=config.replay,
        head=config.head,
        constants=config.paper,
        plan=plan,
        ledger=ledger,
        seeds=seeds,
        test_shares=embedded.label_texts[:0],
        keep=keep,
        units=units,
    )


def _cap_memory(config: Config, plan: Plan, ledger: Ledger) -> CapMemory | None:
    """The tasks that clients have contributed to, where a cap is enforced."""
    privacy = config.privacy
    if privacy.mode != "enforced" or privacy.federation is None or plan.cap == plan.releases:
        return None
    charges = ledger.charges
    path = privacy.federation / "spoken.json"
    return CapMemory.at(path, bool(charges), {charge.task for charge in charges})


def _views(context: MethodContext, embedded: EmbeddedStream) -> tuple[View, ...]:
    """Public sentences and label texts, embedded by each encoder that clients run."""
    of_clients = embedded.translations[-len(embedded.views) :]
    return tuple(
        View(_seen_by(context, view), translation.back)
        for view, translation in zip(embedded.views, of_clients, strict=True)
    )


def _seen_by(context: MethodContext, embedded: EmbeddedStream) -> MethodContext:
    return replace(
        context,
        label_texts=embedded.label_texts,
        topics=embedded.topics,
        public=embedded.public,
        encoder=embedded.encoder,
    )


def _upgraded(
    context: MethodContext, config: Config, embedded: EmbeddedStream, seed: int
) -> MethodContext:
    """The context with the releases from before an upgrade, if there was one."""
    before = embedded.before
    if before is None:
        return context
    first = replace(_seen_by(context, before), clients=population_of(config, before, seed))
    between, _ = fit_map(before.public, embedded.public)
    earlier = Earlier(first, config.upgrade, config.carry, between)
    return replace(context, earlier=earlier)


def _shares(embedded: EmbeddedStream) -> FloatArray:
    """(T, c) each label's share of the test examples of a task."""
    counts = np.zeros((len(embedded.stream.tasks), embedded.family.labels))
    np.add.at(counts, (embedded.test.tasks, embedded.test.labels), 1.0)
    shares: FloatArray = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    return shares


# -- checks before anything is read or released ----------------------------------------------------


def check_privacy(settled: SettledConfig) -> None:
    """Refuse settings that contradict enforced privacy or the method."""
    config, method = settled.config, settled.method
    enforced = config.privacy.mode == "enforced"
    if enforced and method.reads == "openly":
        raise ConfigError(
            f"method {config.method!r} reads rows without noise, which is not allowed with "
            "enforced privacy; use --method cslr"
        )
    if enforced and method.pools:
        raise ConfigError(
            f"method {config.method!r} needs the rows of all clients in one place, so it is for "
            f"simulations alone; where privacy is enforced use --method cslr"
        )
    if enforced and config.head.kind == "federated":
        raise ConfigError(
            "--head federated sends updates without noise, which is not allowed with "
            "enforced privacy; use --head released, --head rounds or --head dp-fedavg"
        )
    if enforced and config.replay.sends_lists:
        raise ConfigError(
            f"replay.release = {config.replay.release!r} reveals which clients hold rows of a "
            "task, which ε does not cover, so it is not allowed with enforced privacy; use --set "
            "replay.release=sum"
        )
    if config.stream.hostile and (enforced or method.reads != "privately"):
        raise ConfigError(
            "stream.poisoning requires a private method and simulated privacy; remove it, or "
            "use --method cslr with --privacy simulated"
        )
    if config.stream.hostile and not method.faces_hostile:
        raise ConfigError(f"{config.method} does not study hostile clients; use cslr or dp-sgd")
    if config.privacy.unit == "person":
        _check_person(settled)
    if config.upgrade and not method.carries:
        raise ConfigError(
            f"method {config.method!r} has no releases to carry over to another encoder; use "
            "--method cslr"
        )
    declaration = settled.declaration
    public_rows = declaration is not None and declaration.public_rows
    if is_own(config.stream) and not enforced and not public_rows:
        raise ValueError("config must be settled (runs.embedded.settle) before own rows are read")


def _check_person(settled: SettledConfig) -> None:
    """Refuse a person as the unit where a contribution cannot be one person's."""
    config = settled.config
    if not settled.method.hides_people:
        raise ConfigError(
            f"{config.method} trains models on all rows of a client and cannot hide one person "
            f"inside it; use --unit client, or another method such as cslr"
        )
    if config.replay.sends_lists:
        raise ConfigError(
            f"{config.method} with replay.release = 'list' cannot hide one person: a list comes "
            "under its sender's name, so people in a client could be distinguished; use --unit "
            "client or --set replay.release=sum"
        )
    if config.stream.hostile:
        raise ConfigError(
            "stream.poisoning is about hostile clients, not about people inside them; use "
            "--unit client"
        )


def check_people(settled: SettledConfig, stream: Stream) -> None:
    """Refuse settings that cannot protect a person in several clients."""
    privacy = settled.config.privacy
    if privacy.unit == "client" or stream.clients_per_person == 1:
        return
    rates = (privacy.participation, settled.method.head_q or 1.0)
    if privacy.adversary == "public" and min(rates) < 1:
        raise ConfigError(
            "with clients_per_person > 1 each client samples a person independently, so sampling "
            "amplifies privacy less than is accounted for; use --q 1 or adversary = 'roster'"
        )
    if privacy.evaluation == "private":
        raise ConfigError(
            "--evaluate private counts a person's answers in one client; with clients_per_person "
            "> 1 use --evaluate shown or none"
        )


def check_evaluation(settled: SettledConfig, stream: Stream) -> None:
    """Refuse a private evaluation without test rows of clients or without a budget."""
    config = settled.config
    if config.privacy.evaluation != "private":
        return
    if settled.method.reads != "privately":
        raise ConfigError(
            "--evaluate private requires a method with a privacy budget, and "
            f"{config.method!r} has none; use --evaluate shown or --method cslr"
        )
    if math.isinf(config.privacy.epsilon) or config.head.kind == "federated":
        raise ConfigError("--evaluate private requires a finite ε; use --evaluate shown")
    if config.client_encoders:
        raise ConfigError(
            "--evaluate private requires that all clients run one encoder; use --evaluate shown"
        )
    if stream.test.clients is None:
        raise ConfigError(
            "--evaluate private requires test rows that belong to clients, and those of "
            f"{stream.name!r} do not; use --evaluate shown or stored"
        )


def check_upgrade(config: Config, tasks: int) -> None:
    """Refuse an upgrade after more tasks than the stream has."""
    if config.upgrade > tasks:
        raise ConfigError(
            f"upgrade = {config.upgrade}: the stream has only {tasks} tasks; set upgrade to at "
            f"most {tasks}"
        )
