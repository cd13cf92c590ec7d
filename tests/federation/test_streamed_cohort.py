"""Clients batch by batch: the sum of all of them, and memory for one batch."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from cslr.federation.streamed_cohort import StreamedCohort, _answers
from cslr.privacy.values import _SEAL
from cslr.protocol.list_mode import list_ask
from cslr.protocol.ports import Examples
from cslr.protocol.round import block_ask, sum_ask


@pytest.fixture
def asked(world):
    return sum_ask(world.agreement().request(0, (0, 1)))


def parts(examples: Examples, size: int) -> list[Examples]:
    """The clients in batches of ``size``."""
    return [
        Examples(
            examples.z[begin : begin + size],
            examples.labels[begin : begin + size],
            examples.mask[begin : begin + size],
            examples.clients[begin : begin + size],
        )
        for begin in range(0, len(examples.clients), size)
    ]


@pytest.mark.parametrize("size", [1, 5, 12])
def test_the_sum_is_that_of_a_population_in_memory(world, asked, size):
    whole = world.population.cohort(0, np.ones(12, dtype=bool), cap=2).total(asked)
    streamed = StreamedCohort(lambda: iter(parts(world.examples(0), size))).total(asked)
    np.testing.assert_array_equal(streamed._total, whole._total)


def test_several_processes_give_the_same_sum(world, asked):
    alone = StreamedCohort(lambda: iter(parts(world.examples(0), 2))).total(asked)
    shared = StreamedCohort(lambda: iter(parts(world.examples(0), 2)), workers=2).total(asked)
    np.testing.assert_array_equal(shared._total, alone._total)


def test_processes_are_not_sent_more_than_two_batches_ahead(world, asked):
    """However slowly answers are taken: what was read and not added up yet stays small."""
    read = 0

    def batches():
        nonlocal read
        for batch in parts(world.examples(0), 1):
            read += 1
            yield batch

    answers = _answers(batches(), asked, 2)
    for taken in range(1, 13):
        next(answers)
        assert read <= taken + 3
    assert next(answers, None) is None


def test_no_batch_is_kept(world, asked):
    """However many there are: of each only its answer is added up."""
    alive: list[weakref.ref] = []
    most = 0

    def batches():
        nonlocal most
        for number in range(30):
            batch = parts(world.examples(0), 4)[number % 3]
            alive.append(weakref.ref(batch))
            yield batch
            del batch
            gc.collect()
            most = max(most, sum(each() is not None for each in alive))

    gc.freeze()  # what was there before is not looked through 30 times
    try:
        StreamedCohort(batches).total(asked)
    finally:
        gc.unfreeze()
    assert len(alive) == 30
    assert most <= 1


def test_single_answers_come_with_their_names(world):
    ask = list_ask(world.agreement().request(0, (0, 1)), world.agreement())
    clients, answers = StreamedCohort(lambda: iter(parts(world.examples(0), 5))).each(ask)
    assert clients == tuple(range(12))
    assert sum(len(answer.rows(_SEAL)) for answer in answers) == 12


def test_a_cohort_of_nobody_is_refused(asked):
    with pytest.raises(ValueError, match="must not be empty"):
        StreamedCohort(lambda: iter(())).total(asked)


def test_blocks_of_a_task_are_asked_for_batch_by_batch(world):
    agreement = world.agreement(clipping="separate", bounds=(0.2, 0.2, 0.2, 0.2))
    request = agreement.request(0, (0, 1))
    cohort = StreamedCohort(lambda: iter(parts(world.examples(0), 5)))
    whole = world.population.cohort(0, np.ones(12, dtype=bool), cap=2)
    for block in range(3):
        ask = block_ask(request, block)
        np.testing.assert_array_equal(cohort.total(ask)._total, whole.total(ask)._total)
