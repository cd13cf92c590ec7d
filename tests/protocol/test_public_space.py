"""The public space: made of the corpus alone, the same for all, and true to its geometry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cslr.protocol import public_space
from cslr.protocol.agreement import simulated_clients
from cslr.protocol.public_space import (
    BLOCK,
    FEW_ROWS,
    _local_topics,
    build_space,
    clearness,
    declare_modes,
    known_directions,
)
from cslr.protocol.round import statistics_of
from cslr.seeding import Seeds
from tests.conftest import WIDTH


def test_the_basis_is_orthonormal(world):
    basis = world.space().basis
    np.testing.assert_allclose(basis.T @ basis, np.eye(len(basis)), atol=1e-12)


def test_lifting_undoes_the_projection_when_every_direction_is_kept(world):
    space = world.space(dimension=24)
    np.testing.assert_allclose(space.lift(space.into(world.public)), world.public, atol=1e-12)


def test_lifted_coordinates_come_back_and_the_other_directions_do_not_touch_them(world):
    space, rng = world.space(dimension=5), np.random.default_rng(0)
    x = rng.standard_normal((3, 7, 24))
    np.testing.assert_allclose(space.into(space.lift(x)), x[..., :5], atol=1e-12)


def test_directions_stand_by_how_far_topics_differ_along_them(world):
    space = world.space()
    assert np.all(np.diff(space.between) <= 0)
    assert np.all(space.between > 0)
    along = np.square((world.public - space.centre) @ space.basis).mean(axis=0)
    assert along[:8].mean() > 2 * along[8:].mean()  # and the corpus agrees


@pytest.mark.parametrize(("rows", "blocks"), [(FEW_ROWS - 1, True), (FEW_ROWS, False)])
def test_units_with_few_rows_are_projected_in_blocks(world, monkeypatch, rows, blocks):
    space, called = world.space(), []
    together = public_space._in_blocks
    monkeypatch.setattr(public_space, "_in_blocks", lambda *a: called.append(1) or together(*a))
    z = np.random.default_rng(1).standard_normal((3, rows, WIDTH))
    expected = (z - space.centre) @ space.basis[:, : space.dimension]
    np.testing.assert_allclose(space.into(z), expected, atol=1e-12)
    assert bool(called) == blocks


def test_the_centre_of_the_corpus_has_coordinates_zero(world):
    np.testing.assert_allclose(world.space().into(world.public).mean(axis=0), 0, atol=1e-12)


def test_the_spread_is_about_the_variance_of_the_corpus(world):
    space = world.space()
    ratio = space.spread / space.into(world.public).var(axis=0)
    assert np.all((ratio > 0.5) & (ratio < 2.0))


def test_anchors_are_different_sentences_of_the_corpus(world):
    space = world.space(anchors=24)
    gaps = np.abs(space.anchors[:, None] - space.into(world.public)).max(axis=-1)
    assert space.anchors.shape == (24, 8)
    assert np.all(gaps.min(axis=1) < 1e-12)
    assert len(set(gaps.argmin(axis=1))) == 24


def test_more_directions_than_the_encoder_has_are_not_asked_for(world):
    assert world.space(dimension=99).dimension == 24


def test_the_same_corpus_and_stream_give_the_same_space(world):
    one, two = (
        build_space(world.public, "synthetic", 8, 24, Seeds(13).at("anchors")) for _ in range(2)
    )
    assert one.digest() == two.digest()
    assert len(bytes.fromhex(one.digest())) == 16
    np.testing.assert_array_equal(one.basis, two.basis)


def test_the_digest_names_the_very_bits(world):
    space = world.space()
    for name in ("centre", "basis", "between", "within", "anchors"):
        changed = getattr(space, name).copy()
        changed.flat[3] = np.nextafter(changed.flat[3], 2.0)
        assert replace(space, **{name: changed}).digest() != space.digest()


# -- few sentences --------------------------------------------------------------------------------


def corpus(n: int, d: int = 96, seed: int = 4) -> np.ndarray:
    """Sentences of a spectrum as encoders have it, of unit length."""
    z = np.random.default_rng(seed).standard_normal((n, d)) * 0.97 ** np.arange(d) + 0.1
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def space_of(z: np.ndarray, dimension: int = 96):
    return build_space(z, "synthetic", dimension, 30, Seeds(1).at("anchors"))


@pytest.mark.parametrize(("n", "dimension"), [(60, 30), (100, 50), (191, 95), (192, 96), (900, 96)])
def test_no_more_directions_are_released_than_half_the_number_of_sentences(n, dimension):
    space = space_of(corpus(n))
    assert space.dimension == known_directions(n) or n >= 192
    assert space.dimension == dimension
    assert space.anchors.shape == (30, dimension)


def test_how_many_directions_are_known_depends_on_the_number_of_sentences_alone():
    assert space_of(corpus(100, seed=1)).dimension == space_of(corpus(100, seed=2)).dimension
    assert [known_directions(n) for n in (0, 1, 2, 5, 1000)] == [1, 1, 1, 2, 500]


@pytest.mark.parametrize("n", [60, 100])
def test_few_sentences_leave_no_direction_without_spread(n):
    space = space_of(corpus(n))
    assert space.spread.min() > 0.1 * space.spread.mean()
    assert np.linalg.eigvalsh(space.within).min() > 0.05 * np.trace(space.within) / 96


def test_few_sentences_know_the_spread_about_as_well_as_many():
    few, many = space_of(corpus(110)), corpus(20_000, seed=9)
    ratio = few.spread / few.into(many).var(axis=0)
    assert ratio.min() > 0.5
    assert ratio.max() < 2.5


def test_means_of_clients_get_through_with_few_sentences(world):
    """Offsets, and not second moments relative to a spread of nothing, fill a contribution."""
    z = corpus(100)
    space = space_of(z)
    modes = declare_modes(space, z, z[:4], 1, "none", Seeds(1).at("prototypes"))
    agreement = replace(world.agreement(), space=space, modes=modes)
    request = agreement.request(0, (0, 1))
    statistics = statistics_of(simulated_clients(corpus(400, seed=8), 2, Seeds(2)), request)
    whole = np.square(request.layout.pack(statistics)).sum(axis=1)
    assert np.median(np.square(statistics.offset).sum(axis=(1, 2)) / whole) > 0.5


def test_many_sentences_are_hardly_shrunk():
    z = corpus(10_000)
    space = space_of(z)
    means, residuals = _local_topics(z - z.mean(axis=0), Seeds(1).at("anchors"))
    between = np.linalg.eigvalsh(means.T @ means / len(means))[::-1]
    within = space.basis.T @ (residuals.T @ residuals / len(residuals)) @ space.basis
    np.testing.assert_allclose(space.between, between, atol=0.01 * between.max())
    np.testing.assert_allclose(space.within, within, atol=0.02 * np.diagonal(within).max())


@pytest.mark.parametrize(
    "change",
    [
        {"encoder": "another"},
        {"dimension": 7},
        {"seed": 14},
        {"shift": 0.01},
    ],
)
def test_another_corpus_encoder_dimension_or_stream_has_another_digest(world, change):
    asked = {"encoder": "synthetic", "dimension": 8, "seed": 13, "shift": 0.0, **change}
    space = build_space(
        world.public + asked["shift"],
        asked["encoder"],
        asked["dimension"],
        24,
        Seeds(asked["seed"]).at("anchors"),
    )
    assert space.digest() != world.space().digest()


@pytest.mark.parametrize(("rows", "anchors"), [(39, 10), (50, 51)])
def test_a_corpus_that_is_too_small_is_refused(world, rows, anchors):
    with pytest.raises(ValueError, match=f"{rows} public sentences are not enough"):
        build_space(world.public[:rows], "synthetic", 8, anchors, np.random.default_rng(0))


def test_a_prototype_lies_nearest_to_its_own_label(world):
    space = world.space()
    modes = world.modes(space)
    distance = np.linalg.norm(
        modes.prototypes.mean[:, None] - space.into(world.texts)[None], axis=-1
    )
    np.testing.assert_array_equal(distance.argmin(axis=1), modes.labels)
    assert modes.from_texts


def test_a_prototype_lies_nearest_to_the_clients_rows_of_its_label(world):
    space = world.space()
    modes, people = world.modes(space), world.population
    means = [space.into(people.z[people.labels == c]).mean(axis=0) for c in range(4)]
    distance = np.linalg.norm(modes.prototypes.mean[:, None] - np.stack(means)[None], axis=-1)
    np.testing.assert_array_equal(distance.argmin(axis=1), modes.labels)


def test_a_single_label_lies_between_the_sentences_nearest_to_its_text_and_the_text(world):
    space = world.space(dimension=24)
    modes = declare_modes(
        space, world.public, world.texts[:1], 1, "labels", np.random.default_rng(0)
    )
    nearest = np.argsort(-(world.public @ world.texts[0]))[:24]  # 4 % of 600
    sentences = space.into(world.public[nearest]).mean(axis=0)
    of_text = 2 * modes.prototypes.mean[0] - sentences
    # The text says in which direction to look; as a mean it is as far away as the sentences are.
    direction, text = np.linalg.solve(space.shape, of_text), space.into(world.texts[0])
    cosine = direction @ text / np.linalg.norm(direction) / np.linalg.norm(text)
    assert cosine == pytest.approx(1.0, abs=1e-9)
    distances = [mean @ np.linalg.solve(space.shape, mean) for mean in (sentences, of_text)]
    assert distances[0] == pytest.approx(distances[1])


def test_a_mode_has_the_axes_of_a_topic_and_the_size_of_the_corpus(world):
    space = world.space()
    np.testing.assert_allclose(space.shape, space.shape.T, atol=1e-15)
    np.testing.assert_allclose(space.shape @ space.within, space.within @ space.shape, atol=1e-12)
    assert np.trace(space.shape) == pytest.approx(space.between.sum() + np.trace(space.within))
    # Its axes differ less than a topic's: along none of them a head may trust blindly.
    widths = [np.linalg.eigvalsh(matrix) for matrix in (space.shape, space.within)]
    assert np.all(widths[0] > 0)
    assert np.ptp(np.log(widths[0])) <= np.ptp(np.log(widths[1]))


def test_a_type_of_words_has_the_axes_and_the_size_of_the_whole_corpus(world):
    space = world.space()
    whole = space.within + np.diag(space.between)
    np.testing.assert_allclose(space.whole_shape @ whole, whole @ space.whole_shape, atol=1e-12)
    assert np.trace(space.whole_shape) == pytest.approx(np.trace(whole))
    assert np.abs(space.whole_shape - space.shape).max() > 1e-3


@pytest.mark.parametrize("sub_modes", [1, 2])
def test_without_a_prior_all_labels_share_prototypes_of_the_whole_corpus(world, sub_modes):
    space = world.space()
    modes = world.modes(space, sub_modes, "none")
    by_label = modes.prototypes.mean.reshape(4, sub_modes, -1)
    assert not modes.from_texts
    for other in by_label[1:]:
        np.testing.assert_array_equal(other, by_label[0])


def test_sub_modes_of_a_label_are_its_two_topics(world):
    space, people = world.space(), world.population
    prototypes = world.modes(space, sub_modes=2).prototypes.mean.reshape(4, 2, -1)
    for label in range(4):
        topics = [
            space.into(people.z[(people.labels == label) & (world.sub_topics == j)]).mean(axis=0)
            for j in range(2)
        ]
        distance = np.linalg.norm(prototypes[label][:, None] - np.stack(topics)[None], axis=-1)
        assert sorted(distance.argmin(axis=1)) == [0, 1]


def test_modes_stand_in_label_order_and_are_found_by_label(world):
    modes = world.modes(world.space(), sub_modes=2)
    np.testing.assert_array_equal(modes.labels, [0, 0, 1, 1, 2, 2, 3, 3])
    np.testing.assert_array_equal(modes.of_groups(((1,), (3,))), [2, 3, 6, 7])
    assert modes.of_groups(()).shape == (0,)


def test_modes_come_in_the_order_in_which_the_labels_are_asked_for(world):
    modes = world.modes(world.space(), sub_modes=2)
    np.testing.assert_array_equal(modes.of_groups(((3,), (1,))), [6, 7, 2, 3])


# -- texts about the topics of a label -------------------------------------------------------------


@pytest.fixture(scope="module")
def topic_texts(world) -> np.ndarray:
    """(4, 2, d) a text about each of the two topics of a label, the labels in their order."""
    people = world.population
    topics = 2 * people.labels + world.sub_topics
    found = np.stack([people.z[topics == topic].mean(axis=0) for topic in range(8)])
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).reshape(4, 2, -1)


def by_topics(world, texts, topics, **more):
    rng = Seeds(13).at("prototypes")
    return declare_modes(
        world.space(), world.public, texts, 3, "labels", rng, topics=topics, **more
    )


def test_each_text_about_a_topic_makes_one_mode_of_its_label(world, topic_texts):
    """The number of texts decides, whatever number of sub-modes is configured."""
    modes = by_topics(world, world.texts, topic_texts)
    assert modes.groups == ((0,), (1,), (2,), (3,))
    np.testing.assert_array_equal(modes.group, [0, 0, 1, 1, 2, 2, 3, 3])
    assert modes.from_texts
    np.testing.assert_array_equal(modes.texts, topic_texts.reshape(8, -1))
    true = world.space().into(topic_texts.reshape(8, -1))
    apart = np.linalg.norm(modes.prototypes.mean[:, None] - true, axis=-1)
    np.testing.assert_array_equal(apart.argmin(axis=1), np.arange(8))


def test_modes_of_topics_are_those_of_as_many_labels(world, topic_texts):
    space, each = world.space(), topic_texts.reshape(8, -1)
    alone = declare_modes(space, world.public, each, 1, "labels", Seeds(13).at("prototypes"))
    modes = by_topics(world, world.texts, topic_texts)
    np.testing.assert_array_equal(modes.prototypes.mean, alone.prototypes.mean)
    assert modes.candidates is None


def test_a_mode_may_be_selected_from_the_candidates_of_all_topics_of_its_label(world, topic_texts):
    space, each = world.space(), topic_texts.reshape(8, -1)
    rng = Seeds(13).at("prototypes")
    alone = declare_modes(space, world.public, each, 1, "labels", rng, candidates=5)
    offered = by_topics(world, world.texts, topic_texts, candidates=5).candidates
    assert offered.shape == (4, 10, 8)
    for label in range(4):
        both = np.concatenate(alone.candidates[2 * label : 2 * label + 2])
        np.testing.assert_array_equal(offered[label], both)


def test_sentences_count_as_far_as_they_are_clearly_about_labels():
    """Two clusters of sentences and texts in them, beside texts that no sentence is near."""
    rng = np.random.default_rng(0)
    axes = np.eye(6)
    near = axes[rng.integers(0, 2, 400)] + 0.1 * rng.standard_normal((400, 6))
    groups = np.stack([np.flatnonzero(near[:, k] > 0.5)[:20] for k in (0, 1)])
    vague = clearness(near, axes[4:], np.stack([np.arange(20), np.arange(20, 40)]))
    assert clearness(near, axes[:2], groups) > 1.5
    assert 0.0 <= vague < 0.4
    assert clearness(near, axes[:1], groups[:1]) == 1.0


def test_sentences_of_labels_are_those_that_prefer_them_most():
    """Without given sentences it takes 4 % of the corpus for each label."""
    rng = np.random.default_rng(0)
    public, texts = rng.standard_normal((400, 6)), np.eye(6)[:2]
    prefers = public @ (texts[0] - texts[1])
    groups = np.stack([np.argsort(-prefers)[:16], np.argsort(prefers)[:16]])
    assert clearness(public, texts) == pytest.approx(clearness(public, texts, groups))


def test_rows_that_are_no_units_are_projected_in_one_product(world, monkeypatch):
    space = world.space()
    monkeypatch.setattr(public_space, "_in_blocks", None)  # would fail if it were called
    for rows in (FEW_ROWS - 1, FEW_ROWS + 1):
        z = np.random.default_rng(1).standard_normal((rows, WIDTH))
        expected = (z - space.centre) @ space.basis[:, : space.dimension]
        np.testing.assert_allclose(space.into(z), expected, atol=1e-12)


@pytest.mark.parametrize("beside", [1, 63, 64, 65, 200])
def test_a_row_has_the_same_bits_wherever_it_stands_and_whoever_stands_beside_it(beside):
    """Units of three rows in 384 dimensions, fewer and more than fill a product."""
    space = space_of(corpus(200, d=384), dimension=96)
    units = np.random.default_rng(6).standard_normal((beside + 1, 3, 384))
    alone = space.into(units[-1:])
    np.testing.assert_array_equal(space.into(units)[-1:], alone)
    np.testing.assert_array_equal(space.into(units[::-1])[:1], alone)


def test_products_of_small_units_fill_the_tiles_of_matrix_libraries():
    """Otherwise the last rows of a product could be computed by other code than the rest."""
    assert [BLOCK % tile for tile in (4, 6, 8, 12, 16, 24, 32, 48, 64)] == [0] * 9


@pytest.mark.parametrize(
    ("sentences", "members"), [(41, 2), (59, 2), (60, 3), (399, 19), (900, 20)]
)
def test_a_local_topic_has_a_twentieth_of_few_sentences_and_twenty_of_many(sentences, members):
    means, residuals = _local_topics(corpus(sentences), Seeds(1).at("anchors"))
    assert len(means) == sentences
    assert len(residuals) == members * sentences


def test_topics_are_taken_around_a_thousand_sentences_at_most():
    means, _ = _local_topics(corpus(1200, d=8), Seeds(1).at("anchors"))
    assert len(means) == 1000
    np.testing.assert_allclose(means.mean(axis=0), 0.0, atol=1e-12)


def test_deviations_from_a_topic_of_few_sentences_are_not_too_small():
    """Independent sentences deviate within a topic of three as much as all sentences do."""
    x = np.random.default_rng(0).standard_normal((60, 400))
    _, residuals = _local_topics(x, Seeds(1).at("anchors"))
    assert np.square(residuals).mean() == pytest.approx(np.square(x).mean(), rel=0.1)


def test_every_direction_points_to_its_largest_entry():
    """Eigenvectors have no sign: machines must agree on one, or coordinates would differ."""
    basis = space_of(corpus(300)).basis
    largest = basis[np.abs(basis).argmax(axis=0), np.arange(96)]
    assert (largest > 0).all()


@pytest.mark.parametrize("kind", ["synthetic", "random"])
def test_anchors_that_are_no_sentences_lie_as_far_out_as_sentences_do(world, kind):
    space = build_space(world.public, "synthetic", 8, 500, Seeds(1).at("anchors"), kind)
    lengths = np.square(space.anchors).sum(axis=1)
    assert space.anchors.shape == (500, 8)
    assert lengths.mean() == pytest.approx(space.spread.sum(), rel=0.1)
    if kind == "random":
        np.testing.assert_allclose(lengths, space.spread.sum())
        directions = space.anchors.T @ space.anchors / 500
        np.testing.assert_allclose(directions, np.eye(8) * space.spread.mean(), atol=0.03)
    else:
        np.testing.assert_allclose(space.anchors.var(axis=0), space.spread, rtol=0.3)


def test_another_kind_of_anchor_is_refused(world):
    with pytest.raises(ValueError, match="anchor_kind must be sentences, synthetic or random"):
        build_space(world.public, "synthetic", 8, 24, Seeds(1).at("anchors"), "words")


def test_a_modes_variances_are_square_roots_of_a_topics_and_not_too_unequal(world):
    """Tempered, so that a head whitens half; none below a thousandth of the largest."""
    space = world.space()
    narrow = np.linspace(1.0, 1e-5, 24)
    flat = replace(space, within=np.diag(narrow))
    size = space.between.sum() + narrow.sum()
    for power, found in ((0.5, flat.shape), (1.0, flat.plain_shape)):
        expected = np.maximum(narrow, 1e-3) ** power
        np.testing.assert_allclose(np.diag(found), expected * size / expected.sum())


def test_a_label_stands_on_ten_public_sentences_at_least():
    rng = np.random.default_rng(0)
    public, texts = rng.standard_normal((100, 6)), np.eye(6)[:2]
    prefers = public @ (texts[0] - texts[1])
    groups = np.stack([np.argsort(-prefers)[:10], np.argsort(prefers)[:10]])
    assert clearness(public, texts) == pytest.approx(clearness(public, texts, groups))


@pytest.mark.parametrize("pooled", [False, True])
def test_a_task_is_about_its_own_group_or_about_each_of_its_labels(world, pooled):
    modes = world.modes(world.space(), sub_modes=2, pooled=pooled)
    groups = ((2, 3),) if pooled else ((2,), (3,))
    assert modes.groups_of((2, 3)) == groups
    assert modes.pooled is pooled
    np.testing.assert_array_equal(modes.of_groups(groups), [2, 3] if pooled else [4, 5, 6, 7])


def test_a_sentence_that_stands_for_two_labels_of_a_group_counts_once(world):
    """Otherwise an ambiguous sentence would have more weight in the group's mode than others."""
    space = world.space()
    sentences = public_space._sentences_of_labels(world.public, world.texts)
    group = (1, 1)  # the same label twice: every sentence stands for both
    twice = declare_modes(
        space, world.public, world.texts, 1, "labels", Seeds(1).at("prototypes"), [group]
    )
    once = declare_modes(
        space, world.public, world.texts, 1, "labels", Seeds(1).at("prototypes"), [(1,)]
    )
    np.testing.assert_allclose(twice.prototypes.mean, once.prototypes.mean)
    distinct = public_space._distinct(sentences[list(group)])
    np.testing.assert_array_equal(distinct, sentences[1])


def test_clearness_is_in_standard_deviations_of_a_similarity():
    """Two labels along two axes; the sentences of each are surely its own."""
    public = np.array([[2.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    texts, groups = np.eye(2), np.array([[0, 1], [2, 3]])
    # Margins 2 and 1 beside standard deviations of 1 and 1/2.
    assert clearness(public, texts, groups) == pytest.approx(2.0)
