"""The embedding cache: content-addressed, verified at every read, safe to interrupt."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import cslr.text.cache as module
from cslr.arrays import FloatArray
from cslr.errors import CacheCorrupted, ConfigError
from cslr.text.cache import EmbeddingCache, default_directory

ENCODER = "sha256:0123456789abcdef"


def vectors_of(texts: list[str], dimension: int = 4) -> FloatArray:
    """A vector that can be recomputed from its text."""
    return np.array([[len(text), *text.encode()[: dimension - 1]] for text in texts], np.float32)


def words(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number:04d}" for number in range(count)]


def segments_of(cache: EmbeddingCache) -> list[Path]:
    return sorted(cache.folder(ENCODER).glob("*.safetensors"))


def filled(directory: Path, texts: list[str]) -> EmbeddingCache:
    cache = EmbeddingCache(directory)
    cache.store(ENCODER, texts, vectors_of(texts))
    return cache


def test_an_empty_cache_knows_nothing_and_writes_nothing(tmp_path: Path) -> None:
    found, vectors = EmbeddingCache(tmp_path / "cache").lookup(ENCODER, ["one", "two"])
    assert not found.any()
    assert vectors.shape[0] == 0
    assert not (tmp_path / "cache").exists()


def test_looking_up_no_text_finds_none(tmp_path: Path) -> None:
    found, vectors = filled(tmp_path, ["one!"]).lookup(ENCODER, [])
    assert found.shape == (0,)
    assert vectors.shape == (0, 4)


def test_what_was_stored_is_found_in_the_order_asked(tmp_path: Path) -> None:
    texts = words("row", 300)
    filled(tmp_path, texts)
    asked = [*reversed(texts), "unknown", texts[7]]
    found, vectors = EmbeddingCache(tmp_path).lookup(ENCODER, asked)
    assert found.tolist() == [True] * 300 + [False, True]
    known = [text for text in asked if text != "unknown"]
    np.testing.assert_array_equal(vectors, vectors_of(known))
    assert vectors.dtype == np.float32


def test_texts_of_several_segments_are_found_together(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    parts = [words("abc"[part], 5) for part in range(3)]
    for part in parts:
        cache.store(ENCODER, part, vectors_of(part))
    asked = [parts[2][0], parts[0][4], parts[1][1]]
    found, vectors = cache.lookup(ENCODER, asked)
    assert found.all()
    np.testing.assert_array_equal(vectors, vectors_of(asked))


def test_another_encoder_does_not_see_the_vectors(tmp_path: Path) -> None:
    cache = filled(tmp_path, ["text"])
    assert not cache.lookup("hub:org/name", ["text"])[0].any()
    assert cache.folder("hub:org/name").parent == tmp_path
    assert cache.folder("hub:org/name") != cache.folder("hub:org-name")


def test_a_text_keeps_all_its_characters(tmp_path: Path) -> None:
    cache = filled(tmp_path, ["café\n", "café"])
    assert cache.lookup(ENCODER, ["café\n", "café", "cafe", "café "])[0].tolist() == [
        True,
        True,
        False,
        False,
    ]


def test_a_segment_is_named_by_its_own_bytes_and_its_owner_alone_reads_it(tmp_path: Path) -> None:
    (segment,) = segments_of(filled(tmp_path, ["text"]))
    assert segment.stem == hashlib.sha256(segment.read_bytes()).hexdigest()
    assert segment.stat().st_mode & 0o077 == 0


def test_nobody_but_its_owner_lists_the_folder_whose_sizes_count_texts(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path / "cache")
    folder = cache.folder(ENCODER)
    folder.mkdir(parents=True, mode=0o755)  # as an earlier version made it
    cache.store(ENCODER, ["text"], vectors_of(["text"]))
    assert folder.stat().st_mode & 0o077 == 0


def test_storing_the_same_twice_adds_no_segment(tmp_path: Path) -> None:
    texts = words("row", 10)
    cache = filled(tmp_path, texts)
    cache.store(ENCODER, texts[::-1], vectors_of(texts[::-1]))
    assert len(segments_of(cache)) == 1


def test_half_precision_is_kept_through_compaction_and_read_as_float32(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    texts = words("row", 33)
    exact = vectors_of(texts) + np.float32(2**-13)
    half = exact.astype(np.float16)
    for row, text in enumerate(texts):
        cache.store(ENCODER, [text], half[row : row + 1])
    (segment,) = segments_of(cache)
    assert load_file(segment)["vectors"].dtype == np.float16
    found, vectors = EmbeddingCache(tmp_path).lookup(ENCODER, texts)
    assert found.all()
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, half.astype(np.float32))
    assert (vectors != exact).any()


def test_vectors_must_be_one_row_a_text(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="vectors"):
        EmbeddingCache(tmp_path).store(ENCODER, ["one", "two"], np.zeros((1, 4), np.float32))


@pytest.mark.parametrize("damage", ["flip a byte of a vector", "flip a byte of a key", "truncate"])
def test_a_damaged_segment_is_named_and_nothing_is_touched(tmp_path: Path, damage: str) -> None:
    filled(tmp_path, words("good", 10))
    cache = filled(tmp_path, words("row", 10))
    before = {path: path.read_bytes() for path in segments_of(cache)}
    victim = segments_of(cache)[0]
    content = bytearray(victim.read_bytes())
    if damage == "truncate":
        del content[-5:]
    else:
        content[-3 if "vector" in damage else -170] ^= 1
    victim.write_bytes(content)
    with pytest.raises(CacheCorrupted, match=f"{victim.name}.*delete that file"):
        EmbeddingCache(tmp_path).lookup(ENCODER, ["row-0001"])
    after = {path: path.read_bytes() for path in segments_of(cache)}
    assert after == before | {victim: bytes(content)}


def test_after_deleting_the_damaged_segment_the_rest_is_still_known(tmp_path: Path) -> None:
    filled(tmp_path, ["good"])
    (good,) = segments_of(EmbeddingCache(tmp_path))
    cache = filled(tmp_path, ["lost"])
    (lost,) = set(segments_of(cache)) - {good}
    lost.write_bytes(b"")
    with pytest.raises(CacheCorrupted, match="do not match the checksum"):
        EmbeddingCache(tmp_path).lookup(ENCODER, ["good"])
    lost.unlink()
    assert EmbeddingCache(tmp_path).lookup(ENCODER, ["good", "lost"])[0].tolist() == [True, False]


def test_a_well_named_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    cache = filled(tmp_path, ["text"])
    content = b"not tensors"
    name = f"{hashlib.sha256(content).hexdigest()}.safetensors"
    (cache.folder(ENCODER) / name).write_bytes(content)
    with pytest.raises(CacheCorrupted, match=name):
        cache.lookup(ENCODER, ["text"])


def test_vectors_of_two_dimensions_under_one_name_are_refused(tmp_path: Path) -> None:
    cache = filled(tmp_path, ["text"])
    cache.store(ENCODER, ["other"], vectors_of(["other"], dimension=3))
    with pytest.raises(CacheCorrupted, match="different dimensions"):
        cache.lookup(ENCODER, ["text"])


def test_a_crash_before_the_rename_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = filled(tmp_path, ["old!"])
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cache.store(ENCODER, ["new!"], vectors_of(["new!"]))
    assert EmbeddingCache(tmp_path).lookup(ENCODER, ["old!", "new!"])[0].tolist() == [True, False]
    assert len(list(cache.folder(ENCODER).iterdir())) == 1


def test_leftovers_of_crashed_writers_are_ignored(tmp_path: Path) -> None:
    cache = filled(tmp_path, ["text"])
    (cache.folder(ENCODER) / ".writing-abc").write_bytes(b"half a segm")
    (cache.folder(ENCODER) / "notes.txt").write_text("hello")
    assert EmbeddingCache(tmp_path).lookup(ENCODER, ["text"])[0].all()


def test_a_full_disk_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match=r"No space left.*CSLR_CACHE_DIR"):
        filled(tmp_path, ["text"])


def test_a_file_in_place_of_the_directory_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ConfigError, match="CSLR_CACHE_DIR"):
        filled(tmp_path / "cache", ["text"])


def test_many_segments_become_one_and_nothing_is_lost(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    texts = words("row", 33)
    for number, text in enumerate(texts):
        cache.store(ENCODER, [text], vectors_of([text]))
        assert len(segments_of(cache)) == (number + 1 if number < 32 else 1)
    for reader in (cache, EmbeddingCache(tmp_path)):
        found, vectors = reader.lookup(ENCODER, texts)
        assert found.all()
        np.testing.assert_array_equal(vectors, vectors_of(texts))


def test_a_reader_that_loses_a_race_with_compaction_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, ["here"])
    listed = module._names
    stale = [tmp_path / f"{'0' * 64}.safetensors"]

    def once_stale(folder: Path) -> list[Path]:
        return [stale.pop()] if stale else listed(folder)

    monkeypatch.setattr(module, "_names", once_stale)
    assert EmbeddingCache(tmp_path).lookup(ENCODER, ["here"])[0].all()


WRITER = """
import sys
from pathlib import Path
import numpy as np
from cslr.text.cache import EmbeddingCache

cache = EmbeddingCache(Path(sys.argv[1]))
for number in range(60):
    text = f"{sys.argv[2]}-{number:04d}"
    vector = np.array([[len(text), *text.encode()[:3]]], np.float32)
    cache.store(sys.argv[3], [text], vector)
    assert cache.lookup(sys.argv[3], [text])[0].all()
"""


def test_processes_may_write_and_compact_at_the_same_time(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name, ENCODER], env=_env())
        for name in ("left", "both", "both")
    ]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    texts = words("left", 60) + words("both", 60)
    found, vectors = EmbeddingCache(tmp_path).lookup(ENCODER, texts)
    assert found.all()
    np.testing.assert_array_equal(vectors, vectors_of(texts))


def _env() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_the_environment_moves_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSLR_CACHE_DIR", str(tmp_path))
    assert default_directory() == tmp_path / "embeddings" / "private"
    assert default_directory("public") == tmp_path / "embeddings" / "public"
    assert EmbeddingCache().directory == tmp_path / "embeddings" / "private"
    monkeypatch.delenv("CSLR_CACHE_DIR")
    assert default_directory().parent.name == "embeddings"
    assert "cslr" in default_directory().parts
