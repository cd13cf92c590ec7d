"""One's own public sentences: lines of a text file, at least a hundred."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from cslr.data.own import read_public
from cslr.errors import DataError

SENTENCES = [f"Sentence number {number} is public." for number in range(100)]
LINES = "".join(f"{sentence}\n" for sentence in SENTENCES).encode()


def test_lines_are_read_plain_or_gzipped(tmp_path: Path):
    (tmp_path / "own.txt").write_bytes(b"\xef\xbb\xbf" + LINES.replace(b"\n", b" \r\n"))
    (tmp_path / "own.txt.gz").write_bytes(gzip.compress(LINES.rstrip(b"\n")))
    for name in ("own.txt", "own.txt.gz"):
        assert read_public(tmp_path / name) == tuple(SENTENCES)


def test_empty_and_repeated_lines_do_not_count(tmp_path: Path):
    path = tmp_path / "own.txt"
    path.write_bytes(b"\n" + LINES + b" \n" + LINES)
    assert read_public(path) == tuple(SENTENCES)
    path.write_bytes((LINES.split(b"\n")[0] + b"\n") * 200)
    with pytest.raises(
        DataError, match=r"own\.txt contains 1 distinct sentences; .* needs at least 100"
    ):
        read_public(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LINES + b"caf\xe9\n", r"line 101: byte 4 of the line is not UTF-8"),
        (b"a\0b\n" + LINES, r"line 1: .*NUL byte"),
        (LINES + b"x" * 1_000_001, r"line 101: the line has 1,000,001 bytes"),
        (b"", "contains 0 distinct sentences"),
    ],
)
def test_a_damaged_file_is_told_with_its_line(tmp_path: Path, content: bytes, message: str):
    path = tmp_path / "own.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"own\.txt.*{message}"):
        read_public(path)


def test_a_missing_or_cut_file_is_told(tmp_path: Path):
    with pytest.raises(DataError, match=r"nowhere\.txt cannot be opened"):
        read_public(tmp_path / "nowhere.txt")
    path = tmp_path / "own.txt.gz"
    path.write_bytes(gzip.compress(LINES)[:-10])
    with pytest.raises(DataError, match=r"own\.txt\.gz, line \d+: the gzip data end"):
        read_public(path)
