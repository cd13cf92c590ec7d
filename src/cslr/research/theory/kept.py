"""The stored parts of a finished run: replay Q_{1:T}, head, and scores of the trace. Read-only.

The replay is the one after the last task. Earlier estimates of the same modes are not stored: each
task overwrites them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.config import Config
from cslr.errors import ConfigError, RunDirectoryError
from cslr.files import open_arrays
from cslr.numerics.mixture import Gaussians
from cslr.protocol.head import Family, Head
from cslr.runs.directory import read_config, read_trace
from cslr.runs.predict import ModelFacts

__all__ = ["KeptReplay", "KeptRun", "load_run"]

_NEEDED: Final = ("weights", "mean", "variance", "labels", "targets", "centre", "basis")


@dataclass(frozen=True, eq=False)
class KeptReplay:
    """Q_{1:T} of one seed: K Gaussian modes over r released coordinates, with their targets."""

    weights: FloatArray  # (K,)
    modes: Gaussians  # (K, r), diagonal or full
    tasks: IntArray  # (K,)
    answers: FloatArray  # (K, c) the probability of each label for a mode
    centre: FloatArray  # (d,)
    basis: FloatArray  # (d, d)

    @property
    def directions(self) -> FloatArray:
        """(d, r) the released directions, orthonormal."""
        return self.basis[:, : self.modes.mean.shape[1]]

    def into(self, z: FloatArray) -> FloatArray:
        """Embeddings (n, d) -> released coordinates (n, r)."""
        x: FloatArray = (z - self.centre) @ self.directions
        return x

    def lift(self, x: FloatArray) -> FloatArray:
        """Released coordinates (n, r) -> embeddings (n, d); other directions: the public centre."""
        z: FloatArray = x @ self.directions.T + self.centre
        return z

    def joint(self, task: int) -> FloatArray:
        """(K, c) the joint distribution of mode and label in a task's replay; sums to 1."""
        weights = np.where(self.tasks == task, self.weights, 0.0)
        if not weights.sum() > 0:  # noise may have taken all weight from a task
            weights = (self.tasks == task).astype(np.float64)
        joint: FloatArray = weights[:, None] / weights.sum() * self.answers
        return joint


@dataclass(frozen=True, eq=False)
class KeptRun:
    """A finished run."""

    path: Path
    config: Config
    model: ModelFacts
    trace: tuple[dict[str, Any], ...]

    def replay(self, seed: int) -> KeptReplay:
        """Q_{1:T} of one of the run's seeds."""
        path = self.path / f"seed-{seed}" / "replay.safetensors"
        if not path.is_file():
            raise RunDirectoryError(
                f"{self.path} is a run of {self.model.method}, which stores no replay "
                f"({path.name} of seed {seed}); give a run of cslr"
            )
        arrays = _arrays(path)
        if not set(_NEEDED) <= arrays.keys():
            missing = ", ".join(sorted(set(_NEEDED) - arrays.keys()))
            raise RunDirectoryError(
                f"{path} is not a replay of Gaussian modes: it has no {missing}"
            )
        if "known" in arrays and not arrays["known"].any():
            raise RunDirectoryError(
                f"{self.path} was learnt by gradient rounds and released no replay; give one "
                "with --head released"
            )
        family = Family(self.model.family, len(self.model.labels))
        labels = arrays["labels"].astype(np.int64)
        tasks = arrays["tasks"].astype(np.int64) if "tasks" in arrays else self._tasks(labels, path)
        return KeptReplay(
            arrays["weights"],
            Gaussians(arrays["mean"], arrays["variance"]),
            tasks,
            _answers(arrays["targets"], labels, family),
            arrays["centre"],
            arrays["basis"],
        )

    def head(self, seed: int) -> Head | None:
        """The head of a seed, if one is stored."""
        path = self.path / f"seed-{seed}" / "head.safetensors"
        if not path.is_file():
            return None
        try:
            return Head(**_arrays(path))
        except TypeError:
            return None

    def matrix(self, seed: int) -> FloatArray:
        """(T + 1, T) the scores a[r, j] of the run's own method, in per cent; NaN if not stored."""
        tasks = len(self.model.tasks)
        matrix = np.full((tasks + 1, tasks), math.nan)
        for line in self.trace:
            row = (line["kind"], line.get("method"), line.get("seed"))
            if row == ("row", self.model.method, seed) and "scores" in line:
                scores = [math.nan if score is None else 100 * score for score in line["scores"]]
                matrix[line["after"]] = scores
        return matrix

    def forgetting(self, seed: int) -> FloatArray:
        """(T,) a[t, t] − a[T, t] in points: what was lost since a task was learnt."""
        matrix = self.matrix(seed)
        lost: FloatArray = np.diagonal(matrix[1:]) - matrix[-1]
        return lost

    def _tasks(self, labels: IntArray, path: Path) -> IntArray:
        """(K,) the task of each mode, inferred for files that lack it: tasks append in order.

        A mode belongs to one label of its task, or to all of them and then has the first as label.
        """
        tasks = list(self.model.tasks.values())
        for groups in (tasks, [labels_of[:1] for labels_of in tasks]):
            declared = sum(len(group) for group in groups)
            sub_modes = max(1, len(labels) // declared)
            if np.array_equal(np.repeat(np.concatenate(groups), sub_modes), labels):
                return np.repeat(np.arange(len(groups)), [len(g) * sub_modes for g in groups])
        raise RunDirectoryError(f"{path} does not record the task of its modes")


def load_run(path: Path) -> KeptRun:
    """The finished run in a directory; raises an error if it stored no replay."""
    model = ModelFacts.load(path)
    config, trace = read_config(path), path / "trace.jsonl"
    if config.translates:
        raise ConfigError(
            f"{path} is in coordinates shared by several encoders; cslr quality requires a "
            "run with one encoder"
        )
    lines, whole = read_trace(trace)
    if not whole or whole < trace.stat().st_size:  # a finished run has no line that was cut off
        raise RunDirectoryError(f"{trace} is missing or damaged")
    run = KeptRun(path, config, model, tuple(lines))
    for seed in model.seeds:
        run.replay(seed)
    return run


def _arrays(path: Path) -> dict[str, FloatArray]:
    try:
        return open_arrays(path.read_bytes())
    except (ValueError, OSError):
        raise RunDirectoryError(f"{path} is damaged; repeat the run in a new directory") from None


def _answers(targets: FloatArray, labels: IntArray, family: Family) -> FloatArray:
    """(K, c) the distribution over labels of each mode, from its target (K, outputs).

    With sigmoid outputs (intents) a target is no distribution, so the main label gets all of it.
    """
    if family.sigmoid:
        return np.eye(family.labels)[labels]
    answers = np.zeros((len(targets), family.labels))
    np.add.at(answers.T, family.label_of_output(), np.maximum(targets, 0.0).T)
    shares: FloatArray = answers / np.maximum(answers.sum(axis=1, keepdims=True), 1e-12)
    return shares
