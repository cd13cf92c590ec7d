"""Work, counted and not timed: every step is linear in the number of labels and of tasks.

Counted are the calls of a step, the numbers in the arrays that its functions return, and the most
memory it holds. Twice as many labels or tasks make the contribution, the release or the model twice
as large; the counts may grow by as much, and not by its square.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import cache

import numpy as np
import pytest

from cslr.federation.streamed_cohort import StreamedCohort
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.plan import Budget, calibrate
from cslr.privacy.values import _SEAL, Bounded
from cslr.protocol.agreement import Agreement
from cslr.protocol.head import Family
from cslr.protocol.messages import with_bound
from cslr.protocol.ports import Examples
from cslr.protocol.public_space import build_space, declare_modes
from cslr.protocol.round import Session, contribute, sum_ask
from cslr.protocol.step1_list import ListLearner
from cslr.seeding import Seeds

WIDTH, CLIENTS, ROWS = 16, 8, 4  # ROWS of each label


@dataclass(frozen=True)
class Work:
    """What a step did, and how many numbers came of it."""

    calls: int
    numbers: int
    memory: int
    result: int


def work(step: Callable[[], object]) -> Work:
    """Of one call, after one that does not count."""
    result = size_of(step())
    calls = numbers = 0

    def counted(frame, event, value):
        nonlocal calls, numbers
        if event in ("call", "c_call"):
            calls += 1
        elif event == "return" and isinstance(value, np.ndarray):
            numbers += value.size

    tracemalloc.start()
    sys.setprofile(counted)
    try:
        step()
    finally:
        sys.setprofile(None)
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return Work(calls, numbers, memory, result)


def size_of(value: object) -> int:
    """Numbers in the arrays of a value and of its fields."""
    if isinstance(value, np.ndarray):
        return value.size
    if isinstance(value, Bounded):
        return value.rows(_SEAL).size
    return sum(map(size_of, vars(value).values())) if is_dataclass(value) else 0


def assert_at_most_linear(less: Work, more: Work) -> None:
    """Twice the size is twice the work; or as many times as its result is larger, if that is more.

    A model of K modes has K distributions over all labels, for example.
    """
    allowed = 1.1 * max(2.0, more.result / max(less.result, 1))
    for name in ("calls", "numbers", "memory"):
        assert getattr(more, name) <= allowed * getattr(less, name), name


class NoKeep:
    def load(self, label):
        return None

    def save(self, label, vector):
        return None


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def session(labels: int, tasks: int, modes: int = 1) -> Session:
    """So many labels of so many modes in each of so many tasks; nothing released yet."""
    rng = np.random.default_rng(3)
    spread = np.linspace(1.0, 0.2, WIDTH)
    public = unit(rng.standard_normal((400, WIDTH)) * spread)
    texts = unit(rng.standard_normal((labels * tasks, WIDTH)) * spread)
    space = build_space(public, "synthetic", 8, 12, Seeds(3).at("space"))
    modes = declare_modes(space, public, texts, modes, "labels", Seeds(3).at("modes"))
    family = Family("classification", len(texts))
    told = Agreement(space, modes, ListLearner(), "signature", "shared", 3, CLIENTS, family)
    budget = Budget(4.0)
    ledger = Ledger.in_memory(Federation("growth", budget, "simulated"), SeededKeys(Seeds(3)))
    agreement = with_bound(told, public, labels)
    return Session(agreement, calibrate(budget, tasks), ledger, NoKeep())


def asked(labels: int, task: int) -> tuple[int, ...]:
    return tuple(range(task * labels, (task + 1) * labels))


def examples(labels: int, task: int) -> Examples:
    """Every client has ROWS rows of every label."""
    rng = np.random.default_rng(task)
    of_rows = np.tile(np.repeat(asked(labels, task), ROWS), (CLIENTS, 1))
    z = unit(rng.standard_normal((*of_rows.shape, WIDTH)))
    return Examples(z, of_rows, np.ones(of_rows.shape, dtype=bool), tuple(range(CLIENTS)))


def released(labels: int, tasks: int, modes: int = 1) -> Session:
    found = session(labels, tasks, modes)
    for task in range(tasks):
        held = [examples(labels, task)]
        found.release(task, asked(labels, task), StreamedCohort(held.__iter__))
    return found


def contribution(labels: int, tasks: int) -> Callable[[], object]:
    """A client's whole part of a task."""
    ask = sum_ask(session(labels, tasks).agreement.request(0, asked(labels, 0)))
    held = examples(labels, 0)
    return lambda: contribute(held, ask)


def clip_bound(labels: int, tasks: int) -> Callable[[], object]:
    """The public bound of contributions about so many labels."""
    agreement = session(labels, tasks).agreement
    public = unit(np.random.default_rng(4).standard_normal((400, WIDTH)))
    return lambda: with_bound(agreement, public, labels)


def next_request(labels: int, tasks: int) -> Callable[[], object]:
    """What the server tells clients of the last task, after all releases before it."""
    done = released(labels, tasks)
    earlier = [each.value for each in done.releases[:-1]]
    last = tasks - 1
    return lambda: done.agreement.request_after(last, asked(labels, last), None, earlier)


def model(labels: int, tasks: int) -> Callable[[], object]:
    """The model of all releases."""
    return released(labels, tasks).replay


def model_of_two_modes(labels: int, tasks: int) -> Callable[[], object]:
    """The model of all releases where every label has two modes."""
    return released(labels, tasks, modes=2).replay


STEPS = (contribution, clip_bound, next_request, model, model_of_two_modes)


@cache
def measured(step: Callable[..., Callable[[], object]], labels: int, tasks: int) -> Work:
    return work(step(labels, tasks))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_64_labels_of_a_task_are_at_most_twice_the_work_of_32(step):
    assert_at_most_linear(measured(step, 32, 2), measured(step, 64, 2))


@pytest.mark.parametrize(
    "step", [next_request, model, model_of_two_modes], ids=lambda step: step.__name__
)
def test_64_tasks_are_at_most_twice_the_work_of_32(step):
    assert_at_most_linear(measured(step, 2, 32), measured(step, 2, 64))


def test_a_quadratic_step_would_be_noticed():
    def squared(size: int) -> Work:
        return work(lambda: np.ones((size, size)) @ np.ones(size))

    with pytest.raises(AssertionError, match="memory"):
        assert_at_most_linear(squared(256), squared(512))


def test_a_contribution_grows_with_labels_and_nothing_else_does():
    few, many = (session(labels, 2).agreement.layout(labels).size for labels in (32, 64))
    assert many == 2 * few
