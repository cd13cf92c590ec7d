"""Questions to clients, and the function on the device that answers each kind."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from cslr.paper_constants import PaperConstants
from cslr.privacy.values import _SEAL
from cslr.protocol import messages
from cslr.protocol.head import HeadSettings, initial_head
from cslr.protocol.list_mode import list_ask
from cslr.protocol.literal.device import written_lists
from cslr.protocol.messages import ANSWERS, MESSAGES, Device, answer, with_bound
from cslr.protocol.ports import AskKind
from cslr.protocol.round import block_ask, blocks_of, sum_ask
from cslr.protocol.step4_aggregate.contribution import BLOCKS


@pytest.fixture
def agreement(world):
    return world.agreement(clipping="separate", bounds=(0.2, 0.2, 0.2, 0.2))


@pytest.fixture
def written(world):
    """The paper's protocol, where clients send lists before they are summed up."""
    how = {"release": "list", "clipping": "separate", "second_moments": "full", "pooled": True}
    agreement = world.agreement(**how, sub_modes=4, list_size=3, paper=PaperConstants())
    return world, with_bound(agreement, world.public, 2)


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


def test_lists_that_were_sent_are_summed_up_as_they_are(written, monkeypatch):
    world, agreement = written
    examples, request = world.examples(0), agreement.request(0, (0, 1))
    found, computed = [], []

    def counting(*arguments):
        computed.append(1)
        return written_lists(*arguments)

    monkeypatch.setattr(messages, "written_lists", counting)
    for place in ("cslr.protocol.round", "cslr.protocol.list_mode"):
        monkeypatch.setattr(f"{place}.written_lists", counting)
    device = Device()
    asks = [list_ask(request, agreement), *[block_ask(request, block) for block in range(4)]]
    for ask in asks:
        found.append(device.answer(examples, ask).rows(_SEAL))
    assert len(computed) == 1
    for ask, rows in zip(asks, found, strict=True):
        np.testing.assert_array_equal(rows, answer(examples, ask).rows(_SEAL))


def test_lists_for_one_task_or_head_are_not_summed_up_for_another(written):
    world, agreement = written
    examples, device, request = world.examples(0), Device(), agreement.request(0, (0, 1))
    device.answer(examples, list_ask(request, agreement))
    head = initial_head(examples.z.shape[-1], 4, HeadSettings(), np.random.default_rng(1))
    for other in (replace(request, task=1), replace(request, seed=99), replace(request, head=head)):
        device.answer(examples, list_ask(request, agreement))
        for block in range(4):
            ask = block_ask(other, block)
            rows = device.answer(examples, ask).rows(_SEAL)
            np.testing.assert_array_equal(rows, answer(examples, ask).rows(_SEAL))


def test_another_request_is_answered_anew(world, agreement):
    examples, device = world.examples(0), Device()
    for seed in (13, 14):
        request = world.agreement(
            sub_modes=2, list_size=4, clipping="separate", bounds=(0.2,) * 4, seed=seed
        ).request(0, (0, 1))
        ask = block_ask(request, 1)
        found = device.answer(examples, ask).rows(_SEAL)
        np.testing.assert_array_equal(found, answer(examples, ask).rows(_SEAL))
