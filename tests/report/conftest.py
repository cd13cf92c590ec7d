"""Run directories as a run leaves them, with numbers made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cslr.config import load_config
from cslr.files import seal_arrays
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.plan import Budget
from cslr.runs.directory import RunDirectory
from cslr.seeding import Seeds

TASKS = ("heart", "skin & <joints>")


def plain_result(**more: Any) -> dict[str, Any]:
    """``result.json`` of two tasks with a label each."""
    costs = {"public": 4.0, "roster": 4.0, "server": None}
    low = [[50.0, 50.0], [100.0, 50.0], [75.0, 75.0]]
    result = {
        "stream": "made-up",
        "family": "classification",
        "scenario": "class",
        "method": "cslr",
        "clients": 40,
        "tasks": list(TASKS),
        "seeds": [13],
        "metric": "accuracy, %",
        "evaluate": "stored",
        "evaluated": True,
        "private_evaluation": None,
        "aa": 80.0,
        "bwt": -10.0,
        "matrix": [[50.0, None], [100.0, 60.0], [80.0, 80.0]],
        "labels": {"heart": 80.0, "skin": 80.0},
        "yardsticks": {
            "zero-shot": {"aa": 75.0, "matrix": low},
            "finetune": {"aa": 50.0, "matrix": [[None, None], [100.0, None], [0.0, 100.0]]},
            "joint": {"aa": 90.0, "matrix": [[None, None], [100.0, None], [90.0, 90.0]]},
        },
        "delta": 1e-5,
        "unit": "person",
        "units": 188,
        "privacy": "simulated",
        "epsilon": {"replay": costs, "end_to_end": costs},
    }
    return {**result, **more}


def picture(modes: int = 2) -> dict[str, np.ndarray]:
    rng = Seeds(1).at("picture")
    return {
        "plane": rng.normal(size=(6, 2)),
        "origin": np.zeros(6),
        "anchors": rng.normal(size=(10, 2)),
        "prototypes": rng.normal(size=(modes, 2)),
        "means": rng.normal(size=(modes, 2)),
        "covariance": np.tile(0.1 * np.eye(2), (modes, 1, 1)),
        "labels": np.arange(modes, dtype=np.float64),
        "known": np.array([1.0, *[0.0] * (modes - 1)]),
        "tasks": np.arange(modes, dtype=np.float64),
        "blocks": np.array([[3.0, 1.5, 0.5, np.nan, np.nan]] * modes),
        "directions": np.abs(rng.normal(size=(modes, 6))),
    }


def write_run(path: Path, settings: dict[str, Any] | None = None, **more: Any) -> Path:
    """A finished run; ``more`` are changes of its result."""
    config = load_config(None, {"seeds": [13], "privacy.unit": "person", **(settings or {})})
    RunDirectory(path, config).begin()
    (path / "result.json").write_text(json.dumps(plain_result(**more)))
    place = path / "seed-13"
    place.mkdir()
    federation = Federation("made-up", Budget(4.0, unit="person"), "simulated")
    with Ledger.at(place / "ledger.jsonl", federation, SeededKeys(Seeds(13))) as ledger:
        for task in range(2):
            charge = Charge(f"task {task}", task, "replay", 3.0, 1.0, task)
            ledger.charge(charge, lambda key: "0" * 64)
    (place / "picture.safetensors").write_bytes(seal_arrays(picture()))
    cloud = {"points": np.zeros((4, 2)), "labels": np.array([0.0, 0.0, 1.0, 1.0])}
    (place / "clouds.safetensors").write_bytes(seal_arrays(cloud))
    return path


@pytest.fixture
def make_run(tmp_path) -> Callable[..., Path]:
    """``make_run(name, settings, **changes of the result)``."""

    def make(name: str = "a", settings: dict[str, Any] | None = None, **more: Any) -> Path:
        return write_run(tmp_path / name, settings, **more)

    return make
