"""``cslr doctor``: check the installation, and say how to repair it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from cslr import __version__
from cslr.errors import CslrError

__all__ = ["Finding", "doctor_command", "findings"]

_LEAST_BYTES: Final = 2 * 1024**3
"""Free disk space that an installation with its caches needs."""
_PARTS: Final = (
    ("numpy", "pip install cslr"),
    ("torch", "pip install 'cslr[text]'; encoders run on it"),
    ("sentence-transformers", "pip install 'cslr[text]'; texts are encoded with it"),
    ("onnxruntime", "pip install 'cslr[onnx]'; only for encoders named +onnx"),
    ("pyarrow", "pip install 'cslr[parquet]'; only for Parquet files"),
    ("datasets", "pip install 'cslr[hub]'; only for `cslr data fetch`"),
)


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    ok: bool
    found: str
    fix: str = ""
    needed: bool = True
    """Whether the program cannot work without it."""


def doctor_command(
    self_test: Annotated[
        bool, typer.Option(help="Also train on a small synthetic stream, in about ten seconds.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Check the installation: versions, encoder, cache, cores, network use, and a self-test.

    Exit code 1: something that is needed is missing or does not work.

    Example: `cslr doctor`

    Example: `cslr doctor --no-self-test --json`
    """
    results = findings(self_test)
    healthy = all(each.ok for each in results if each.needed)
    if as_json:
        typer.echo(json.dumps({"healthy": healthy, "findings": [asdict(each) for each in results]}))
    else:
        console = Console()
        for each in results:
            mark, style = ("ok", "green") if each.ok else ("--", "yellow")
            mark, style = ("FAULT", "bold red") if each.needed and not each.ok else (mark, style)
            fix = "" if each.ok or not each.fix else f". {each.fix}"
            line = Text.assemble((f"{mark:6}", style), f"{each.name}: {each.found}{fix}")
            console.print(line, soft_wrap=True)
        typer.echo(
            "Everything that is needed works." if healthy else "Something needed is missing."
        )
    if not healthy:
        raise typer.Exit(1)


def findings(self_test: bool) -> list[Finding]:
    """All checks, in order."""
    parts = [_part(*part) for part in _PARTS]
    results = [_versions(), *parts, _encoder(), _cache(), _cores(), _network()]
    return [*results, _tried("self-test", _self_test)] if self_test else results


def _versions() -> Finding:
    where = f"{platform.system()} {platform.machine()}"
    return Finding("cslr", True, f"{__version__}, Python {platform.python_version()}, {where}")


def _part(name: str, fix: str) -> Finding:
    from importlib import metadata

    needed = name == "numpy"
    try:
        return Finding(name, True, metadata.version(name), needed=needed)
    except metadata.PackageNotFoundError:
        return Finding(name, False, "not installed", fix, needed)


def _encoder() -> Finding:
    from cslr.text.models import find_model, model_id

    try:
        source = find_model("minilm")
    except CslrError as error:
        return Finding("encoder", False, f"minilm: {error}", needed=False)
    return Finding("encoder", True, f"minilm, {model_id(source)}", needed=False)


def _cache() -> Finding:
    from cslr.text.cache import cache_root

    root = cache_root()
    existing = next(each for each in (root, *root.parents) if each.exists())
    free = shutil.disk_usage(existing).free
    enough = free >= _LEAST_BYTES and os.access(existing, os.W_OK)
    fix = "Set CSLR_CACHE_DIR to a directory you can write to with 2 GB free"
    return Finding("cache", enough, f"{root}, {free / 1024**3:.1f} GB free", fix)


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Finding("cores", True, f"{cores}; a GPU is not needed and not used by default")


def _network() -> Finding:
    from cslr.text.models import is_offline

    said = os.environ.get("HF_HUB_OFFLINE", "")
    usual = "only hub encoders and `cslr data fetch` use it"
    status = f"HF_HUB_OFFLINE={said}" if is_offline() else usual
    return Finding("network", True, status)


def _tried(name: str, test: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, test())
    except Exception as error:  # any failure is the finding
        return Finding(name, False, f"{type(error).__name__}: {error}")


def _self_test() -> str:
    """Train on synthetic vectors with two labels through ``cslr.learn``, and predict."""
    import numpy as np

    import cslr
    from cslr.seeding import Seeds

    started = time.perf_counter()
    rng, axes = Seeds(1).at("doctor"), np.eye(16)
    kind = rng.integers(2, size=400)
    model = cslr.learn(
        axes[kind] + 0.1 * rng.normal(size=(400, 16)),
        np.array(["left", "right"])[kind],
        clients=rng.integers(40, size=400),
        label_texts={"left": axes[0], "right": axes[1]},
        public=axes[rng.integers(16, size=200)] + 0.1 * rng.normal(size=(200, 16)),
        epsilon=4.0,
        simulate=True,
    )
    answers = list(model.predict(axes[:2]))
    if answers != ["left", "right"]:
        raise ValueError(f"trained on left and right, but predicted {', '.join(answers)}")
    epsilon, seconds = model.epsilon("roster"), time.perf_counter() - started
    return f"trained on two labels with ε = {epsilon:.3g} and predicted both, in {seconds:.1f} s"
