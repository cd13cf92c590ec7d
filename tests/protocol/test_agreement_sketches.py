"""Sketches of the public space: another machine's last bits pass, other public things do not."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cslr.privacy.ledger.records import agree, differences, plain
from cslr.protocol.agreement import Agreement, _probes, modes_facts, space_facts
from cslr.protocol.messages import with_bound
from cslr.protocol.public_space import build_space, declare_modes
from cslr.seeding import Seeds

ERROR = 1e-6
"""In every number of a public embedding: more than two machines differ by."""


def agreed(world, public=None, texts=None, seed=13, encoder="synthetic", dimension=8, **more):
    """The agreement of a machine that embeds the public things as given."""
    public = world.public if public is None else public
    texts = world.texts if texts is None else texts
    space = build_space(
        public,
        encoder,
        dimension,
        24,
        Seeds(seed).at("anchors"),
        more.pop("anchor_kind", "sentences"),
    )
    count, prior = more.pop("sub_modes", 1), more.pop("prior", "labels")
    modes = declare_modes(space, public, texts, count, prior, Seeds(seed).at("prototypes"))
    base = world.agreement(**more)
    found = replace(base, space=space, modes=modes, seed=seed)
    return with_bound(found, public, labels_per_task=2)


def facts_of(agreement: Agreement) -> dict:
    return plain(agreement.public_facts())


def noise(shape, seed):
    return ERROR * np.random.default_rng(seed).choice([-1.0, 1.0], size=shape)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"prior": "none"},
        {"sub_modes": 2},
        {"dimension": 24},
        {"anchor_kind": "synthetic"},
        {"second_moments": "diagonal"},
    ],
    ids=str,
)
def test_two_machines_whose_embeddings_differ_by_a_millionth_have_the_same_plan(world, more):
    here = facts_of(agreed(world, **more))
    for seed in range(3):
        public = world.public + noise(world.public.shape, seed)
        texts = world.texts + noise(world.texts.shape, seed)
        there = facts_of(agreed(world, public, texts, **more))
        assert agree(here, there), differences(here, there)
        assert here != there


def test_an_error_that_is_the_same_in_every_embedding_passes_too(world):
    public = world.public + noise(world.public.shape[1], seed=5)
    assert agree(facts_of(agreed(world)), facts_of(agreed(world, public)))


def test_one_machine_writes_the_same_bits(world):
    one, two = (json.dumps(facts_of(agreed(world))) for _ in range(2))
    assert one == two


@settings(max_examples=10, deadline=None)
@given(place=st.integers(0, 599), other=st.integers(0, 2**20))
def test_one_replaced_sentence_is_another_plan(world, place, other):
    public = world.public.copy()
    row = np.random.default_rng(other).standard_normal(public.shape[1])
    public[place] = row / np.linalg.norm(row)
    assert "space.centre" in differences(facts_of(agreed(world)), facts_of(agreed(world, public)))


def test_one_replaced_sentence_of_ten_thousand_moves_the_centre_beyond_its_tolerance():
    rng = np.random.default_rng(0)
    public = rng.standard_normal((10_000, 32)) * 0.97 ** np.arange(32)
    public /= np.linalg.norm(public, axis=1, keepdims=True)
    facts, changed = [], public.copy()
    changed[17] = public[4]  # a sentence that stands in the corpus twice
    for z in (public, public + noise(public.shape, 1), public + noise(32, 2), changed):
        space = build_space(z, "synthetic", 16, 100, Seeds(1).at("anchors"))
        facts.append(plain(space_facts(space)))
    same, *others = facts
    assert [agree(same, each) for each in others] == [True, True, False]
    assert "centre" in differences(same, others[-1])


@pytest.mark.parametrize("label", range(4))
def test_one_changed_label_text_is_another_plan(world, label):
    texts = world.texts.copy()
    texts[label] += 0.01 * np.random.default_rng(label).standard_normal(24) / np.sqrt(24)
    found = differences(facts_of(agreed(world)), facts_of(agreed(world, texts=texts)))
    assert f"prototypes.texts.{label}" in found


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 14}, "seed (13 -> 14)"),
        ({"encoder": "another"}, "space.encoder (synthetic -> another)"),
        ({"dimension": 7}, "dimension (8 -> 7)"),
        ({"sub_modes": 2}, "modes (4 -> 8)"),
        ({"prior": "none"}, "prototypes.texts"),
        ({"anchor_kind": "random"}, "space.anchors"),
        ({"second_moments": "diagonal"}, "second_moments"),
    ],
    ids=str,
)
def test_other_public_settings_are_named(world, change, named):
    assert named in differences(facts_of(agreed(world)), facts_of(agreed(world, **change)))


def test_another_corpus_is_another_plan(world):
    public = np.random.default_rng(3).permutation(world.public, axis=1)
    found = differences(facts_of(agreed(world)), facts_of(agreed(world, public)))
    assert "space.centre" in found
    assert "space.directions" in found


def test_the_same_sentences_in_another_order_are_another_plan(world):
    public = np.random.default_rng(3).permutation(world.public)
    found = differences(facts_of(agreed(world)), facts_of(agreed(world, public)))
    assert "space.anchors" in found
    assert "space.centre" not in found


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_another_bound_is_another_plan(world, factor):
    one = agreed(world)
    two = replace(one, bounds=tuple(factor * bound for bound in one.bounds))
    assert "bounds" in differences(facts_of(one), facts_of(two))


def test_neither_the_sign_of_a_direction_nor_a_turn_among_equal_ones_changes_a_sketch(world):
    space = world.space(dimension=24)
    equal = replace(space, between=np.where(np.arange(24) < 2, 0.1, space.between))
    cosine, sine = np.cos(0.7), np.sin(0.7)
    turn = np.eye(24)
    turn[:2, :2] = [[cosine, -sine], [sine, cosine]]
    turn[5, 5] = -1.0
    turned = replace(
        equal,
        basis=equal.basis @ turn,
        within=turn.T @ equal.within @ turn,
        anchors=equal.anchors @ turn,
    )
    one, two = plain(space_facts(equal)), plain(space_facts(turned))
    for name in ("centre", "spectrum", "directions", "shape", "anchors"):
        np.testing.assert_allclose(one[name]["values"], two[name]["values"], atol=1e-12)


def test_a_sketch_is_about_as_long_as_what_it_is_of():
    """Probes are ±1/√count, so that squared lengths are kept on average."""
    vectors = np.random.default_rng(0).standard_normal((400, 30))
    for count in (8, 64):
        probes = _probes("centre", count, 30)
        np.testing.assert_allclose(np.abs(probes), 1 / np.sqrt(count))
        lengths = np.square(vectors @ probes.T).sum(axis=1) / np.square(vectors).sum(axis=1)
        assert lengths.mean() == pytest.approx(1.0, abs=0.1)
    assert not np.array_equal(_probes("centre", 8, 30), _probes("texts", 8, 30))


@pytest.mark.parametrize(("angle", "noticed"), [(0.002, False), (0.1, True)])
def test_directions_turned_by_a_tenth_are_others_and_by_a_thousandth_the_same(
    world, angle, noticed
):
    space, turn = world.space(), np.eye(24)
    turn[[0, 0, 20, 20], [0, 20, 0, 20]] = (
        np.cos(angle),
        np.sin(angle),
        -np.sin(angle),
        np.cos(angle),
    )
    turned = replace(space, basis=space.basis @ turn)
    found = differences(plain(space_facts(space)), plain(space_facts(turned)))
    assert ("directions" in str(found)) is noticed
    assert ("shape" in str(found)) is noticed
    assert "centre" not in str(found)


@pytest.mark.parametrize(("moved", "noticed"), [(0.005, False), (0.1, True)])
def test_prototypes_moved_by_a_tenth_are_others_and_by_little_the_same(world, moved, noticed):
    space, modes = world.space(), world.modes(world.space())
    means = modes.prototypes.mean + moved * np.eye(8)[0]
    other = replace(modes, prototypes=replace(modes.prototypes, mean=means))
    found = differences(plain(modes_facts(modes, space)), plain(modes_facts(other, space)))
    assert bool(found) is noticed
