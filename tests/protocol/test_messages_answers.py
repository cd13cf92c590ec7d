"""Questions to clients, and the function on the device that answers each kind."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from cslr.privacy.values import _SEAL
from cslr.protocol import messages
from cslr.protocol.messages import ANSWERS, MESSAGES, Device, answer
from cslr.protocol.ports import AskKind
from cslr.protocol.round import block_ask, blocks_of, sum_ask
from cslr.protocol.step4_aggregate.contribution import BLOCKS


@pytest.fixture
def agreement(world):
    return world.agreement(clipping="separate", bounds=(0.2, 0.2, 0.2, 0.2))


def test_every_kind_of_question_has_an_answer_that_is_a_declared_message():
    assert set(ANSWERS) == set(get_args(AskKind))
    makers = {message.made_by for message in MESSAGES}
    for function in ANSWERS.values():
        assert f"{function.__module__}.{function.__qualname__}" in makers


def test_a_question_says_what_it_is_called_and_what_bounds_its_answer(agreement):
    request = agreement.request(1, (2, 3))
    one, four = sum_ask(request), [block_ask(request, block) for block in range(4)]
    assert (one.label, one.kind, one.grid) == ("task 1", "sum", request.grids[0])
    assert [each.label for each in four] == [f"task 1 {name}" for name in BLOCKS]
    assert [each.grid for each in four] == list(request.grids)


def test_four_questions_about_one_request_are_computed_once(world, agreement, monkeypatch):
    examples, request = world.examples(0), agreement.request(0, (0, 1))
    computed = []

    def counting(*arguments):
        computed.append(1)
        return blocks_of(*arguments)

    monkeypatch.setattr(messages, "blocks_of", counting)
    device = Device()
    for block in range(4):
        ask = block_ask(request, block)
        found = device.answer(examples, ask).rows(_SEAL)
        np.testing.assert_array_equal(found, answer(examples, ask).rows(_SEAL))
    assert len(computed) == 1


def test_another_request_is_answered_anew(world, agreement):
    examples, device = world.examples(0), Device()
    for seed in (13, 14):
        request = world.agreement(
            sub_modes=2, list_size=4, clipping="separate", bounds=(0.2,) * 4, seed=seed
        ).request(0, (0, 1))
        ask = block_ask(request, 1)
        found = device.answer(examples, ask).rows(_SEAL)
        np.testing.assert_array_equal(found, answer(examples, ask).rows(_SEAL))
