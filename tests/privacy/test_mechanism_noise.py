"""Discrete Gaussian noise against its exact law, and shown to notice when it is a little wrong."""

from __future__ import annotations

import hashlib
import hmac
import math
from functools import partial

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from cslr.privacy import mechanism
from cslr.privacy.ledger.records import key_for_sum, tag_for_sum
from cslr.privacy.mechanism import KeyStream, discrete_gaussian

KEY = bytes(range(32))
DRAWS = 10**6
FINE = 2.0**21  # σ = 2 on the default grid
SUMS = arrays(np.int64, st.integers(0, 6), elements=st.integers(-(2**62), 2**62))


def draw(sigma: float, size: int, name: str = "") -> np.ndarray:
    key = key_for_sum(KEY, np.frombuffer(f"{sigma}{name}".encode(), np.uint8).astype(np.int64))
    return discrete_gaussian(sigma, size, KeyStream(key))


@pytest.fixture(scope="module")
def fine() -> np.ndarray:
    return draw(FINE, DRAWS)


def exact_p_value(draws: np.ndarray, sigma: float) -> float:
    """χ² of the counts against P[x] ∝ exp(−x² / 2σ²), rare values pooled into two tails."""
    reach = math.ceil(12 * sigma)
    support = np.arange(-reach, reach + 1)
    law = np.exp(-(support**2) / (2 * sigma**2))
    expected = len(draws) * law / law.sum()
    inside = np.abs(support) <= np.abs(support[expected >= 50]).max()
    edge = support[inside].max()
    counts = np.bincount(draws[np.abs(draws) <= edge] + edge, minlength=2 * edge + 1)
    seen = [np.sum(draws < -edge), *counts, np.sum(draws > edge)]
    tail = expected[~inside].sum() / 2
    return float(stats.chisquare(seen, [tail, *expected[inside], tail], sum_check=False).pvalue)


def scale_p_value(draws: np.ndarray, sigma: float) -> float:
    """Two-sided: Σ x² / σ² is χ² with as many degrees of freedom as draws, once σ is large."""
    lower = stats.chi2.cdf(np.sum((draws / sigma) ** 2), len(draws))
    return 2 * float(min(lower, 1 - lower))


@pytest.mark.parametrize("sigma", [1.0, 1.5, 2.0, 3.3, 10.0, 47.7])
def test_every_value_has_its_exact_probability(sigma):
    assert exact_p_value(draw(sigma, DRAWS), sigma) > 1e-3


@pytest.mark.parametrize("sigma", [1.0, 1.5, 3.3])
@pytest.mark.parametrize("error", [0.99, 1.01])
def test_one_percent_of_error_would_be_noticed(sigma, error):
    assert exact_p_value(draw(sigma, DRAWS), sigma * error) < 1e-6


def test_the_scale_is_right_to_half_a_percent(fine):
    assert fine.std() == pytest.approx(FINE, rel=0.005)
    assert scale_p_value(fine, FINE) > 1e-3


@pytest.mark.parametrize("error", [0.995, 1.005])
def test_half_a_percent_more_or_less_noise_would_be_noticed(fine, error):
    assert scale_p_value(fine, FINE * error) < 1e-6


def test_the_shape_is_gaussian(fine):
    assert stats.kstest(fine / FINE, "norm").pvalue > 1e-3


@pytest.mark.parametrize("error", [0.95, 1.05])
def test_the_shape_test_rejects_five_percent_in_either_direction(fine, error):
    assert stats.kstest(fine[:200_000] / (FINE * error), "norm").pvalue < 1e-6


def test_a_laplace_of_the_same_scale_would_not_pass_for_gaussian():
    laplace = np.random.default_rng(0).laplace(scale=math.sqrt(0.5), size=10_000)
    assert stats.kstest(laplace, "norm").pvalue < 1e-6


def test_the_tails_are_there(fine):
    """A rejection sampler may lose them unseen by χ² and KS."""
    beyond = np.sum(np.abs(fine) > 4 * FINE)
    assert stats.binomtest(int(beyond), len(fine), 2 * stats.norm.sf(4)).pvalue > 1e-3


def test_coordinates_are_centred_and_independent(fine):
    bound = 4 / math.sqrt(len(fine))
    z = fine / FINE
    assert abs(z.mean()) < bound
    assert abs(np.mean(np.sign(z))) < bound
    assert abs(np.mean(z[1:] * z[:-1])) < bound
    assert abs(np.mean(np.abs(z[1:]) * np.abs(z[:-1])) - 2 / math.pi) < bound


@pytest.mark.parametrize("sigma", [2.0**bits * bias for bits in (12, 30, 40) for bias in (0.71, 1)])
def test_the_scale_holds_at_any_distance_from_a_power_of_two(sigma):
    """The proposal's scale is a power of two; σ need not be."""
    assert scale_p_value(draw(sigma, 200_000), sigma) > 1e-3


@pytest.mark.parametrize("size", [0, 1, 2, 1000])
def test_as_many_integers_as_asked_for_are_drawn(size):
    drawn = draw(5.0, size)
    assert drawn.shape == (size,)
    assert drawn.dtype == np.int64


@pytest.mark.parametrize("sigma", [0.0, 0.999, -3.0, np.nan, np.inf, 2.0**41])
def test_a_wrong_sigma_is_refused(sigma):
    with pytest.raises(ValueError, match="sigma must be at"):
        discrete_gaussian(sigma, 3, KeyStream(KEY))


def test_the_same_key_gives_the_same_noise():
    first = discrete_gaussian(FINE, 500, KeyStream(KEY))
    assert first.tolist() == discrete_gaussian(FINE, 500, KeyStream(KEY)).tolist()


def test_the_noise_of_a_key_never_changes():
    """A release that a crash interrupted gets its noise again even from a later version."""
    drawn = discrete_gaussian(1000.0, 6, KeyStream(KEY))
    assert drawn.tolist() == [1268, 189, 345, -313, -261, -374]


@pytest.mark.parametrize("counts", [(0, 1), (3, 5), (mechanism.BLOCK + 7, 2 * mechanism.BLOCK, 1)])
def test_words_are_those_of_the_cipher_however_they_are_asked_for(counts):
    key = bytes(range(32))
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    stream = KeyStream(key)
    drawn = np.concatenate([stream.words(count) for count in counts])
    assert drawn.astype("<u8").tobytes() == cipher.update(bytes(8 * sum(counts)))


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_keys_and_tags_are_codes_of_the_purpose_the_length_and_the_sum(size):
    key, total = bytes(range(32)), np.arange(size, dtype=np.int64) - 3
    for purpose, found in (
        (b"noise\0", key_for_sum(key, total).hex()),
        (b"tag\0", tag_for_sum(key, total)),
    ):
        content = purpose + size.to_bytes(8, "little") + total.astype("<i8").tobytes()
        assert found == hmac.new(key, content, hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    ("sigma", "digest"),
    [
        (1.0, "8d247da75a59da4b"),
        (1.45, "762ba8745c39b6ca"),
        (2.0, "fb3da2d1e01bc298"),
        (47.7, "8b13c1968c7aa168"),
        (1000.0, "d6cef28cd9b9052c"),
        (FINE, "6a4565da0cdd2297"),
        (1.45 * 2**20, "23eaf9ac104a6617"),
        (2.0**40, "22fbb1f83c8873e1"),
    ],
)
def test_many_draws_of_a_key_never_change(sigma, digest):
    """Drawn before coins were decided in single precision first."""
    stream = KeyStream(KEY)
    drawn = [discrete_gaussian(sigma, size, stream) for size in (50_000, 7)]
    found = hashlib.sha256(np.concatenate(drawn).astype("<i8").tobytes()).hexdigest()
    assert found[:16] == digest


class ChosenWords:
    """A stream of words that were chosen."""

    def __init__(self, words: np.ndarray) -> None:
        self.left = words

    def words(self, count: int) -> np.ndarray:
        now, self.left = self.left[:count], self.left[count:]
        return now


@pytest.mark.parametrize("sigma", [1.0, 1.45, 5.5, 1000.0, FINE, 2.0**40])
def test_a_coin_falls_as_its_exact_probability_says_however_close_its_word(sigma):
    """Words about the probability, from one step away to beyond what single precision tells."""
    rng = np.random.default_rng(4)
    bits = max(1, round(math.log2(sigma)))
    words = rng.integers(2**64, size=20_000, dtype=np.uint64)
    reach = min(45 << bits, 2**46)
    proposals = rng.integers(-reach, reach, size=20_000)
    proposals[::2] = rng.normal(0, sigma, 10_000).astype(np.int64)
    kinds = (
        (partial(mechanism._survival, bits), words),
        (
            partial(mechanism._acceptance, sigma, bits),
            proposals,
        ),
    )
    for probability, numbers in kinds:
        exact = probability(numbers, np.float64)
        threshold = np.minimum(exact * 2.0**64, 2.0**64 - 2048).astype(np.uint64).astype(object)
        away = rng.choice([-1, 0, 1, 2**20, -(2**44), 2**45, -(2**47), 2**49, -(2**52)], len(exact))
        chosen = np.clip(threshold + away.astype(object), 0, 2**64 - 1).astype(np.uint64)
        found = mechanism._coins(probability, numbers, ChosenWords(chosen))
        np.testing.assert_array_equal(found, mechanism._happens(exact, chosen))
        assert found.any()
        assert not found.all()


@pytest.mark.parametrize("sigma", [1.0, 1.45, 5.5, 1000.0, FINE, 1.4 * FINE, 2.0**40])
def test_single_precision_is_far_closer_than_what_it_decides(sigma):
    bits = max(1, round(math.log2(sigma)))
    words = np.linspace(0, 2**64 - 2**12, 100_000).astype(np.uint64)
    proposals = np.linspace(-(45 << bits), 45 << bits, 100_000).astype(np.int64)
    kinds = (
        (partial(mechanism._survival, bits), words),
        (
            partial(mechanism._acceptance, sigma, bits),
            proposals,
        ),
    )
    for probability, numbers in kinds:
        off = probability(numbers, np.float32) - probability(numbers, np.float64)
        assert np.abs(off).max() < 2.0**-19 == mechanism.CLOSE / 8


def test_the_geometric_part_is_looked_up_as_it_is_counted():
    edges = mechanism._GEOMETRIC[:, None] + np.array([-1, 0, 1]).astype(np.uint64)
    many = np.random.default_rng(5).integers(2**64, size=100_000, dtype=np.uint64)
    words = np.concatenate([edges.ravel(), many >> np.uint64(20), many])
    above = (mechanism._GEOMETRIC[:, None] > words).sum(axis=0)
    np.testing.assert_array_equal(mechanism._geometric(words), above)


@settings(deadline=None)
@given(SUMS)
def test_the_same_sum_has_the_same_key_and_tag(total):
    assert key_for_sum(KEY, total) == key_for_sum(KEY, total.copy())
    assert tag_for_sum(KEY, total) == tag_for_sum(KEY, total.copy())


@settings(deadline=None)
@given(SUMS, SUMS)
def test_different_sums_have_different_keys_and_tags(one, other):
    same = one.tolist() == other.tolist()
    assert (key_for_sum(KEY, one) == key_for_sum(KEY, other)) is same
    assert (tag_for_sum(KEY, one) == tag_for_sum(KEY, other)) is same


def test_one_step_in_one_coordinate_is_another_noise_altogether():
    total = np.zeros(20_000, dtype=np.int64)
    moved = total.copy()
    moved[7] = 1
    first, second = (
        discrete_gaussian(FINE, len(total), KeyStream(key_for_sum(KEY, each)))
        for each in (total, moved)
    )
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / math.sqrt(len(total))


def test_the_tag_does_not_give_the_key_away():
    total = np.array([1, 2, 3])
    assert bytes.fromhex(tag_for_sum(KEY, total)) != key_for_sum(KEY, total)
    assert tag_for_sum(KEY, total) != tag_for_sum(bytes(32), total)


def test_the_stream_is_aes_256_in_counter_mode():
    """NIST: AES-256 of the zero block under the zero key."""
    block = np.array(KeyStream(bytes(32)).words(2), dtype="<u8").tobytes()
    assert block.hex() == "dc95c078a2408989ad48a21492842087"


def test_the_stream_goes_on_where_it_stopped():
    stream, whole = KeyStream(KEY), KeyStream(KEY).words(9).tolist()
    parts = [stream.words(count).tolist() for count in (0, 4, 5)]
    assert parts == [[], whole[:4], whole[4:]]


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_key_of_another_length_is_refused(length):
    with pytest.raises(ValueError, match="32 bytes"):
        KeyStream(bytes(length))
