"""The paper's four clips: statistics are clipped and charged separately, with one coin for all."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from cslr.privacy.plan import Budget, Schedule, calibrate
from cslr.privacy.values import _SEAL
from cslr.protocol.messages import TARGET_BOUND, with_bound
from cslr.protocol.round import Session, block_ask, contribute_block, statistics_of
from cslr.protocol.step4_aggregate.contribution import BLOCKS, Layout, Statistics
from cslr.protocol.step4_aggregate.estimate import Noise
from tests.protocol.crashes import BreaksAt, Crash

BOUNDS = (1.5, 0.4, 0.6, 1.0)
FOUR = Schedule(replay=4)
WIDE = (50.0, 50.0, 50.0, 50.0)


@pytest.fixture
def agreement(world):
    return world.agreement(family="tagging", clipping="separate", bounds=BOUNDS)


@pytest.fixture
def cohort(world):
    return world.told("tagging").population.cohort(0, np.ones(12, dtype=bool), 2)


def planned(epsilon: float = math.inf, q: float = 1.0, releases: int = 1):
    return calibrate(Budget(epsilon), releases, q, schedule=FOUR)


# -- blocks ----------------------------------------------------------------------------------------


def test_blocks_are_unscaled_and_from_blocks_undoes_them():
    rng = np.random.default_rng(0)
    layout = Layout(3, 4, 2, 5, weight_scale=0.05, second_scale=0.5, target_scale=0.1)
    given = Statistics(
        rng.standard_normal((2, 3)),
        rng.standard_normal((2, 3, 4)),
        rng.standard_normal((2, 3, 2)),
        rng.standard_normal((2, 3, 5)),
    )
    blocks = layout.blocks(given)
    assert [block.shape for block in blocks] == [(2, 3), (2, 12), (2, 6), (2, 15)]
    np.testing.assert_array_equal(blocks[0], given.weight)
    back = layout.from_blocks([block[1] for block in blocks])
    for name, value in vars(given).items():
        np.testing.assert_array_equal(getattr(back, name), value[1])
        np.testing.assert_array_equal(getattr(layout.from_blocks(blocks), name), value)


@pytest.mark.parametrize("block", range(4), ids=BLOCKS)
def test_every_block_is_clipped_to_its_own_bound(world, agreement, block):
    examples = world.told("tagging").examples(0)
    examples.z[2] *= 1e6
    examples.targets[4] *= 1e6
    request = agreement.request(0, (0, 1))
    raw = request.layout.blocks(statistics_of(examples, request))[block]
    bounded = contribute_block(examples, block_ask(request, block))
    assert bounded.grid.bound == BOUNDS[block]
    rows = bounded.rows(_SEAL)
    assert max(math.isqrt(int(row @ row)) for row in rows) <= bounded.grid.steps
    share = np.minimum(1.0, BOUNDS[block] / np.maximum(np.linalg.norm(raw, axis=1), 1e-12))
    np.testing.assert_allclose(bounded.grid.decode(rows), raw * share[:, None], atol=1e-5)


def test_the_four_bounds_come_from_public_sentences(world):
    agreement = world.agreement(family="tagging", clipping="separate")
    one, two = (with_bound(agreement, world.public, labels_per_task=2) for _ in range(2))
    assert len(one.bounds) == 4
    assert all(0 < bound < 3 for bound in one.bounds)
    assert one.bounds[3] == TARGET_BOUND  # public sentences have no targets to learn it from
    assert 0 < one.kept <= 1
    assert one == two
    joint = with_bound(replace(agreement, clipping="joint"), world.public, labels_per_task=2)
    assert one.public_facts() != joint.public_facts()


# -- a round ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [1.0, 0.5])
def test_four_statistics_are_four_charges_behind_one_coin(
    agreement, cohort, make_ledger, drawer, q
):
    plan, ledger = planned(4.0, q), make_ledger(4.0)
    Session(agreement, plan, ledger, drawer).release(0, (0, 1), cohort)
    charges = ledger.charges
    assert [charge.label for charge in charges] == [f"task 0 {name}" for name in BLOCKS]
    assert {charge.round for charge in charges} == {charges[0].round}
    assert {(charge.sigma, charge.q, charge.part) for charge in charges} == {
        (plan.sigma, q, "replay")
    }
    assert ledger.epsilon("end_to_end", "roster") == pytest.approx(4.0, abs=1e-6)


def test_four_clips_need_twice_the_noise_of_one():
    assert planned(4.0).sigma == pytest.approx(2 * calibrate(Budget(4.0), 1).sigma)


def test_without_clip_and_noise_it_is_what_one_clip_releases(
    world, cohort, make_ledger, drawer, make_drawer
):
    wide = world.agreement(family="tagging", clipping="separate", bounds=WIDE)
    joint = world.agreement(family="tagging", bound=50.0)
    four = Session(wide, planned(), make_ledger(), drawer).release(0, (0, 1), cohort).value
    plan = calibrate(Budget(math.inf), 1)
    one = Session(joint, plan, make_ledger(), make_drawer()).release(0, (0, 1), cohort).value
    for name, value in vars(one.sums).items():
        np.testing.assert_allclose(getattr(four.sums, name), value, atol=0.03, err_msg=name)


def test_each_statistic_has_noise_of_its_own_bound(
    world, agreement, cohort, make_ledger, drawer, make_drawer
):
    """σ times B of each block, in its own units, is what the estimator uses."""
    plan = planned(1.0)
    noisy = Session(agreement, plan, make_ledger(1.0), drawer).release(0, (0, 1), cohort).value
    clear = (
        Session(agreement, planned(), make_ledger(), make_drawer()).release(0, (0, 1), cohort).value
    )
    assert vars(noisy.noise) == pytest.approx(
        dict(
            zip(
                ("weight", "offset", "second", "target", "tied"),
                (*(plan.sigma * bound for bound in BOUNDS), 0.0),
                strict=True,
            )
        )
    )
    z = np.concatenate(
        [
            ((getattr(noisy.sums, name) - getattr(clear.sums, name)) / scale).ravel()
            for name, scale in vars(noisy.noise).items()
        ]
    )
    lower = float(stats.chi2.cdf(np.sum(z**2), z.size))
    assert 1e-3 < lower < 1 - 1e-3
    assert clear.noise == Noise(0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("block", range(4), ids=BLOCKS)
def test_a_round_that_crashed_goes_on_from_the_statistics_that_were_kept(
    agreement, cohort, make_ledger, drawer, block, make_drawer
):
    ledger = make_ledger(4.0)

    def released(ledger, keep):
        return Session(agreement, planned(4.0), ledger, keep).release(0, (0, 1), cohort).value

    straight = released(make_ledger(4.0), make_drawer())
    with pytest.raises(Crash):
        released(ledger, BreaksAt(drawer, f"task 0 {BLOCKS[block]}"))
    assert len(drawer.kept) == block
    found = released(ledger, drawer)
    assert len(ledger.charges) == 4
    for name, value in vars(straight.sums).items():
        np.testing.assert_array_equal(getattr(found.sums, name), value)


def test_kept_statistics_are_read_again_and_not_paid_again(agreement, cohort, make_ledger, drawer):
    plan, ledger = planned(4.0), make_ledger(4.0)
    first, again = (
        Session(agreement, plan, ledger, drawer).release(0, (0, 1), cohort).value for _ in range(2)
    )
    assert len(ledger.charges) == 4
    for name, value in vars(first.sums).items():
        np.testing.assert_array_equal(getattr(again.sums, name), value)


def test_where_a_label_settles_the_target_the_empty_statistic_is_no_obstacle(
    world, make_ledger, drawer
):
    agreement = world.agreement(clipping="separate", bounds=BOUNDS)
    cohort = world.population.cohort(0, np.ones(12, dtype=bool), 2)
    found = (
        Session(agreement, planned(4.0), make_ledger(4.0), drawer).release(0, (0, 1), cohort).value
    )
    assert found.sums.target.shape == (2, 0)
