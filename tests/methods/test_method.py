"""What every method promises, whatever it is: a new one is tested by being in ``METHODS``.

All of them get the same stream, the same budget and the same public help.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from cslr.config import Config
from cslr.errors import BudgetExceeded, PrivacyError
from cslr.methods.fedcil import schedules as fedcil
from cslr.methods.fedta import learning as fedta
from cslr.methods.method import Fitted, MethodContext
from cslr.methods.registry import METHODS
from cslr.privacy.plan import Budget, Schedule, calibrate

EPSILON = 4.0


def methods_that(*reads: str) -> pytest.MarkDecorator:
    """A case for each method that reads so; all cases of one run in one worker, on one course."""
    names = [name for name, method in METHODS.items() if method.reads in reads]
    groups = [pytest.mark.xdist_group(f"method {name}") for name in names]
    cases = [pytest.param(name, marks=group) for name, group in zip(names, groups, strict=True)]
    return pytest.mark.parametrize("name", cases)


EACH = methods_that("privately", "openly", "nothing")
PRIVATE = methods_that("privately")
LEARNING = methods_that("privately", "openly")


@dataclass(frozen=True, eq=False)
class Course:
    """A run of a method from its first stage to its last."""

    context: MethodContext
    learnt: list[Fitted]
    scores: list[np.ndarray]
    read: str
    """A digest of the population before the run."""


def digest(context: MethodContext) -> str:
    people = context.clients
    arrays = (people.z, people.labels, people.tasks, people.clients, people.targets)
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def epsilon_for(name: str) -> float:
    """The budget a run gives the method: none can admit what reads rows as they are."""
    return math.inf if METHODS[name].reads == "openly" else EPSILON


def every_stage(name: str, context: MethodContext) -> list[Fitted]:
    return [stage() for stage in METHODS[name].stages(context)]


@pytest.fixture(scope="module", autouse=True)
def briefly():
    """Networks that take minutes are trained for a few steps: no promise here is about quality."""
    with pytest.MonkeyPatch.context() as patch:
        brief = replace(fedcil.RECIPE, iterations=6, consolidation=6, imitation=30, prior_rows=400)
        patch.setattr(fedcil, "RECIPE", brief)
        patch.setattr(fedta, "RECIPE", replace(fedta.RECIPE, rounds=1, epochs=2))
        yield


@pytest.fixture(scope="module")
def prepared(make_context_with, make_drawer):
    """A setting with two rounds of federated training, if the method has any."""

    def make(name: str, seed: int = 13, **more: object) -> MethodContext:
        given = {"epsilon": epsilon_for(name), "head": {"rounds": 2}, **more}
        return make_context_with(make_drawer(), seed=seed, method=name, **given)

    return make


@pytest.fixture(scope="module")
def course(prepared, world) -> Callable[..., Course]:
    """What a method does in the small world, once for all tests of this file."""
    done: dict[tuple[str, int], Course] = {}

    def go(name: str, seed: int = 13, again: bool = False) -> Course:
        if again or (name, seed) not in done:
            context = prepared(name, seed)
            read = digest(context)
            learnt = every_stage(name, context)
            scores = [each.scores(world.test_z) for each in learnt]
            done[name, seed] = Course(context, learnt, scores, read)
        return done[name, seed]

    return go


# -- stages and scores -----------------------------------------------------------------------------


@EACH
def test_there_is_a_stage_before_any_task_and_one_after_each(course, world, name):
    assert len(course(name).learnt) == len(world.tasks) + 1


@EACH
def test_scores_are_finite_for_every_label_that_was_met(course, name):
    found = course(name)
    for tasks, scores in enumerate(found.scores):
        assert scores.shape == (80, 4)
        assert not np.isnan(scores).any()
        assert np.isfinite(scores[:, found.context.seen(tasks)]).all()


@EACH
def test_a_label_is_known_or_not_whatever_the_text(course, name):
    """What a method knows nothing about has −inf for every text, never for some of them."""
    for scores in course(name).scores:
        known = np.isfinite(scores)
        np.testing.assert_array_equal(known, np.broadcast_to(known[0], known.shape))
        assert np.all(scores[~known] == -np.inf)


@LEARNING
def test_what_was_learnt_moves_the_scores(course, name):
    first, *_, last = course(name).scores
    assert not np.array_equal(first, last)


@EACH
@pytest.mark.parametrize("family", ["intents", "tagging"])
def test_every_family_is_answered(prepared, world, name, family):
    context = prepared(name, family=family)
    *_, last = METHODS[name].stages(context)
    scores = last().scores(world.test_z)
    assert scores.shape == (80, context.family.outputs)
    assert np.isfinite(scores).all()


def test_clients_train_intents_from_likely_scores(prepared, world):
    """CSLR predicts with a strict threshold, under which all intents are unlikely: a bad start."""
    first = {}
    for name in ("dp-sgd", "cslr"):
        stage, *_ = METHODS[name].stages(prepared(name, family="intents"))
        first[name] = stage().scores(world.test_z).max(axis=1).mean()
    assert first["dp-sgd"] > first["cslr"] + 1.0


# -- the same for all ------------------------------------------------------------------------------


@EACH
def test_all_methods_get_the_same_stream_and_budget(course, prepared, name):
    mine, other = course(name).context, prepared("cslr")
    assert course(name).read == digest(other)
    assert mine.tasks == other.tasks
    assert mine.plan.cap == other.plan.cap
    assert mine.ledger.federation.budget.epsilon == epsilon_for(name)
    np.testing.assert_array_equal(mine.label_texts, other.label_texts)


@EACH
def test_nobodys_rows_are_changed(course, name):
    assert digest(course(name).context) == course(name).read


@EACH
def test_the_same_seed_gives_the_same_scores(course, name):
    one, two = course(name), course(name, again=True)
    assert one is not two
    for first, second in zip(one.scores, two.scores, strict=True):
        np.testing.assert_array_equal(first, second)


@LEARNING
def test_another_seed_gives_other_scores(course, name):
    assert not np.array_equal(course(name).scores[-1], course(name, seed=14).scores[-1])


# -- what it costs ---------------------------------------------------------------------------------


@EACH
def test_the_ledger_stays_within_the_budget_in_its_scope(course, name):
    """ε is 0 for methods that read nothing, ∞ for open ones, and within the budget for others."""
    context, reads = course(name).context, METHODS[name].reads
    whole = context.ledger.epsilon("end_to_end", "roster")
    replay = context.ledger.epsilon("replay", "roster")
    if reads == "nothing":
        assert context.ledger.charges == ()
        assert whole == 0.0
    elif reads == "openly":
        assert whole == math.inf
    elif context.head.kind == "federated":
        assert 0.99 * EPSILON <= replay <= EPSILON * (1 + 1e-9)
        assert whole == math.inf
    else:
        assert 0.99 * EPSILON <= whole <= EPSILON * (1 + 1e-9)
        assert replay <= whole


@PRIVATE
def test_what_is_charged_is_what_was_planned(course, name):
    context = course(name).context
    planned = sorted((c.round, c.part, c.sigma, c.q, c.task) for c in context.plan.charges())
    noised = [charge for charge in context.ledger.charges if charge.sigma is not None]
    assert sorted((c.round, c.part, c.sigma, c.q, c.task) for c in noised) == planned


@PRIVATE
def test_every_noised_release_is_kept_and_settled(course, name):
    context = course(name).context
    noised = {charge.label for charge in context.ledger.charges if charge.sigma is not None}
    assert set(context.keep.kept) == noised
    settled = {r["body"]["label"] for r in context.ledger.records if r["kind"] == "settled"}
    assert noised <= settled


@PRIVATE
def test_an_interrupted_run_goes_on_and_pays_nothing_twice(course, world, name):
    found = course(name)
    before = found.context.ledger.charges
    *_, last = METHODS[name].stages(found.context)
    np.testing.assert_array_equal(last().scores(world.test_z), found.scores[-1])
    assert found.context.ledger.charges == before


@PRIVATE
def test_an_uncalibrated_plan_is_refused_before_anything_is_released(prepared, name):
    context = prepared(name)
    plan = context.plan
    none = calibrate(Budget(math.inf), plan.releases, plan.q, plan.cap, plan.schedule, plan.head_q)
    with pytest.raises(BudgetExceeded, match="beyond its budget"):
        every_stage(name, replace(context, plan=none))
    assert context.keep.kept == {}
    assert context.ledger.epsilon("replay", "roster") == 0.0
    if context.head.kind != "federated":  # whose updates are never noised
        assert context.ledger.charges == ()


@methods_that("openly")
def test_no_finite_budget_admits_what_reads_openly(prepared, name):
    context = prepared(name, epsilon=100.0)
    with pytest.raises(BudgetExceeded, match="beyond its budget of 100"):
        every_stage(name, context)
    assert context.ledger.charges == ()


@EACH
def test_a_method_says_what_it_is_in_a_few_words(name):
    assert 0 < len(METHODS[name].meaning) < 40


@EACH
def test_what_a_method_fixes_is_settled_before_it_is_planned(name):
    """Settling twice changes nothing, and a method's own choices are never overruled."""
    method = METHODS[name]
    settled = method.settled(Config())
    assert method.settled(settled) == settled
    for dotted, value in method.settings.items():
        section, key = dotted.split(".")
        assert getattr(getattr(settled, section), key) == value
    assert method.reads != "privately" or method.schedule(settled) != Schedule(replay=0)


@pytest.mark.parametrize("method", ["cslr", "dp-sgd", "fedcil", "zero-shot"])
def test_a_method_that_does_not_read_openly_gets_no_rows(make_context, method):
    context = make_context(8.0, method=method)
    with pytest.raises(PrivacyError, match="has no access to rows"):
        context.open_rows()


def test_where_privacy_is_enforced_nobody_gets_rows_or_single_clients(
    make_context, enforced_ledger
):
    context = replace(make_context(method="joint"), ledger=enforced_ledger(8.0))
    with pytest.raises(PrivacyError, match="where privacy is enforced"):
        context.open_rows()
    with pytest.raises(PrivacyError, match="only in a simulation"):
        context.open_cohort(0)


def test_a_method_that_reads_openly_gets_the_rows_of_a_simulation(make_context, world):
    context = make_context(method="joint")
    np.testing.assert_array_equal(context.open_rows().z, world.population.z)
