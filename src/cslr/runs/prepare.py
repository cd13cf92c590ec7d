"""What a run needs before its first step: plan, population, ledger and setting of each seed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.config import Config
from cslr.data.partition import assign_clients
from cslr.federation.simulation import Population
from cslr.methods.method import Earlier, MethodContext, View
from cslr.methods.registry import method_named
from cslr.privacy.accounting import Scope
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.cap_memory import CapMemory
from cslr.privacy.ledger.keys import EphemeralKeys, SeededKeys
from cslr.privacy.ledger.pointer import open_ledger
from cslr.privacy.plan import Budget, Plan, Schedule, calibrate
from cslr.protocol.translation import fit_map
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import EmbeddedStream
from cslr.runs.mixed_encoders import encoder_of
from cslr.runs.own_data import is_own, rows_of
from cslr.seeding import Seeds

__all__ = ["context_of", "ledger_of", "plan_of", "population_of"]


def plan_of(config: Config, tasks: int, cap: int | None) -> Plan:
    """The noise that follows from the promise; none is needed where nothing is released.

    cap: the most tasks a client can have rows of, where the stream knows it.
    """
    privacy, method = config.privacy, method_named(config.method)
    private = method.reads == "privately"
    settled = method.settled(config)
    schedule = method.schedule(settled) if private else Schedule()
    if privacy.evaluation == "private":
        schedule = replace(schedule, evaluation=1)
    return calibrate(
        Budget(privacy.epsilon if private else math.inf, privacy.delta, privacy.adversary),
        tasks,
        privacy.participation,
        privacy.cap or cap,
        schedule,
        settled.head.participation or privacy.participation,
    )


def population_of(config: Config, embedded: EmbeddedStream, seed: int) -> Population:
    """Who holds which examples: simulated for a study, given with one's own data."""
    clients, rows = assign_clients(embedded.stream, config.stream, Seeds(seed).at("partition"))
    train = embedded.train
    count = config.stream.clients or embedded.stream.clients
    ids = _ids(embedded, count)
    if embedded.encoders > 1:  # a client holds what its own encoder makes of a row
        runs = encoder_of(count, embedded.encoders, Seeds(seed), ids)
        rows = rows + len(embedded.stream.train) * runs[clients]
    hostile = Seeds(seed).at("hostile").permutation(count)[: round(config.stream.hostile * count)]
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
    )


def _ids(embedded: EmbeddedStream, count: int) -> IntArray | None:
    """(N,) the clients' own addresses, where rows came with names; without rows any will do."""
    known = embedded.stream.client_ids
    if known is None:
        return None
    return np.concatenate([known, -1 - np.arange(count - len(known))])


def _kinds(embedded: EmbeddedStream) -> IntArray:
    """(n,) the true mode of each train example: what its stream knows of it, else its label."""
    known = embedded.stream.train.kinds
    return embedded.train.labels if known is None else known[embedded.train.rows]


def ledger_of(config: Config, method: str, seed: int, directory: RunDirectory) -> Ledger:
    """The run's own ledger if privacy is simulated, the federation's if it is enforced."""
    privacy = config.privacy
    known = method_named(method)
    epsilon = math.inf if known.reads == "openly" else privacy.budget or privacy.epsilon
    federated = known.settled(config).head.kind == "federated"
    scope: Scope = "replay" if federated else "end_to_end"
    budget = Budget(epsilon, privacy.delta, privacy.adversary, scope)
    name = config.stream.name
    if method != config.method:
        federation = Federation(name, Budget(math.inf, privacy.delta), "simulated")
        return Ledger.in_memory(federation, SeededKeys(Seeds(seed)))
    federation = Federation(name, budget, privacy.mode)
    if privacy.mode == "enforced" and privacy.federation is not None:
        if is_own(config.stream):
            return open_ledger(rows_of(config.stream), privacy.federation, federation)
        keys = EphemeralKeys(privacy.federation / "keys")
        return Ledger.at(privacy.federation / "ledger.jsonl", federation, keys)
    path = directory.seed(seed).path / "ledger.jsonl"
    return Ledger.at(path, federation, SeededKeys(Seeds(seed)))


def context_of(
    config: Config,
    embedded: EmbeddedStream,
    population: Population,
    seed: int,
    plan: Plan,
    ledger: Ledger,
    directory: RunDirectory,
    method: str,
) -> MethodContext:
    """One seed of one method; with what was released under another encoder, if anything was."""
    stream, own = embedded.stream, method == config.method
    config = method_named(method).settled(config)
    context = MethodContext(
        population=population,
        tasks=tuple(task.labels for task in stream.tasks),
        family=embedded.family,
        label_texts=embedded.label_texts,
        topics=embedded.topics,
        public=embedded.public,
        encoder=embedded.encoder,
        replay=config.replay,
        head=config.head,
        plan=plan,
        ledger=ledger,
        seeds=Seeds(seed),
        test_shares=_shares(embedded),
        keep=directory.seed(seed, ledger),
        spoken=_spoken(config, plan, ledger) if own else None,
    )
    if not own:
        return context
    return _upgraded(replace(context, views=_views(context, embedded)), config, embedded, seed)


def _spoken(config: Config, plan: Plan, ledger: Ledger) -> CapMemory | None:
    """What clients remember of the tasks they spoke about, where their number is promised."""
    privacy = config.privacy
    if privacy.mode != "enforced" or privacy.federation is None or plan.cap == plan.releases:
        return None
    return CapMemory.at(privacy.federation / "spoken.json", begun=bool(ledger.charges))


def _views(context: MethodContext, embedded: EmbeddedStream) -> tuple[View, ...]:
    """The public things as each encoder that clients run sees them."""
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
    """With what was released under another encoder before, if the configuration says so."""
    before = embedded.before
    if before is None:
        return context
    first = replace(_seen_by(context, before), population=population_of(config, before, seed))
    between, _ = fit_map(before.public, embedded.public)
    earlier = Earlier(first, config.upgrade.after, config.upgrade.carry, between)
    return replace(context, earlier=earlier)


def _shares(embedded: EmbeddedStream) -> FloatArray:
    """(T, c) each label's share of the test examples of a task."""
    counts = np.zeros((len(embedded.stream.tasks), embedded.family.labels))
    np.add.at(counts, (embedded.test.tasks, embedded.test.labels), 1.0)
    shares: FloatArray = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    return shares
