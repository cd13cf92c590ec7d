"""Run a configuration: every seed, the method and its yardsticks, one traced step at a time.

A step is a row of the accuracy matrix. Finished steps stand in the trace, so an interrupted run
goes on where it stopped, and every figure can be made again from the trace alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import numpy as np

from cslr.baselines.setting import Learnt, Setting, Stage
from cslr.bench.methods import YARDSTICKS, method_named
from cslr.bench.mixed import in_common, translation_arrays
from cslr.bench.partition import describe_partition
from cslr.bench.predict import Model
from cslr.bench.preparing import ledger_of, plan_of, population_of, setting_of
from cslr.bench.refusals import check_affordable, check_privacy, check_upgrade
from cslr.bench.results import Result, collect
from cslr.bench.rundir import RunDirectory
from cslr.bench.scoring import Scored, score
from cslr.bench.study import Study
from cslr.config import Config
from cslr.engines.simulation import Population
from cslr.privacy.accounting import ADVERSARIES, SCOPES
from cslr.privacy.ledger import Ledger
from cslr.privacy.plan import Plan
from cslr.seeding import Seeds
from cslr.types import BoolArray

__all__ = ["Step", "learn", "run"]

Step = Callable[[str, int, int], None]
"""Told of every step: what, how many are done, how many there are."""


def run(config: Config, study: Study, directory: RunDirectory, on_step: Step) -> Result:
    """Everything the configuration asks for, from the trace where it is already there."""
    started = time.perf_counter()
    learn(config, study, directory, on_step)
    Model.of(config, study).save(directory.path)
    if directory.find(kind="finished") is None:
        seconds = study.seconds + time.perf_counter() - started
        directory.note(kind="finished", seconds=round(seconds, 3))
    on_step("done", 1, 1)
    return collect(config, directory, study.stream)


def learn(
    config: Config,
    study: Study,
    directory: RunDirectory,
    on_step: Step,
    until: int | None = None,
) -> None:
    """Every step of a run, as far as it is not done.

    until: only the method's own steps up to so many tasks; the run can go on from there later.
    """
    check_privacy(config)
    check_upgrade(config, len(study.stream.tasks))
    method = method_named(config.method)
    plan = plan_of(config, len(study.stream.tasks), study.stream.cap)
    studies = [in_common(study, config, Seeds(seed)) for seed in config.seeds]
    populations = [
        population_of(config, own, seed) for own, seed in zip(studies, config.seeds, strict=True)
    ]
    if config.privacy.mode == "enforced" and method.reads == "privately":
        with ledger_of(config, config.method, config.seeds[0], directory) as ledger:
            check_affordable(ledger, plan, directory.seed(config.seeds[0]))
    directory.begin()
    beside = () if until is not None else _beside(config)
    names = [config.method, *[name for name in beside if name != config.method]]
    rows = (len(study.stream.tasks) if until is None else until) + 1
    total, done = len(config.seeds) * len(names) * rows, 0
    for seed, own, population in zip(config.seeds, studies, populations, strict=True):
        _note_partition(directory, own, population, seed)
        if own.translations:
            directory.seed(seed).save_arrays("translations", translation_arrays(own))
        for name in names:
            with ledger_of(config, name, seed, directory) as ledger:
                setting = setting_of(config, own, population, seed, plan, ledger, directory, name)
                stages = islice(method_named(name).stages(setting), rows)
                for after, stage in enumerate(stages):
                    on_step(f"seed {seed} · {name} · after {after} tasks", done, total)
                    if directory.find(kind="row", seed=seed, method=name, after=after) is None:
                        seen = _study_at(own, setting, after)
                        _finish_row(directory, seen, setting, stage, name, after)
                    done += 1
                if name == config.method and until is None:
                    _note_cost(directory, ledger, plan, seed)


def _beside(config: Config) -> tuple[str, ...]:
    """The yardsticks of a run: those without noise only where nobody is to be protected.

    Zero-shot is never left out: forward transfer is measured against it.
    """
    if not config.yardsticks:
        return ("zero-shot",)
    enforced = config.privacy.mode == "enforced"
    return tuple(
        name for name in YARDSTICKS if not (enforced and method_named(name).reads == "openly")
    )


def _note_partition(
    directory: RunDirectory, study: Study, population: Population, seed: int
) -> None:
    """Report the partition as realised; never where privacy is enforced."""
    if directory.config.privacy.mode == "enforced":
        return
    if directory.find(kind="partition", seed=seed) is None:
        directory.note(
            kind="partition",
            seed=seed,
            clients=population.count,
            realised=describe_partition(
                population.clients, population.labels[population.held], population.count
            ),
        )


def _study_at(study: Study, setting: Setting, after: int) -> Study:
    """What a row is evaluated on: before the upgrade what the earlier encoder sees."""
    earlier = setting.earlier
    early = earlier is not None and after < earlier.tasks
    return study.before if early and study.before is not None else study


def _finish_row(
    directory: RunDirectory, study: Study, setting: Setting, stage: Stage, method: str, after: int
) -> None:
    """Learn, keep what was learnt, evaluate the row a[after, ·], and trace it."""
    begun = time.perf_counter()
    learnt = stage()
    seed = setting.seeds.seed
    scenario = study.stream.scenario(directory.config.stream.scenario)
    if method == directory.config.method:
        for file, arrays in learnt.artefacts.items():
            directory.seed(seed).save_arrays(file, arrays)
    seen = setting.seen(after) if after else np.ones(setting.labels, dtype=np.bool_)
    allowed = [_allowed(scenario, setting, after, task) for task in range(len(setting.tasks))]
    scored = _scored(study, learnt, allowed, seen)
    more = dict(scored.more)
    if learnt.personal and after == len(setting.tasks):
        more["personal"] = _personal(study, setting, learnt, allowed, seen)
    if learnt.own and len(study.stream.test):
        more["own_heads"] = _own_heads(study, learnt, allowed, seen, after)
    step: dict[str, object] = {"seed": seed, "method": method, "after": after}
    if learnt.diagnosis and directory.find(kind="diagnosis", **step) is None:
        measured = {name: _plain(value) for name, value in learnt.diagnosis.items()}
        directory.note(kind="diagnosis", **step, **measured)
    directory.note(
        kind="row",
        seed=seed,
        method=method,
        after=after,
        scores=[_plain(value) for value in scored.tasks],
        labels=[_plain(value) for value in scored.labels],
        more={name: _plain(value) for name, value in more.items()},
        seconds=round(time.perf_counter() - begun, 3),
    )


def _personal(
    study: Study, setting: Setting, learnt: Learnt, allowed: list[BoolArray], seen: BoolArray
) -> float:
    """The mean over clients of each one's own model on the tasks it holds."""
    population, means = setting.population, []
    for client, scorer in learnt.personal:
        held = np.unique(population.tasks[population.held[population.clients == client]])
        scored = _scored(study, Learnt(scorer), allowed, seen)
        means.append(float(np.nanmean(np.array(scored.tasks)[held])))
    return float(np.mean(means))


def _own_heads(
    study: Study, learnt: Learnt, allowed: list[BoolArray], seen: BoolArray, after: int
) -> float:
    """The mean over encoders of each one's own head, on the tasks so far or, before any, on all."""
    means = []
    for view, scorer in zip(study.views, learnt.own, strict=True):
        scored = _scored(view, Learnt(scorer), allowed, seen)
        means.append(float(np.nanmean(scored.tasks[: after or None])))
    return float(np.mean(means))


def _scored(study: Study, learnt: Learnt, allowed: list[BoolArray], seen: BoolArray) -> Scored:
    """Nothing is known about a task without test rows."""
    if not len(study.stream.test):
        return Scored([math.nan] * len(allowed), [math.nan] * len(seen), {})
    scored = score(study, learnt.scores(study.test.z), allowed, seen)
    tested = np.isin(np.arange(len(allowed)), study.stream.test.tasks)
    return replace(scored, tasks=np.where(tested, scored.tasks, math.nan).tolist())


def _allowed(scenario: str, setting: Setting, after: int, task: int) -> BoolArray:
    """(c,) the labels an answer may have.

    class: those seen so far, or all of them on a task not seen yet (forward transfer);
    domain: all of them; task: those of the task.
    """
    if scenario == "task":
        allowed = np.zeros(setting.labels, dtype=np.bool_)
        allowed[list(setting.tasks[task])] = True
        return allowed
    if scenario == "class" and task < after:
        return setting.seen(after)
    return np.ones(setting.labels, dtype=np.bool_)


def _note_cost(directory: RunDirectory, ledger: Ledger, plan: Plan, seed: int) -> None:
    """Copy what the ledger says into the trace; no other ε is ever printed."""
    if directory.find(kind="cost", seed=seed) is None:
        epsilon = {
            scope: {who: _plain(ledger.epsilon(scope, who)) for who in ADVERSARIES}
            for scope in SCOPES
        }
        directory.note(
            kind="cost", seed=seed, epsilon=epsilon, sigma=plan.sigma, releases=len(ledger.charges)
        )


def _plain(value: float) -> float | None:
    """JSON has neither NaN nor ∞."""
    return value if math.isfinite(value) else None
