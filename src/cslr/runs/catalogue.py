"""List, read, compare and delete the runs of a folder.

Only files of the run directories are read, so a run may have been moved, and its data and its
encoder need not be there any more.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cslr.config import dotted
from cslr.errors import ConfigError, RunDirectoryError
from cslr.runs.directory import read_config
from cslr.runs.results import StoredRun, read_run

__all__ = ["cell", "compared", "delete_run", "find_runs"]

_FILES: Final = (
    "config.json",
    "trace.jsonl",
    "result.json",
    "accuracy.png",
    "model.json",
    "report.html",
    "seed-*",
    ".*.part",
)
"""What a run directory holds; one that holds more is not deleted."""


def find_runs(folder: Path) -> tuple[list[StoredRun], list[str]]:
    """The runs in a folder, oldest first, and what is wrong with directories that look like one."""
    if not folder.is_dir():
        raise ConfigError(
            f"{folder} is not a directory; give the folder of your runs, or start one: cslr run"
        )
    runs, wrong = [], []
    for file in sorted(folder.glob("*/config.json")):
        try:
            runs.append(read_run(file.parent))
        except RunDirectoryError as error:
            wrong.append(str(error))
    return sorted(runs, key=lambda run: (run.written, run.path.name)), wrong


def compared(runs: Sequence[StoredRun]) -> dict[str, list[Any]]:
    """The settings in which runs differ, then their scores: one value per run."""
    plain = [
        {**dotted(run.config.model_dump(mode="json")), "privacy.unit": run.config.privacy.unit}
        for run in runs
    ]
    names = list(dict.fromkeys(name for each in plain for name in each))
    differing = {
        name: [each.get(name) for each in plain]
        for name in names
        if any(each.get(name) != plain[0].get(name) for each in plain)
    }
    facts = [_figures(run) for run in runs]
    return {**differing, **{name: [each[name] for each in facts] for name in facts[0]}}


def cell(name: str, value: Any) -> str:
    """A value of ``compared`` as people read it."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, float):
        return f"{value:.1f}" if name.endswith(("AA", "BWT")) else f"{value:.4g}"
    return str(value)


def _figures(run: StoredRun) -> dict[str, Any]:
    result = run.result or {}
    yardsticks = result.get("yardsticks", {})
    return {
        "AA": result.get("aa"),
        "BWT": result.get("bwt"),
        "zero-shot AA": yardsticks.get("zero-shot", {}).get("aa"),
        "joint AA": yardsticks.get("joint", {}).get("aa"),
        "end-to-end ε (roster)": result.get("epsilon", {}).get("end_to_end", {}).get("roster"),
        "verdict": run.verdict,
    }


def delete_run(path: Path) -> None:
    """Delete a run directory. The ledger of a federation is elsewhere and is kept."""
    if path.is_symlink():
        raise RunDirectoryError(f"{path} is a symbolic link; give the directory itself")
    read_config(path)
    others = [each.name for each in path.iterdir() if not any(each.match(name) for name in _FILES)]
    if others:
        raise RunDirectoryError(
            f"{path} also contains {', '.join(sorted(others))}, which no run wrote; move that away "
            "first"
        )
    shutil.rmtree(path)
