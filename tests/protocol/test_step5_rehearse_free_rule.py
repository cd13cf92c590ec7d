"""A head is mixed with the free rule if noise is heavy, and not changed if there is none."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cslr.protocol.head import (
    HeadSettings,
    initial_head,
    linear_head,
    mixed,
    relative_spread,
    rule_of,
    zero_shot_head,
)
from cslr.protocol.round import Session
from cslr.protocol.step5_rehearse import (
    CLEAR_HALF,
    TRUST_HALF,
    WORDS_TRUST_HALF,
    Rehearsal,
    free_rule,
    share_of_free,
    share_of_zero_shot,
)
from cslr.seeding import Seeds

ALL = np.ones(4, dtype=bool)


def beside_texts(head, texts, z, known, share):
    zero_shot = zero_shot_head(texts)
    return mixed(head, zero_shot, share, relative_spread(head, zero_shot, z, known))


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture
def head(rng):
    return initial_head(24, 4, HeadSettings(16), rng)


def told(trust, known=True, clarity=1.0):
    """What is read of a replay."""
    trust = np.atleast_1d(trust)
    return SimpleNamespace(trust=trust, known=np.full(len(trust), known), clarity=clarity)


def test_with_the_whole_share_a_head_is_the_zero_shot_rule(head, rng):
    texts, z = rng.standard_normal((4, 24)), rng.standard_normal((50, 24))
    scores = beside_texts(head, texts, z, ALL, 1.0).scores(z)
    free = z @ texts.T
    np.testing.assert_array_equal(np.argsort(scores, axis=1), np.argsort(free, axis=1))
    np.testing.assert_allclose(scores / free, (scores / free)[0, 0], rtol=1e-4)


def test_two_linear_rules_mixed_are_one_of_the_same_width(rng):
    """A free rule is mixed of two, and adds two units a label to a head, not four."""
    one, two = (linear_head(rng.standard_normal((4, 24)), rng.standard_normal(4)) for _ in range(2))
    z = rng.standard_normal((50, 24))
    both = mixed(one, two, 0.3, relative_spread(one, two, z, ALL))
    small = linear_head(*rule_of(both))
    assert small.weights1.shape == (24, 8)
    np.testing.assert_allclose(small.scores(z), both.scores(z), atol=1e-4)


def test_the_rule_of_a_head_has_the_bias_of_its_outputs(rng):
    head = linear_head(rng.standard_normal((4, 24)), rng.standard_normal(4))
    head = replace(head, bias2=rng.standard_normal(4).astype(np.float32))
    z = rng.standard_normal((50, 24))
    weights, bias = rule_of(head)
    np.testing.assert_allclose(z @ weights.T + bias, head.scores(z), atol=1e-4)


def test_without_a_share_a_head_answers_as_before(head, rng):
    texts, z = rng.standard_normal((4, 24)), rng.standard_normal((50, 24))
    found = beside_texts(head, texts, z, ALL, 0.0).scores(z)
    np.testing.assert_allclose(found, head.scores(z), atol=1e-6)


def test_half_a_share_counts_both_rules_alike(head, rng):
    texts, z = rng.standard_normal((4, 24)), rng.standard_normal((500, 24))
    parts = [beside_texts(head, texts, z, ALL, share).scores(z) for share in (0.0, 0.5, 1.0)]
    np.testing.assert_allclose(parts[1], (parts[0] + parts[2]) / 2, atol=1e-5)
    wide = [np.var(each - each.mean(axis=1, keepdims=True)) for each in (parts[0], parts[2])]
    assert wide[0] == pytest.approx(wide[1], rel=1e-4)


def test_labels_of_which_nothing_was_heard_do_not_set_the_scale(head, rng):
    texts, z = rng.standard_normal((4, 24)), rng.standard_normal((50, 24))
    known = np.array([True, True, True, False])
    far = replace(head, bias2=head.bias2 + np.array([0, 0, 0, 1e6], dtype=np.float32))
    found = beside_texts(far, texts, z, known, 1.0).scores(z)
    np.testing.assert_allclose(
        found, beside_texts(head, texts, z, known, 1.0).scores(z), rtol=1e-4, atol=1e-6
    )


def test_the_share_falls_from_one_as_modes_become_known():
    assert share_of_free(told(0.0), TRUST_HALF) == 1.0
    assert share_of_free(told(0.9, known=False), TRUST_HALF) == 1.0
    assert share_of_free(told([0.0, 2 * TRUST_HALF]), TRUST_HALF) == pytest.approx(0.5)
    assert share_of_free(told(1.0), TRUST_HALF) < 0.01


def test_labels_that_are_hard_to_tell_apart_need_more_trust():
    assert share_of_free(told(2 * TRUST_HALF, clarity=0.5), TRUST_HALF) == pytest.approx(0.5)
    assert share_of_free(told(1.0, clarity=0.0), TRUST_HALF) == 1.0


def test_zero_shot_counts_less_the_clearer_sentences_are_about_labels():
    assert share_of_zero_shot(0.0) == 1.0
    assert share_of_zero_shot(CLEAR_HALF) == 0.5
    assert share_of_zero_shot(2 * CLEAR_HALF) < 0.1


@pytest.fixture
def before(world):
    """A session without releases, and how its head is trained."""
    settings = HeadSettings(16)
    start = initial_head(world.texts.shape[1], 4, settings, np.random.default_rng(0))
    session = Session(world.agreement(), None, None, None)
    return session, Rehearsal(start, settings, 60, 5, Seeds(1))


def free_rule_of(before, world, share):
    session, how = before
    agreement = session.agreement
    return free_rule(session.replay(), agreement.space, agreement.family, how, world.texts, share)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_scores_are_mixed_as_they_are_unless_a_factor_is_given(head, rng, share):
    other, z = zero_shot_head(rng.standard_normal((4, 24))), rng.standard_normal((50, 24))
    for factor in (1.0, 2.5):
        found = mixed(head, other, share, factor).scores(z)
        wanted = (1 - share) * head.scores(z) + share * factor * other.scores(z)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_words_trust_releases_sooner_than_texts_do():
    """The zero-shot rule of words is much worse than what even few clients know."""
    shares = [share_of_free(told(0.1), half) for half in (WORDS_TRUST_HALF, TRUST_HALF)]
    assert shares[0] < 0.2 < 0.7 < shares[1]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_before_any_release_the_head_is_the_free_rule(world, before, share):
    """Without a release the head is the free rule."""
    session, how = before
    rule = free_rule_of(before, world, share)
    scores = session.learn(replace(how, free=rule)).scores(world.test_z)
    free = rule.scores(world.test_z)
    np.testing.assert_array_equal(scores.argmax(axis=1), free.argmax(axis=1))


def test_with_the_whole_share_the_free_rule_is_zero_shot(world, before):
    found = free_rule_of(before, world, 1.0).scores(world.test_z)
    free = world.test_z @ world.texts.T
    np.testing.assert_array_equal(found.argmax(axis=1), free.argmax(axis=1))


def test_without_a_share_the_free_rule_is_the_label_prior(world, before):
    session, how = before
    found = free_rule_of(before, world, 0.0).scores(world.test_z)
    prior = session.learn(replace(how, passes=0)).scores(world.test_z)
    np.testing.assert_array_equal(found.argmax(axis=1), prior.argmax(axis=1))


def test_a_head_too_narrow_for_the_rule_of_the_prior_has_zero_shot(world, before):
    session, how = before
    settings = HeadSettings(4)
    narrow = initial_head(world.texts.shape[1], 4, settings, np.random.default_rng(0))
    found = free_rule_of((session, replace(how, start=narrow)), world, 0.0).scores(world.test_z)
    np.testing.assert_allclose(found, world.test_z @ world.texts.T, atol=1e-5)
