"""FedCIL: networks over public coordinates, one clipped update of both, teachers by task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cslr.methods.fedcil import rounds, schedules, stages
from cslr.methods.fedcil.pools import learn
from cslr.methods.fedcil.rounds import PublicSide
from cslr.methods.fedcil.schedules import TrainingSchedule
from cslr.methods.fedcil.training import Steps
from cslr.protocol.updates import UpdateId, release_update

RECIPE = TrainingSchedule(
    2, 4, 1e-3, 4, coordinates=8, noise=6, generator_hidden=12, pool=64, prior_rows=80
)
RECIPE = replace(RECIPE, imitation=5)


@pytest.fixture
def made(make_context):
    """A small federation: ``made(epsilon, **more)``."""

    def make(epsilon=np.inf, **more) -> PublicSide:
        return PublicSide.of(make_context(epsilon, method="fedcil", **more), RECIPE)

    return make


def test_a_head_in_public_coordinates_is_a_critic_and_back(made):
    """What the head says of points within the directions survives the way there and back."""
    fed = made()
    r = fed.coordinates.directions.shape[1]
    start = fed.context.initial_head()
    critic = fed.coordinates.critic(start)
    model = fed.start()
    model[-len(critic) :] = critic
    x = np.random.default_rng(1).standard_normal((5, r)) @ fed.coordinates.directions.T
    z = fed.coordinates.centre + x
    np.testing.assert_allclose(fed.head(model).scores(z), start.scores(z), atol=1e-4)


def test_generated_rows_have_the_length_of_public_ones(made):
    fed = made()
    pool = fed._generated(fed._teachers(0, (fed.start(),)), 30, np.random.default_rng(2))
    lengths = np.linalg.norm(pool.x.numpy(), axis=1)
    np.testing.assert_allclose(lengths, fed.shapes.radius, rtol=1e-5)


def test_each_earlier_task_is_taught_by_its_own_snapshot(made):
    """Labels of later tasks come from the prior; those of the current task have no teacher."""
    fed = made()
    first, second = fed.start(), fed.start() + 1
    before, after = fed._teachers(0, (first,)), fed._teachers(1, (first, second))
    assert [teacher.labels.tolist() for teacher in before] == [[2, 3]]
    assert before[0].model is first
    assert [teacher.labels.tolist() for teacher in after] == [[0, 1]]
    assert after[0].model is second


def test_without_a_prior_a_first_task_has_no_teacher(made):
    fed = made(prior="none")
    assert fed.prior is None
    assert fed._teachers(0, (fed.start(),)) == []


def test_generator_and_critic_are_clipped_as_one_vector(made, monkeypatch):
    """One release a round, of all parameters together, with the norm of the recipe."""
    released = []

    def noting(ask, update, *rest):
        mean = release_update(ask, update, *rest)
        released.append((len(mean), ask.grid.bound))
        released.append(ask.label)
        return mean

    monkeypatch.setattr(rounds, "release_update", noting)
    fed = made(8.0)
    fed.after_task(0, (fed.start(),))
    one = (fed.shapes.size, RECIPE.norm)
    assert released == [one, "task 0 update 0", one, "task 0 update 1"]


def test_a_layer_within_its_noise_is_left_as_it_was(made):
    """A layer of noise alone is set to zero; one far beyond its noise is nearly kept."""
    fed = made(4.0)
    where = UpdateId(0, 0, fed.context.clients.count)
    noise = fed.context.plan.head_sigma * RECIPE.norm / where.expected(fed.context.plan)
    white = np.random.default_rng(3).standard_normal(fed.shapes.size) * noise
    assert np.count_nonzero(fed._trusted(white, where)) < 0.02 * fed.shapes.size
    loud = white + 100 * noise
    np.testing.assert_allclose(fed._trusted(loud, where), loud, rtol=0.01)


def test_without_noise_an_update_is_taken_as_it_is(made):
    fed = made()
    update = np.random.default_rng(4).standard_normal(fed.shapes.size)
    np.testing.assert_array_equal(fed._trusted(update, UpdateId(0, 0, 12)), update)


def test_fused_adam_is_adam(made, monkeypatch):
    """Both networks after twenty steps, by it and by the plain one: the same to 1e-4."""
    fed = made()
    start = fed.start()
    pool = fed._generated(fed._teachers(0, (start,)), 64, np.random.default_rng(2))
    steps = Steps(1e-3, 3e-4, 1.0)

    def trained():
        rng = np.random.default_rng(3)
        return learn(start, pool, 20, 16, fed.shapes, fed.context.family, steps, rng=rng)

    fused, plain = trained(), torch.optim.Adam
    monkeypatch.setattr(torch.optim, "Adam", lambda *a, fused, **more: plain(*a, **more))
    assert np.abs(fused - start).max() > 5e-3
    np.testing.assert_allclose(fused, trained(), atol=1e-4)


def test_an_interrupted_round_is_not_paid_twice(make_context_with, make_drawer):
    """Saved results are reused: the model is the same, with one charge per round."""
    context = make_context_with(make_drawer(), 8.0, method="fedcil")
    models = []
    for _ in range(2):
        fed = PublicSide.of(context, RECIPE)
        models.append(fed.after_task(0, (fed.start(),)))
    np.testing.assert_array_equal(*models)
    assert len(context.ledger.charges) == RECIPE.rounds


def test_the_schedule_pays_for_the_rounds_of_the_recipe(make_context):
    context = make_context(8.0, method="fedcil")
    assert context.plan.schedule.head == schedules.RECIPE.rounds
    assert sum(1 for _ in stages(context)) == len(context.tasks) + 1


def test_rounds_and_clip_can_be_asked_for(make_context, monkeypatch):
    monkeypatch.setattr(schedules, "RECIPE", RECIPE)
    context = make_context(8.0, method="fedcil", head={"rounds": 2, "clip": 0.5})
    assert context.plan.schedule.head == 2
    *_, last = stages(context)
    last()
    assert len(context.ledger.charges) == 2 * len(context.tasks)
