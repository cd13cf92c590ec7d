"""Run one cell; its trace appears when the cell is finished.

A cell has its own run directory, so a killed cell resumes from its trace. When it is finished, the
trace is moved atomically to the finished ones and the directory is removed.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from cslr.config import Config
from cslr.data.streams import Stream
from cslr.errors import LedgerCorrupted, PlanChanged, RunDirectoryError
from cslr.files import write_atomic
from cslr.research.experiments.fingerprint import code_fingerprint, vector_fingerprint
from cslr.research.experiments.grid import STUDIES_KEPT, Cell, plain_config
from cslr.research.experiments.places import Places
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import EmbeddedStream, load_embedded
from cslr.runs.learn import run
from cslr.runs.results import Result

__all__ = ["run_cell"]

_STALE: Final = (RunDirectoryError, LedgerCorrupted, PlanChanged)
"""Raised for unfinished work of an older program, of other data or after a crash."""


def run_cell(cell: Cell, places: Places) -> Path:
    """Run or resume a cell; returns the path of its trace."""
    trace, work = places.trace(cell.name), places.run_directory(cell.name)
    with _alone(work):
        if not trace.exists():
            study = _loaded(cell.study, places.work / f"study-{cell.study.digest()}.lock")
            began = time.process_time()
            directory, result = _run(cell.config, study, work)
            cpu = round(time.process_time() - began, 1)
            _write(trace, [{**_heading(cell, result, study), "cpu": cpu}, *directory.trace])
        shutil.rmtree(work, ignore_errors=True)
    return trace


@lru_cache(maxsize=STUDIES_KEPT)
def _loaded(study: Config, lock: Path) -> EmbeddedStream:
    """An embedded stream, loaded once in a process for all cells that share it.

    lock: only one process at a time loads it, so that the others find the embeddings in the cache.
    """
    with _locked(lock):
        return load_embedded(study)


def _run(config: Config, study: EmbeddedStream, work: Path) -> tuple[RunDirectory, Result]:
    """Resume a cell; start again if its directory cannot be resumed."""
    begun = work.exists()
    try:
        directory = RunDirectory(work, config)
        return directory, run(config, study, directory, _silent)
    except _STALE:
        if not begun:
            raise
    shutil.rmtree(work)
    return _run(config, study, work)


def _silent(what: str, done: int, total: int) -> None:
    """Steps of a cell are not shown: progress is counted in cells."""


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Raise an error if another process is running the cell."""
    with ExitStack() as stack:
        try:
            stack.enter_context(_locked(work.with_suffix(".lock"), fcntl.LOCK_NB))
        except BlockingIOError:
            raise RunDirectoryError(
                f"{work} is in use by another process; run the cell again when it has ended"
            ) from None
        yield


@contextmanager
def _locked(path: Path, how: int = 0) -> Iterator[None]:
    """Hold a lock that the system releases if the process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | how)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _heading(cell: Cell, result: Result, study: EmbeddedStream) -> dict[str, Any]:
    """The first line of a trace: the cell, its stream, and fingerprints of code and embeddings."""
    return {
        "kind": "cell",
        "name": cell.name,
        "config": plain_config(cell.config),
        "scenario": result.scenario,
        "clients": result.clients,
        "alpha": _alpha(cell.config, result.stream),
        "metric": result.metric,
        "labels": [label.name for label in result.stream.labels],
        "tasks": [task.name for task in result.stream.tasks],
        "code": code_fingerprint(),
        "vectors": vector_fingerprint(study.public),
    }


def _alpha(config: Config, stream: Stream) -> float | None:
    """Concentration of the partition; None if rows are not assigned by Dirichlet shares."""
    return (config.stream.alpha or stream.alpha) if stream.partition == "dirichlet" else None


def _write(path: Path, lines: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
    write_atomic(path, text.encode())
