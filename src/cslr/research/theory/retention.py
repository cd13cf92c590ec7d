"""NON-PRIVATE. Theorem 5 on a finished run: replay quality next to forgetting, by task.

The theorem is an upper bound: bad replay permits forgetting but does not imply it. So the rank
correlation describes a run and is not a statistical test; also, seeds share their rows.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from scipy.stats import spearmanr

from cslr.errors import DataError, EncoderError
from cslr.research.theory.kept import KeptRun
from cslr.research.theory.quality import SAMPLES, Quality, quality
from cslr.runs.embedded import EmbeddedStream
from cslr.seeding import Seeds

__all__ = ["MEASURES", "Judged", "Retention", "retention"]

MEASURES: Final = ("means", "shape", "head", "labels", "energy")
"""Measures of a replay; all but the last are lower bounds on a total variation."""
FEWEST: Final = 4
"""Fewest pairs for which a rank correlation is computed."""


@dataclass(frozen=True)
class Judged:
    """One task of one seed."""

    seed: int
    task: str
    last: bool
    """Whether it is the last task, of which nothing can have been forgotten."""
    quality: Quality
    forgotten: float
    """a[t, t] − a[T, t], in points."""

    def measure(self, name: str) -> float:
        """One of ``MEASURES``."""
        value = getattr(self.quality, name)
        return float(value if isinstance(value, float) else value.value)


@dataclass(frozen=True)
class Retention:
    """All tasks of all seeds of a run."""

    run: str
    method: str
    stream: str
    judged: tuple[Judged, ...]

    def correlation(self, name: str) -> float:
        """Spearman's ρ of a measure and forgetting, without last tasks; NaN if undefined."""
        pairs = np.array(
            [(each.measure(name), each.forgotten) for each in self.judged if not each.last]
        ).reshape(-1, 2)
        pairs = pairs[np.isfinite(pairs).all(axis=1)]
        if len(pairs) < FEWEST or (pairs == pairs[0]).all(axis=0).any():
            return math.nan
        return float(spearmanr(pairs[:, 0], pairs[:, 1]).statistic)

    def as_json(self) -> dict[str, Any]:
        """The object ``cslr quality --json`` prints."""
        return {
            "private": False,
            "run": self.run,
            "method": self.method,
            "stream": self.stream,
            "lower_bounds": list(MEASURES[:-1]),
            "tasks": [
                {
                    "seed": each.seed,
                    "task": each.task,
                    **{name: _plain(value) for name, value in asdict(each.quality).items()},
                    "forgotten": _plain(each.forgotten),
                }
                for each in self.judged
            ],
            "pairs": sum(not each.last for each in self.judged),
            "correlation": {name: _plain(self.correlation(name)) for name in MEASURES},
        }


def retention(run: KeptRun, embedded: EmbeddedStream, samples: int = SAMPLES) -> Retention:
    """Judge the replay of every seed and task of a run on the evaluation rows of its stream."""
    if embedded.encoder != run.model.encoder_id:
        raise EncoderError(
            f"encoder {run.config.encoder!r} is {embedded.encoder} here, but the run was "
            f"trained with {run.model.encoder_id}, and its replay is in that embedding space; "
            "install that version"
        )
    if not len(embedded.test.z):
        raise DataError(
            f"stream {embedded.stream.name!r} has no test rows to compare the replay with"
        )
    names = list(run.model.tasks)
    judged = []
    for seed in run.model.seeds:
        replay, head, forgotten = run.replay(seed), run.head(seed), run.forgetting(seed)
        for task, name in enumerate(names):
            of_task = embedded.test.tasks == task
            rng = Seeds(seed).at("replay quality", task)
            measured = quality(
                replay,
                task,
                embedded.test.z[of_task],
                embedded.test.labels[of_task],
                embedded.family,
                head,
                rng,
                samples=samples,
                together=embedded.test.rows[of_task],
            )
            last = task == len(names) - 1
            judged.append(Judged(seed, name, last, measured, float(forgotten[task])))
    return Retention(str(run.path), run.model.method, embedded.stream.name, tuple(judged))


def _plain(value: Any) -> Any:
    """JSON values: floats rounded to four digits, null for NaN."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, float):
        return round(value, 4) if math.isfinite(value) else None
    return value
