"""Common coordinates: what a map keeps, its stated error, and the data it may be fitted on."""

from __future__ import annotations

import inspect
import typing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from cslr.arrays import FloatArray, IntArray
from cslr.errors import DataError
from cslr.protocol import translation
from cslr.protocol.translation import (
    Affine,
    PublicEmbeddings,
    Translation,
    check_same_corpus,
    corpus_digest,
    fit_map,
    identity,
    mapped,
    missed,
    relative,
    translation_from,
    untranslated,
)

N, D = 500, 24
SENTENCES = tuple(f"sentence {n}" for n in range(N))


def unit(z: np.ndarray) -> np.ndarray:
    return z / np.linalg.norm(z, axis=-1, keepdims=True)


def texts(seed: int, count: int = N) -> np.ndarray:
    """Embeddings around thirty topics and around a common direction, as encoders give them."""
    topics = np.random.default_rng(0).standard_normal((30, D))
    rng = np.random.default_rng(seed)
    noise = 0.3 * rng.standard_normal((count, D))
    return unit(topics[rng.integers(30, size=count)] + noise + 0.5)


def rotation(seed: int = 3, d: int = D) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]


def public(z: np.ndarray, encoder: str = "other", sentences=SENTENCES) -> PublicEmbeddings:
    return PublicEmbeddings(encoder, corpus_digest(sentences), z)


Z, NEW = texts(1), texts(2, 200)
REFERENCE = public(Z, "reference")
TURN = rotation()


def neighbours(z: np.ndarray) -> np.ndarray:
    similarity = z @ z.T
    np.fill_diagonal(similarity, -np.inf)
    return np.argsort(-similarity, axis=1)[:, :5]


# -- maps ------------------------------------------------------------------------------------------


def test_a_rotated_space_is_mapped_back_almost_exactly():
    found = mapped(public(Z @ TURN), REFERENCE)
    assert found.error < 1e-6
    np.testing.assert_allclose(found.common(NEW @ TURN), NEW, atol=1e-3)
    np.testing.assert_allclose(found.own(NEW), NEW @ TURN, atol=1e-3)


def test_texts_keep_their_neighbours_through_a_rotation():
    found = mapped(public(Z @ TURN), REFERENCE)
    there = found.common(NEW @ TURN)
    same = (neighbours(there)[:, :, None] == neighbours(NEW)[:, None, :]).any(axis=2)
    assert same.mean() > 0.99
    assert not np.allclose(NEW @ TURN, NEW, atol=0.1)  # there was something to bring back


@pytest.mark.parametrize(
    ("lossy", "least"),
    [
        (unit((Z @ TURN)[:, : D // 3]), 0.1),
        (unit(Z @ TURN + 0.8 * unit(np.random.default_rng(5).standard_normal((N, D)))), 0.1),
    ],
    ids=["cut", "noisy"],
)
def test_what_is_lost_is_in_the_error(lossy, least):
    assert least < mapped(public(lossy), REFERENCE).error < 1.0


def test_the_error_tells_what_happens_to_new_texts():
    """Held-out, not fitted: texts that no map has seen are missed by about as much."""
    cut = mapped(public(unit((Z @ TURN)[:, :10])), REFERENCE)
    there = missed(NEW, cut.common(unit((NEW @ TURN)[:, :10])))
    assert there == pytest.approx(cut.error, rel=0.25)


def test_an_encoder_that_has_nothing_in_common_explains_nothing():
    noise = unit(np.random.default_rng(8).standard_normal((N, D)))
    assert mapped(public(noise), REFERENCE).error > 0.9


def test_the_held_out_sentences_do_not_choose_their_own_map():
    """With more coordinates than sentences a map fits everything it has seen, and nothing else."""
    noise = np.random.default_rng(9).standard_normal((60, 80))
    _, error = fit_map(noise, Z[:60])
    assert error > 0.5


def test_the_reference_encoder_needs_no_map():
    found = mapped(REFERENCE, REFERENCE)
    assert (found.into, found.back, found.error) == (None, None, 0.0)
    assert found.common(NEW) is NEW
    assert found.own(NEW) is NEW
    assert identity(REFERENCE).common(NEW) is NEW


def test_mapped_texts_have_unit_length_and_the_dimension_of_the_reference():
    found = mapped(public(unit((Z @ TURN)[:, :10])), REFERENCE)
    there = found.common(unit((NEW @ TURN)[:, :10]).reshape(2, 100, 10))
    assert there.shape == (2, 100, D)
    np.testing.assert_allclose(np.linalg.norm(there, axis=-1), 1.0)
    assert found.own(NEW).shape == (200, 10)


def test_missed_is_nothing_for_itself_and_everything_for_the_mean():
    assert missed(Z, Z) == 0.0
    assert missed(Z, np.broadcast_to(Z.mean(axis=0), Z.shape)) == pytest.approx(1.0)


def test_numbers_taken_for_another_encoders_miss_nearly_everything():
    wrong = untranslated(public(Z @ TURN), REFERENCE)
    assert wrong.error > 0.9
    assert (wrong.encoder, wrong.corpus) == ("other", corpus_digest(SENTENCES))
    np.testing.assert_allclose(wrong.common(NEW @ TURN), NEW @ TURN)
    wider = untranslated(public(unit(np.hstack([Z, Z]))), REFERENCE)
    np.testing.assert_allclose(wider.common(unit(np.hstack([NEW, NEW]))), NEW)
    assert wider.own(NEW).shape == (200, 2 * D)
    assert untranslated(REFERENCE, REFERENCE).into is None


# -- relative --------------------------------------------------------------------------------------


@given(seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_relative_coordinates_do_not_see_a_rotation(seed):
    anchors = np.arange(0, N, 12)
    turn = rotation(seed)
    one, other = relative(REFERENCE, anchors), relative(public(Z @ turn), anchors)
    np.testing.assert_allclose(other.common(NEW @ turn), one.common(NEW), atol=1e-9)
    assert other.error == pytest.approx(one.error, abs=1e-9)


def test_relative_coordinates_see_neither_place_nor_scale_of_a_space():
    anchors = np.arange(0, N, 12)
    one = relative(REFERENCE, anchors)
    other = relative(public(3.0 * Z + 0.7), anchors)
    np.testing.assert_allclose(other.common(3.0 * NEW + 0.7), one.common(NEW), atol=1e-9)


def test_relative_coordinates_are_one_for_each_anchor_and_standardised():
    anchors = np.array([7, 3, 200])
    found = relative(REFERENCE, anchors)
    assert found.common(NEW).shape == (200, 3)
    before_unit_length = Z @ found.into.matrix + found.into.offset
    np.testing.assert_allclose(before_unit_length.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(before_unit_length.std(axis=0), 1.0)
    middle = Z - Z.mean(axis=0)
    for place, anchor in enumerate(anchors):
        likeness = np.corrcoef(middle @ middle[anchor], before_unit_length[:, place])[0, 1]
        assert likeness == pytest.approx(1.0)


def test_more_anchors_lose_less_and_as_many_as_coordinates_little():
    errors = [relative(REFERENCE, np.arange(m)).error for m in (4, 12, 4 * D)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.1


# -- the corpus ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        SENTENCES[:-1],
        (SENTENCES[1], SENTENCES[0], *SENTENCES[2:]),
        (SENTENCES[0] + ".", *SENTENCES[1:]),
        (SENTENCES[0].upper(), *SENTENCES[1:]),
        (SENTENCES[0] + SENTENCES[1], *SENTENCES[2:]),
    ],
    ids=["missing", "order", "a full stop", "capitals", "two in one"],
)
def test_other_sentences_are_refused(changed):
    other = public(Z[: len(changed)], sentences=changed)
    for attempt in (
        lambda: check_same_corpus([REFERENCE, other]),
        lambda: mapped(other, REFERENCE),
        lambda: check_same_corpus([REFERENCE, REFERENCE, other]),
    ):
        with pytest.raises(DataError, match=r"differ from those of .* byte for byte"):
            attempt()


def test_as_many_vectors_as_sentences_are_needed():
    with pytest.raises(DataError, match="499"):
        mapped(public(Z[:-1]), REFERENCE)


def test_equal_sentences_have_equal_names():
    assert corpus_digest(list(SENTENCES)) == corpus_digest(SENTENCES)
    check_same_corpus([REFERENCE, public(Z @ TURN)])


@given(st.lists(st.text(max_size=3), max_size=3), st.lists(st.text(max_size=3), max_size=3))
@settings(max_examples=30)
def test_different_corpora_have_different_names(one, other):
    assert (corpus_digest(one) == corpus_digest(other)) == (one == other)


# -- what enters a map -----------------------------------------------------------------------------


def test_nothing_but_public_embeddings_enters_a_map():
    """The types are the promise: everything that makes a translation takes public things alone."""
    allowed = {PublicEmbeddings, IntArray, str}
    makers = 0
    for name in translation.__all__:
        each = getattr(translation, name)
        if not inspect.isfunction(each):
            continue
        hints = typing.get_type_hints(each)
        if hints.pop("return") is Translation:
            makers += 1
            assert set(hints.values()) <= allowed, name
    assert makers >= 3
    assert typing.get_type_hints(PublicEmbeddings)["z"] == FloatArray
    assert "PUBLIC" in PublicEmbeddings.__doc__


def test_a_translation_follows_from_the_public_sentences_alone():
    one, other = (mapped(public(Z @ TURN), REFERENCE) for _ in range(2))
    np.testing.assert_array_equal(one.into.matrix, other.into.matrix)
    np.testing.assert_array_equal(one.into.offset, other.into.offset)
    assert isinstance(one.into, Affine)


@pytest.mark.parametrize(
    ("noise", "best"), [(0.0, 1e-4), (0.008, 1e-3), (0.025, 1e-2), (0.1, 1e-1), (1.0, 1.0)]
)
def test_a_map_is_the_ridge_regression_that_held_out_sentences_prefer(noise, best):
    """Every fifth sentence is held out; scikit-learn's ridge, as a share of the mean variance."""
    rng = np.random.default_rng(5)
    source = texts(1, 60) @ TURN + noise * rng.standard_normal((60, D))
    target = texts(1, 60)
    held = np.arange(60) % 5 == 0

    def fitted(share: float, rows: np.ndarray) -> Ridge:
        variance = np.square(source[rows] - source[rows].mean(axis=0)).sum() / D
        return Ridge(alpha=share * variance).fit(source[rows], target[rows])

    shares = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    errors = [
        missed(target[held], unit(fitted(share, ~held).predict(source[held]))) for share in shares
    ]
    assert shares[int(np.argmin(errors))] == best
    found, error = fit_map(source, target)
    assert error == pytest.approx(min(errors))
    expected = unit(fitted(best, np.ones(60, dtype=bool)).predict(source))
    np.testing.assert_allclose(found(source), expected, atol=1e-9)


# -- what is kept of a translation -----------------------------------------------------------------


def test_the_error_of_untranslated_numbers_is_the_missed_variance_of_the_reference():
    """As scikit-learn counts it: about the reference's own mean, not about what was sent."""
    narrow = public(unit(0.1 * np.random.default_rng(8).standard_normal((N, D)) + 1.0))
    wrong = untranslated(narrow, REFERENCE)
    explained = r2_score(Z, narrow.z, multioutput="variance_weighted")
    assert wrong.error == pytest.approx(1.0 - explained)


def test_a_map_is_read_back_by_the_name_of_its_encoder():
    kept = {"small matrix": np.eye(3, 2), "small offset": np.ones(2), "other offset": np.zeros(2)}
    found = translation_from(kept, "small")
    np.testing.assert_array_equal(found.matrix, kept["small matrix"])
    np.testing.assert_array_equal(found.offset, kept["small offset"])


def test_an_encoder_without_a_map_has_the_common_coordinates_itself():
    assert translation_from({"small matrix": np.eye(3), "small offset": np.ones(3)}, "big") is None


def test_a_text_at_the_origin_of_common_coordinates_stays_finite():
    """There is no direction to bring to unit length."""
    origin = Affine(np.eye(2), np.zeros(2))(np.zeros((1, 2)))
    np.testing.assert_array_equal(origin, [[0.0, 0.0]])


def test_every_text_has_unit_length_whatever_the_shape_of_the_batch():
    turned = Affine(TURN, np.ones(D))
    batch = turned(NEW.reshape(2, 100, D))
    np.testing.assert_allclose(np.linalg.norm(batch, axis=-1), 1.0)
    np.testing.assert_allclose(batch.reshape(200, D), turned(NEW))


def test_a_corpus_keeps_its_name_from_version_to_version():
    """Nodes of a federation compare it, and kept runs carry it."""
    assert corpus_digest(["My head hurts.", "", "Ärzte"]) == "bbe4da50e0d5897e"
    assert corpus_digest([]) == "e3b0c44298fc1c14"  # SHA-256 of nothing


@pytest.mark.parametrize("length", [1e-6, 0.1, 30.0])
def test_a_mapped_text_has_unit_length_however_short_the_map_makes_it(length):
    there = Affine(length * np.eye(2), np.zeros(2))(np.array([[0.6, 0.8]]))
    np.testing.assert_allclose(there, [[0.6, 0.8]])
