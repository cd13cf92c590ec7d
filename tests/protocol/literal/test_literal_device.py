"""The paper's protocol on the device: full entries, clipped one by one, within their bounds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cslr.paper_constants import PaperConstants
from cslr.protocol.head import Family
from cslr.protocol.list_mode import list_ask, list_of, list_statistics
from cslr.protocol.literal.device import bounds, list_bound, list_entries
from cslr.protocol.messages import with_bound
from cslr.protocol.round import statistics_of
from cslr.protocol.step1_list import group_lists

L, K, R = 3, 4, 8
PAPER = {
    "release": "list",
    "clipping": "separate",
    "second_moments": "full",
    "pooled": True,
    "sub_modes": K,
    "list_size": L,
}


@pytest.fixture
def agreed(world):
    def make(**constants):
        paper = PaperConstants(**constants)
        return with_bound(world.agreement(**PAPER, paper=paper), world.public, 2)

    return make


def named(request, ids, clients=12):
    return replace(request, names={client: np.array([ids]) for client in range(clients)})


def test_bounds_follow_from_the_papers(agreed):
    agreement = agreed()
    root = math.sqrt(L)
    assert agreement.bounds == pytest.approx((1.0, root, root, root))
    assert agreement.list_bound == pytest.approx(math.sqrt(1 + 3 * L))
    assert bounds(PaperConstants(division="weights", b_mu=2.0), L, K) == (1.0, 2.0, 1.0, 1.0)
    assert list_bound(PaperConstants(b_pi=0.5, b_m=2.0), 2) == pytest.approx(math.sqrt(12.25))


def test_an_entry_has_weight_mean_second_moment_and_target(world, agreed):
    agreement = agreed()
    request = agreement.request(0, (0, 1))
    entries = list_statistics(world.examples(0), request)
    assert entries.weight.shape == (12, L)
    assert entries.offset.shape == (12, L, R)
    assert entries.second.shape == (12, L, R * (R + 1) // 2)
    assert entries.target.shape == (12, L, agreement.family.outputs)
    np.testing.assert_allclose(entries.weight.sum(axis=1), 1.0)
    # Weighted, entries add up to the client's own moments, as an M-step has it.
    x = agreement.space.into(world.examples(0).z)
    mask = world.examples(0).mask[..., None]
    mean = (x * mask).sum(axis=1) / mask.sum(axis=1)
    weighted = (entries.weight[..., None] * entries.offset).sum(axis=1)
    np.testing.assert_allclose(weighted, mean, atol=1e-6)


def test_a_client_without_rows_sends_zeros_for_every_entry(world, agreed):
    examples = world.examples(0)
    examples.mask[2] = False
    entries = list_statistics(examples, agreed().request(0, (0, 1)))
    for part in (entries.weight, entries.offset, entries.second, entries.target):
        assert not part[2].any()
        assert part[1].any()


def test_an_entry_of_no_weight_is_zeros(world, agreed):
    request = agreed().request(0, (0, 1))
    ((x, group),) = group_lists(world.examples(0), request)
    weights = group.lists.weights.copy()
    weights[1] = [0.0, 0.25, 0.75]
    lists = replace(group.lists, weights=weights)
    targets = np.ones((len(x), L, 4))
    found = list_entries(x, replace(group, lists=lists), targets, request.paper)
    assert found.offset[1, 1:].all()
    for part in (found.offset, found.second, found.target):
        assert not part[1, 0].any()


def test_labels_are_the_targets_where_there_is_no_head(world, agreed):
    entries = list_statistics(world.examples(0), agreed().request(0, (0, 1)))
    weighted = (entries.weight[..., None] * entries.target).sum(axis=1)
    np.testing.assert_allclose(weighted.sum(axis=1), 1.0)
    assert (weighted[:, 2:] == 0).all()  # of other tasks


@pytest.mark.parametrize("division", ["cohort", "weights"])
def test_no_contribution_is_longer_than_its_bound(world, agreed, division):
    """Long rows, and every way of naming the entries."""
    agreement = agreed(division=division)
    examples = world.examples(0)
    examples.z[3] *= 1e3
    for ids in ([0, 1, 2], [0, 0, 0], [3, 3, 1]):
        request = named(agreement.request(0, (0, 1)), ids)
        for block, most in zip(
            request.layout.blocks(statistics_of(examples, request)), agreement.bounds, strict=True
        ):
            assert np.linalg.norm(block, axis=1).max() <= most + 1e-9


def test_no_list_is_longer_than_its_bound(world, agreed):
    agreement = agreed()
    examples = world.examples(0)
    examples.z[3] *= 1e3
    ask = list_ask(agreement.request(0, (0, 1)), agreement)
    vectors = ask.request.layout.pack(list_statistics(examples, ask.request))
    assert np.linalg.norm(vectors, axis=1).max() <= agreement.list_bound + 1e-9
    assert list_of(examples, ask).grid.bound == agreement.list_bound


def test_a_client_without_rows_sends_zeros(world, agreed):
    agreement, examples = agreed(), world.examples(0)
    examples.mask[5] = False
    request = named(agreement.request(0, (0, 1)), [0, 1, 2])
    for block in request.layout.blocks(statistics_of(examples, request)):
        np.testing.assert_array_equal(block[5], 0.0)


def test_a_cohort_of_clients_without_rows_sends_empty_lists_of_tags(world, agreed):
    """Without rows there are no targets, and labels cannot take the place of tags."""
    examples = world.examples(0)
    nobody = replace(examples, mask=np.zeros_like(examples.mask), targets=None)
    request = agreed().request(0, (0, 1))
    family = Family("tagging", request.family.labels)
    layout = replace(request.layout, targets=family.outputs)
    entries = list_statistics(nobody, replace(request, family=family, layout=layout))
    assert entries.target.shape[-1] == family.outputs
    assert (entries.target == 0).all()


def test_an_entry_below_the_least_weight_counts_half(world, agreed):
    """With π_min = 1 all entries count half; none is dropped."""
    one, two = (
        statistics_of(
            world.examples(0), named(agreed(pi_min=each).request(0, (0, 1)), [0, 1, 2])
        ).weight.sum(axis=1)
        for each in (0.0, 1.0)
    )
    np.testing.assert_allclose(one, 1.0)
    np.testing.assert_allclose(two[one > 0.999], 0.5, atol=0.5 * L * 1e-9 + 0.34)
    assert (two < one).all()


def test_each_statistic_has_a_bound_of_its_own():
    """Three entries can be of three modes: √3 times the bound of one, but weights sum to one."""
    paper = PaperConstants(b_pi=0.5, b_mu=2.0, b_m=3.0, b_y=5.0)
    root = math.sqrt(3)
    assert bounds(paper, 3, 4) == pytest.approx((0.5, 2 * root, 3 * root, 5 * root))
    assert bounds(paper, 4, 3) == bounds(paper, 3, 4)
    weighted = paper.model_copy(update={"division": "weights"})
    assert bounds(weighted, 3, 4) == (0.5, 2.0, 3.0, 5.0)
    assert list_bound(paper, 3) == pytest.approx(math.sqrt(0.25 + 3 * (4 + 9 + 25)))
