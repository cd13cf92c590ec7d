"""Central DP: all rows in every step, all steps compose, and never with enforced privacy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cslr.config import Config, with_settings
from cslr.errors import ConfigError, PrivacyError
from cslr.methods.dp_joint import METHOD, ROUNDS, stages
from cslr.runs.embedded import SettledConfig
from cslr.runs.prepare import check_privacy, plan_of


def test_every_step_reads_all_rows_whatever_their_task(make_context, world):
    """Labels of the second task are learnt during the first."""
    context = make_context(method="dp-joint", head={"rounds": 10})
    _, first, _ = stages(context)
    scores = first().scores(world.test_z)
    assert float((scores.argmax(axis=1) == world.test_labels).mean()) > 0.95


def test_every_step_trains_the_types_of_all_tasks(make_context, world):
    context = make_context(method="dp-joint", family="tagging", head={"rounds": 10})
    before, first, _ = stages(context)
    scores = [stage().scores(world.test_z) for stage in (before, first)]
    outputs = context.family.label_of_output()
    right = [float((outputs[each.argmax(axis=1)] == world.test_labels).mean()) for each in scores]
    assert right[1] > max(0.8, right[0])


def test_rows_of_one_unit_make_one_gradient(make_context):
    """Zeroing a unit moves the sum by one clip, not by one for each task."""
    context = make_context(4.0, method="dp-joint")
    list(stages(context))
    assert len(context.ledger.charges) == ROUNDS * len(context.tasks)
    assert context.ledger.epsilon("end_to_end", "roster") == pytest.approx(4.0, rel=0.01)


def test_a_cap_does_not_apply_since_everybody_answers_every_step():
    config = with_settings(Config(method="dp-joint"), {"privacy.cap": 1, "privacy.epsilon": 4.0})
    plan = plan_of(SettledConfig.of(config), 5, None)
    assert plan.cap == plan.releases == 5
    assert plan.epsilon("roster") == pytest.approx(4.0, rel=0.01)


def test_it_is_refused_by_name_where_privacy_is_enforced():
    config = with_settings(Config(method="dp-joint"), {"privacy.mode": "enforced"})
    with pytest.raises(ConfigError, match="'dp-joint' needs the rows of all clients"):
        check_privacy(SettledConfig.of(config))


def test_it_gets_no_rows_where_privacy_is_enforced_even_if_nobody_checked(
    make_context, enforced_ledger
):
    context = replace(make_context(4.0, method="dp-joint"), ledger=enforced_ledger(4.0))
    with pytest.raises(PrivacyError, match="simulation"):
        next(stages(context))


def test_noise_reaches_what_is_released(make_context_with, make_drawer, world):
    heads = [
        list(stages(make_context_with(make_drawer(), epsilon, method="dp-joint", seed=seed)))[
            -1
        ]().scores(world.test_z)
        for epsilon, seed in ((math.inf, 13), (math.inf, 14), (4.0, 13), (4.0, 14))
    ]
    np.testing.assert_allclose(heads[0], heads[1], atol=1e-5)
    assert np.abs(heads[2] - heads[3]).max() > 1e-3


def test_it_pools_and_says_so():
    assert METHOD.pools
    assert METHOD.reads == "privately"
