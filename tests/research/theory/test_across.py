"""Signatures name candidates across spaces of different dimension; coordinates cannot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cslr.errors import ConfigError
from cslr.numerics.gaussian import Gaussians
from cslr.numerics.mixture import Mixture
from cslr.protocol.public_space import build_space
from cslr.protocol.step1_list import ListLearner
from cslr.protocol.step2_sign import contrasts, signatures
from cslr.research.theory.across import Side, alignment_across, match_across, prototypes_of
from cslr.seeding import Seeds

LATENT, KINDS, M = 10, 4, 60
WIDE, NARROW = 40, 24
BY_COORDINATES = ("nearest-mean", "hungarian", "optimal-transport")
LEARNER = ListLearner(size=4)


def unit(z: np.ndarray) -> np.ndarray:
    return z / np.linalg.norm(z, axis=-1, keepdims=True)


def encoded(meaning: np.ndarray, width: int, seed: int) -> np.ndarray:
    """Another width, bent, stretched and noisy: what a text means is all that is kept."""
    rng = np.random.default_rng(seed)
    first = rng.standard_normal((LATENT, 3 * width)) / np.sqrt(LATENT)
    second = rng.standard_normal((3 * width, width)) * np.linspace(2.0, 0.5, width)
    noise = 0.3 * rng.standard_normal((len(meaning), width))
    return unit(np.tanh(1.2 * meaning @ first) @ second / np.sqrt(3 * width) + noise)


CENTRES = 1.6 * np.random.default_rng(0).standard_normal((20, LATENT))


def meanings(kinds: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return CENTRES[kinds] + 0.5 * rng.standard_normal((len(kinds), LATENT))


def side(width: int, seed: int, rows: int = 600, clients: int = 8) -> Side:
    """Clients that run one encoder, with texts of their own, of four true modes."""
    rng = np.random.default_rng(seed)
    public = encoded(meanings(np.random.default_rng(1).integers(20, size=800), 2), width, seed)
    kinds = rng.integers(KINDS, size=rows)
    z = encoded(meanings(kinds, seed), width, seed)
    space = build_space(public, f"{width} wide", width, M, Seeds(5).at("anchors"))
    return Side(space, z, kinds, rng.integers(clients, size=rows))


@pytest.fixture(scope="module")
def sides() -> tuple[Side, Side]:
    return side(WIDE, 21), side(NARROW, 22)


def test_the_same_seed_takes_the_same_sentences_as_anchors(sides):
    """Nobody tells the other which ones: distances among anchors show that they agree."""
    wide, narrow = (each.space.anchors for each in sides)
    assert (wide.shape, narrow.shape) == ((M, WIDE), (M, NARROW))
    gaps = [np.linalg.norm(a[:, None] - a, axis=-1).ravel() for a in (wide, narrow)]
    assert np.corrcoef(*gaps)[0, 1] > 0.7


@pytest.mark.parametrize("back", [False, True], ids=["wide to narrow", "narrow to wide"])
def test_signatures_name_lists_of_another_encoder_without_any_map(sides, back):
    own, theirs = sides[::-1] if back else sides
    assert alignment_across(own, theirs, LEARNER, "signature", Seeds(1)) > 0.85


def test_random_names_are_as_good_as_chance(sides):
    found = alignment_across(*sides, LEARNER, "random", Seeds(1))
    assert found == pytest.approx(1 / KINDS, abs=0.2)


@pytest.mark.parametrize("matcher", BY_COORDINATES)
def test_coordinates_of_different_number_are_refused_with_the_reason(sides, matcher):
    with pytest.raises(ConfigError, match="40 of them, 24 wide 24: there is no distance") as raised:
        alignment_across(*sides, LEARNER, matcher, Seeds(1))
    for word in (matcher, "by signature", "replay.coordinates=mapped or relative"):
        assert word in str(raised.value)


@pytest.mark.parametrize("matcher", ["nearest-mean", "hungarian"])
def test_where_numbers_are_equal_by_chance_coordinates_guess_and_signatures_do_not(matcher):
    """Another encoder may have as many, and nobody can tell that they mean something else."""
    own, theirs = side(WIDE, 21), side(WIDE, 23)
    by_coordinates = alignment_across(own, theirs, LEARNER, matcher, Seeds(1))
    by_signature = alignment_across(own, theirs, LEARNER, "signature", Seeds(1))
    assert by_signature > 0.85
    assert by_coordinates < by_signature - 0.4


def test_what_an_encoder_finds_unusual_anyway_is_taken_off(sides):
    """Log densities share what is true of all candidates of a space, and of that space alone."""
    own, theirs = sides
    known = {}
    for name in ("plain", "contrasts"):
        signed = []
        for each in (own, theirs):
            found, space = prototypes_of(each), each.space
            public = Gaussians(np.zeros((1, space.dimension)), space.spread[None])
            plain = signatures(found, space.anchors)
            beyond = contrasts(found, public, space.anchors)
            signed.append(plain if name == "plain" else beyond)
        likeness = signed[0] @ signed[1].T / M  # correlations
        known[name] = np.diag(likeness).mean() - likeness[~np.eye(KINDS, dtype=bool)].mean()
    assert known["contrasts"] > known["plain"]
    assert known["contrasts"] > 0.5


def test_contrasts_are_standardised_and_forget_scale_and_place(sides):
    own = sides[0]
    found, space = prototypes_of(own), own.space
    public = Gaussians(np.zeros((1, space.dimension)), space.spread[None])
    signed = contrasts(found, public, space.anchors)
    assert signed.shape == (KINDS, M)
    np.testing.assert_allclose(signed.mean(axis=1), 0.0, atol=1e-9)
    np.testing.assert_allclose(signed.std(axis=1), 1.0)
    moved = [Gaussians(3.0 * each.mean + 0.5, 9.0 * each.covariance) for each in (found, public)]
    np.testing.assert_allclose(contrasts(*moved, 3.0 * space.anchors + 0.5), signed, atol=1e-7)


def test_a_candidate_that_is_the_public_itself_has_nothing_to_say(sides):
    space = sides[0].space
    public = Gaussians(np.zeros((1, space.dimension)), space.spread[None])
    np.testing.assert_array_equal(contrasts(public, public, space.anchors), np.zeros((1, M)))


def test_permuting_a_list_permutes_its_names(sides):
    own, theirs = sides
    found = prototypes_of(own)
    order = np.array([2, 0, 3, 1])
    lists = Mixture(
        np.full((1, KINDS), 0.25), Gaussians(found.mean[order][None], found.covariance[order][None])
    )
    ids = match_across(lists, own.space, prototypes_of(theirs), theirs.space)
    np.testing.assert_array_equal(ids, order[None])


def test_other_anchors_and_unknown_matchers_are_refused(sides):
    own, theirs = sides
    found = prototypes_of(own)
    lists = Mixture(np.full((1, KINDS), 0.25), Gaussians(found.mean[None], found.covariance[None]))
    fewer = replace(theirs.space, anchors=theirs.space.anchors[:-1])
    with pytest.raises(ValueError, match="59 anchors, own 60"):
        match_across(lists, own.space, prototypes_of(theirs), fewer)
    with pytest.raises(ConfigError, match="no matcher 'guess'"):
        match_across(lists, own.space, prototypes_of(theirs), theirs.space, "guess")
