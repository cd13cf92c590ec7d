"""Four labels in two tasks, held by forty clients: rows near the axes of a small space."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import cslr

NAMES = np.array(["ant", "bee", "cat", "dog"])
SMALL = {"replay.dimension": 16, "paper.m": 24, "paper.n_r": 50}


def near(centres: np.ndarray, kinds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return centres[kinds] + 0.07 * rng.standard_normal((len(kinds), centres.shape[1]))


def make_arguments(family: str = "classification") -> dict[str, Any]:
    """Everything ``learn`` needs but a ledger: keyword arguments with X and y."""
    rng = np.random.default_rng(1)
    axes = np.linalg.qr(rng.standard_normal((16, 16)))[0]
    kinds = rng.integers(4, size=480)
    y: Any = NAMES[kinds]
    if family == "intents":
        y = [
            [NAMES[kind], NAMES[kind ^ 1]] if row % 4 else [NAMES[kind]]
            for row, kind in enumerate(kinds)
        ]
    return {
        "X": near(axes, kinds, rng),
        "y": y,
        "clients": [f"client {number}" for number in rng.integers(40, size=480)],
        "tasks": np.array(["small", "large"])[kinds // 2],
        "label_texts": dict(zip(NAMES.tolist(), axes, strict=False)),
        "public": near(axes, rng.integers(16, size=300), rng),
        "task_labels": {"small": ["ant", "bee"], "large": ["cat", "dog"]},
        "registered": 50,
        "epsilon": 4.0,
        "family": family,
        "settings": SMALL,
    }


@pytest.fixture
def arguments() -> dict[str, Any]:
    return make_arguments()


@pytest.fixture(scope="session")
def arguments_of():
    """``arguments_of(family)``."""
    return make_arguments


@pytest.fixture(scope="session")
def enforced(tmp_path_factory):
    """A model that was learnt with privacy enforced, and the directory of its ledger."""
    ledger = tmp_path_factory.mktemp("enforced") / "ledger"
    return cslr.learn(**make_arguments(), ledger=ledger), ledger


@pytest.fixture(scope="session")
def intents():
    """A simulated model of rows with one or two labels; noise would hide the second."""
    return cslr.learn(**{**make_arguments("intents"), "epsilon": math.inf}, simulate=True)
