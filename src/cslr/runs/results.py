"""Results from a trace: matrix, AA, BWT, FWT, yardsticks, and the share of the gap closed.

Scores are percentages. Every ε comes from the ledger through the trace. Scores that are only shown
come from the run itself and are stored nowhere.

The verdict is one sentence, the first line of every result. It depends on the values of
``result.json`` only, so a stored run and a fresh one have the same verdict, and scores that are not
stored cannot enter it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from cslr.arrays import FloatArray
from cslr.config import Config, Evaluate
from cslr.data.streams import Stream
from cslr.errors import RunDirectoryError
from cslr.methods.registry import YARDSTICKS
from cslr.runs.directory import RunDirectory, read_config
from cslr.runs.measure import (
    PrivateFigures,
    average_accuracy,
    backward_transfer,
    closed_share,
    forward_transfer,
    private_figures,
    rounded,
)

__all__ = ["Figures", "Result", "StoredRun", "collect", "read_run", "verdict_of"]


@dataclass(frozen=True, eq=False)
class Figures:
    """One method over all seeds of a run."""

    method: str
    matrices: FloatArray  # (seeds, T + 1, T), %, NaN where undefined
    labels: FloatArray  # (seeds, c), %, after the last task
    zero_shot: FloatArray  # (T,) b_j, NaN if zero-shot was not run, or under another encoder
    more: dict[str, FloatArray] = field(default_factory=dict)
    """(seeds,) each, %, after the last task: what else the family is measured by."""

    @classmethod
    def nothing(cls, method: str, seeds: int, tasks: int, labels: int) -> Figures:
        """The figures of a method without scores."""
        matrices = np.full((seeds, tasks + 1, tasks), math.nan)
        return cls(method, matrices, np.full((seeds, labels), math.nan), np.full(tasks, math.nan))

    @property
    def aa(self) -> FloatArray:
        """(seeds,)"""
        return np.array([average_accuracy(matrix) for matrix in self.matrices])

    @property
    def bwt(self) -> FloatArray:
        """(seeds,)"""
        return np.array([backward_transfer(matrix) for matrix in self.matrices])

    @property
    def fwt(self) -> FloatArray:
        """(seeds,)"""
        return np.array([forward_transfer(matrix, self.zero_shot) for matrix in self.matrices])

    @property
    def curve(self) -> FloatArray:
        """(T,) mean score on the tasks seen after each task, over seeds."""
        tasks = self.matrices.shape[2]
        return np.array([self.matrices[:, r, :r].mean() for r in range(1, tasks + 1)])


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a run."""

    config: Config
    stream: Stream
    clients: int
    figures: dict[str, Figures]
    cost: dict[str, Any]
    seconds: float
    """NaN if no duration was recorded."""
    run_dir: str
    measured: PrivateFigures | None = None
    """The private evaluation, if there was one."""

    @property
    def rule(self) -> Evaluate:
        """Whether figures on test rows are shown, stored, private or not computed."""
        return self.config.privacy.evaluation

    @property
    def scenario(self) -> str:
        """The scenario of the scores."""
        return self.stream.scenario(self.config.stream.scenario)

    @property
    def metric(self) -> str:
        """The name of the score, without the percent sign."""
        return "strict entity micro-F1" if self.stream.family == "tagging" else "accuracy"

    @property
    def evaluated(self) -> bool:
        """Whether there are exact figures: they were asked for, and there were test rows."""
        return self.rule in ("shown", "stored") and len(self.stream.test) > 0

    @property
    def main(self) -> Figures:
        """The method that was run."""
        return self.figures[self.config.method]

    @property
    def units(self) -> int:
        """How many units of privacy are registered."""
        by_person = self.config.privacy.unit == "person"
        return self.stream.registered_people if by_person else self.clients

    def closed(self) -> float:
        """Share of the gap from the better of majority and zero-shot to joint; NaN if unknown."""
        if not all(name in self.figures for name in ("majority", "zero-shot", "joint")):
            return math.nan
        level = {name: float(self.figures[name].aa.mean()) for name in self.figures}
        return closed_share(
            level[self.config.method], max(level["majority"], level["zero-shot"]), level["joint"]
        )

    def stored_json(self) -> dict[str, Any]:
        """What is written to ``result.json``: figures that are only shown are not in it."""
        if self.rule != "shown":
            return self.as_json()
        shape = (len(self.config.seeds), len(self.stream.tasks), len(self.stream.labels))
        blank = {name: Figures.nothing(name, *shape) for name in self.figures}
        plain = {**replace(self, figures=blank)._plain(), "evaluated": None}
        return {"verdict": verdict_of(plain).text, **plain}

    def as_json(self) -> dict[str, Any]:
        """The object ``cslr run --json`` prints."""
        plain = self._plain()
        return {"verdict": verdict_of(plain).text, **plain}

    def _plain(self) -> dict[str, Any]:
        config, main = self.config, self.main
        names = [task.name for task in self.stream.tasks]
        return {
            "stream": self.stream.name,
            "family": self.stream.family,
            "scenario": self.scenario,
            "method": config.method,
            "clients": self.clients,
            "tasks": names,
            "seeds": list(config.seeds),
            "metric": f"{self.metric}, %",
            "evaluate": self.rule,
            "evaluated": self.evaluated,
            "private_evaluation": None if self.measured is None else self.measured.as_json(names),
            "aa": _mean(main.aa),
            "bwt": _mean(main.bwt),
            "fwt": _mean(main.fwt),
            "more": _means(main.more),
            "per_seed": [
                {
                    "seed": seed,
                    "aa": rounded(main.aa[i]),
                    "bwt": rounded(main.bwt[i]),
                    "fwt": rounded(main.fwt[i]),
                    "matrix": _rows(main.matrices[i]),
                }
                for i, seed in enumerate(config.seeds)
            ],
            "matrix": _rows(main.matrices.mean(axis=0)),
            "labels": {
                label.name: _mean(main.labels[:, i]) for i, label in enumerate(self.stream.labels)
            },
            "yardsticks": self._yardsticks(),
            "closed": rounded(self.closed()),
            "prior": config.replay.prior,
            "delta": config.privacy.delta,
            "unit": config.privacy.unit,
            "units": self.units,
            "adjacency": "zero-out",
            "privacy": config.privacy.mode,
            "budget": config.privacy.budget,
            "sigma": self.cost["sigma"],
            "epsilon": self.cost["epsilon"],
            "seconds": round(self.seconds, 1) if math.isfinite(self.seconds) else None,
            "run_dir": self.run_dir,
        }

    def _yardsticks(self) -> dict[str, Any]:
        return {
            name: {
                "aa": _mean(self.figures[name].aa),
                "bwt": _mean(self.figures[name].bwt),
                "more": _means(self.figures[name].more),
                "matrix": _rows(self.figures[name].matrices.mean(axis=0)),
            }
            for name in YARDSTICKS
            if name in self.figures and name != self.config.method
        }


Rows = Sequence[dict[str, Any]]
"""Lines of a trace about rows a[r, ·]; they have figures only where these are stored."""


def collect(config: Config, directory: RunDirectory, stream: Stream, shown: Rows = ()) -> Result:
    """Read the trace of a finished run; ``shown`` are rows with figures that are not in it."""
    rows = [*(line for line in directory.trace if line["kind"] == "row"), *shown]
    names = list(dict.fromkeys(line["method"] for line in rows))
    scored = [line for line in rows if "scores" in line]
    matrices = {name: _matrices(config, scored, name, len(stream.tasks)) for name in names}
    zero_shot = np.full(len(stream.tasks), math.nan)
    if "zero-shot" in matrices and not config.upgrade:  # else it is of one encoder only
        zero_shot = matrices["zero-shot"][0, 0]
    figures = {
        name: Figures(
            name,
            matrices[name],
            _last_labels(config, scored, name, stream),
            zero_shot,
            _last_more(config, scored, name, len(stream.tasks)),
        )
        for name in names
    }
    cost = directory.find(kind="cost")
    finished = directory.find(kind="finished")
    return Result(
        config,
        stream,
        config.stream.clients or stream.clients,
        figures,
        cost or {"epsilon": {}, "sigma": None},
        (finished or {}).get("seconds", math.nan),
        str(directory.path),
        private_figures([line for line in directory.trace if line["kind"] == "evaluation"]),
    )


def _matrices(config: Config, rows: Rows, method: str, tasks: int) -> FloatArray:
    matrices = np.full((len(config.seeds), tasks + 1, tasks), math.nan)
    for line in rows:
        if line["method"] == method:
            row = [_percent(score) for score in line["scores"]]
            matrices[config.seeds.index(line["seed"]), line["after"]] = row
    return matrices


def _last(config: Config, rows: Rows, method: str, tasks: int) -> list[dict[str, Any] | None]:
    """The row of each seed after the last task, if it is there."""
    last = {
        line["seed"]: line for line in rows if (line["method"], line["after"]) == (method, tasks)
    }
    return [last.get(seed) for seed in config.seeds]


def _last_labels(config: Config, rows: Rows, method: str, stream: Stream) -> FloatArray:
    labels = np.full((len(config.seeds), len(stream.labels)), math.nan)
    for i, line in enumerate(_last(config, rows, method, len(stream.tasks))):
        if line is not None:
            labels[i] = [_percent(score) for score in line["labels"]]
    return labels


def _last_more(config: Config, rows: Rows, method: str, tasks: int) -> dict[str, FloatArray]:
    """(seeds,) of each further measure; older traces have none."""
    lines = _last(config, rows, method, tasks)
    more: list[dict[str, float | None]] = [(line or {}).get("more", {}) for line in lines]
    names = dict.fromkeys(name for each in more for name in each)
    return {name: np.array([_percent(each.get(name)) for each in more]) for name in names}


def _percent(score: float | None) -> float:
    return math.nan if score is None else 100 * score


def _mean(values: FloatArray) -> float | None:
    return rounded(float(np.mean(values)))


def _means(more: dict[str, FloatArray]) -> dict[str, float | None]:
    return {name: _mean(values) for name, values in more.items()}


def _rows(matrix: FloatArray) -> list[list[float | None]]:
    return [[rounded(value) for value in row] for row in matrix]


# -- the verdict -----------------------------------------------------------------------------------

Level = Literal["above", "below", "unknown"]

_FREE_HEAD: Final = "below zero-shot: keep the free head (--method zero-shot, ε = 0)"


@dataclass(frozen=True)
class Verdict:
    """One sentence on a result, and whether private data helped."""

    text: str
    level: Level
    """above or below zero-shot; unknown where no exact score is known."""


def verdict_of(result: Mapping[str, Any]) -> Verdict:
    """The verdict on the object that ``cslr run --json`` prints or ``result.json`` holds."""
    promise = _promise(result)
    score = result.get("aa")
    free = _yardstick(result, "zero-shot")
    if result["method"] == "zero-shot" and score is not None:
        return Verdict(f"zero-shot itself, {score:.1f} %; {promise}", "unknown")
    if score is None or free is None:
        return Verdict(f"{_unscored(result)}; {promise}", "unknown")
    gain = round(score - free, 1)
    parts = [f"{gain:+.1f} over zero-shot", *_gap(result), promise]
    if gain < 0:
        parts = [f"{-gain:.1f} below zero-shot", promise, _FREE_HEAD]
    if gain == 0:
        parts = ["no better than zero-shot", promise, "the free head does as well"]
    return Verdict(", ".join(parts[:-1]) + ("; " if gain <= 0 else ", ") + parts[-1], _level(gain))


def _level(gain: float) -> Level:
    return "above" if gain > 0 else "below"


def _yardstick(result: Mapping[str, Any], name: str) -> float | None:
    score: float | None = result.get("yardsticks", {}).get(name, {}).get("aa")
    return score


def _gap(result: Mapping[str, Any]) -> list[str]:
    """Share of the gap between zero-shot and pooled training that is closed, where it is known."""
    score, free, pooled = result["aa"], _yardstick(result, "zero-shot"), _yardstick(result, "joint")
    if free is None or pooled is None:
        return []
    if pooled <= free:
        return ["zero-shot is already no worse than pooled training"]
    share = round(100 * (score - free) / (pooled - free))
    return (
        ["no worse than pooled training"] if share >= 100 else [f"{share} % of the gap to pooled"]
    )


def _promise(result: Mapping[str, Any]) -> str:
    """ε for the unit, against the roster, end to end."""
    epsilon = result["epsilon"].get("end_to_end", {}).get("roster")
    whom = f"for a {result['unit']}"
    if epsilon is None or not math.isfinite(epsilon):
        return f"ε = ∞ {whom}: not private"
    if epsilon == 0:
        return "ε = 0: no private row was read"
    simulated = " (simulated)" if result["privacy"] == "simulated" else ""
    return f"ε = {epsilon:.3g} {whom}{simulated}"


def _unscored(result: Mapping[str, Any]) -> str:
    """The verdict where there is no exact score to compare with zero-shot."""
    counted = result.get("private_evaluation")
    if counted is not None and counted.get("aa") is not None:
        return f"noisy accuracy {counted['aa']:.1f} %, nothing to compare it with"
    rule = result.get("evaluate")
    if rule == "shown" and not result.get("evaluated"):
        return "scores were shown and not stored"
    return "trained, not evaluated" if rule == "none" else "trained, no scores to compare"


# -- a result that is stored -----------------------------------------------------------------------

State = Literal["finished", "unfinished"]


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A run, read from its directory."""

    path: Path
    config: Config
    result: dict[str, Any] | None
    """``result.json``; None while the run is not finished."""
    written: datetime
    """When its configuration was written."""

    @property
    def state(self) -> State:
        """Whether all tasks are learnt."""
        return "unfinished" if self.result is None else "finished"

    @property
    def verdict(self) -> str:
        """The first line of its result."""
        if self.result is None:
            return f"not finished; repeat its command with --run-dir {self.path}"
        return verdict_of(self.result).text

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        result = self.result or {}
        return {
            "run": str(self.path),
            "state": self.state,
            "started": self.written.isoformat(timespec="seconds"),
            "stream": self.config.stream.name,
            "method": self.config.method,
            "privacy": self.config.privacy.mode,
            "unit": self.config.privacy.unit,
            "aa": result.get("aa"),
            "epsilon": result.get("epsilon", {}).get("end_to_end", {}).get("roster"),
            "verdict": self.verdict,
        }


def read_run(path: Path) -> StoredRun:
    """The run in a directory."""
    config = read_config(path)
    file = path / "result.json"
    result = None
    if file.is_file():
        try:
            result = json.loads(file.read_text(encoding="utf-8"))
            verdict_of(result)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RunDirectoryError(
                f"{file} is damaged; repeat the command of the run with --run-dir {path}"
            ) from None
    written = datetime.fromtimestamp((path / "config.json").stat().st_mtime)
    return StoredRun(path, config, result, written)
