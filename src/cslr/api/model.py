"""A trained model: its predictions, its privacy cost, and samples of its replay.

Everything in it is public or computed from noised releases, so using, storing and sharing it costs
no ε.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from cslr.api.array_likes import TextsOrVectors, outcomes_of, texts_or_vectors
from cslr.api.replay_draws import ReplayDraws
from cslr.api.streamed import GIVEN
from cslr.arrays import FloatArray
from cslr.config import Config, with_settings
from cslr.errors import ConfigError, DataError, EncoderError, RunDirectoryError
from cslr.files import open_arrays, seal_line, write_atomic
from cslr.privacy.accounting import ADVERSARIES, SCOPES, Adversary, Scope
from cslr.protocol.head import FamilyName
from cslr.runs.directory import SeedDirectory, read_config, read_trace
from cslr.runs.predict import Predictor, load_predictor

__all__ = ["Model", "load"]

_PARTS: Final = ("head", "head-*", "replay", "translations")
"""Files of a seed's directory that belong to a model."""


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A trained model, as ``learn`` and ``load`` return it."""

    predictor: Predictor
    config: Config
    """The configuration of the run."""
    cost: Mapping[str, Any]
    """The ledger's costs when the run was finished."""
    arrays: Mapping[str, Mapping[str, FloatArray]]
    """Arrays of the head, the replay and the encoders' maps, by file and name."""

    @cached_property
    def classes_(self) -> NDArray[np.str_]:
        """(c,) the labels, in the order of the columns of ``predict_proba``."""
        return np.array(self.predictor.model.labels)

    @property
    def tasks(self) -> dict[str, list[str]]:
        """The labels of each task, in the order in which tasks were learnt."""
        names = self.predictor.model.labels
        return {
            task: [names[index] for index in places]
            for task, places in self.predictor.model.tasks.items()
        }

    @property
    def family(self) -> FamilyName:
        """classification, intents or tagging."""
        return self.predictor.model.family

    @property
    def privacy(self) -> str:
        """``"enforced"``, or ``"simulated"``, which protects nobody."""
        return self.config.privacy.mode

    @property
    def delta(self) -> float:
        """δ of every ε that ``epsilon`` returns."""
        return self.config.privacy.delta

    def epsilon(self, adversary: Adversary = "roster", scope: Scope = "end_to_end") -> float:
        """ε by the ledger when this model was finished, including all earlier spending.

        adversary: knows what was published (``"public"``), also who took part (``"roster"``), or
        what reaches the aggregator (``"server"``: ∞ if the aggregator adds the noise). scope:
        everything (``"end_to_end"``) or the replay alone (``"replay"``).
        """
        if adversary not in ADVERSARIES or scope not in SCOPES:
            raise ConfigError(
                f"unknown adversary {adversary!r} or scope {scope!r}; adversaries: "
                f"{', '.join(ADVERSARIES)}; scopes: {', '.join(SCOPES)}"
            )
        epsilon = self.cost["epsilon"][scope][adversary]
        return math.inf if epsilon is None else float(epsilon)

    def predict(self, X: TextsOrVectors, task: str | int | None = None) -> Any:
        """The label (n,) of each of n texts or embeddings (n, d).

        With intents a list of n tuples of labels, the most probable first; with tagging, from texts
        only, a list of n tuples of entities. task: the task of the rows, if it is known.
        """
        if self.family == "tagging":
            texts = texts_or_vectors(X, "X")
            if not isinstance(texts, tuple):
                raise DataError("X must be texts: the entities of a text are found among its words")
            predictions = self.predictor.answers(texts, None if task is None else str(task))
            return [answer.entities for answer in predictions]
        share = self.predict_proba(X, task)
        if self.family == "classification":
            return self.classes_[share.argmax(axis=1)]
        return [self._several(row) for row in share]

    def predict_proba(self, X: TextsOrVectors, task: str | int | None = None) -> FloatArray:
        """(n, c) the probability of each label, in the order of ``classes_``.

        Rows sum to one in classification; with intents each label has a probability of its own.
        """
        if self.family == "tagging":
            raise ConfigError("predict_proba is not defined for tagging; use predict")
        allowed = self.predictor.model.allowed(None if task is None else str(task))
        scores = np.where(allowed, self.predictor.scores(self._vectors(X)), -np.inf)
        share: FloatArray = expit(scores) if self.family == "intents" else softmax(scores, axis=1)
        return share

    def score(self, X: TextsOrVectors, y: Any, task: str | int | None = None) -> float:
        """The share of n rows whose most probable label is correct, or with intents one of theirs.

        NON-PRIVATE: it is exact, and ε does not cover it. Do not publish it for rows of clients.
        """
        best = self.predict_proba(X, task).argmax(axis=1)
        right = outcomes_of(y, self.family, self.predictor.model.labels, len(best))
        return float(np.mean([label in row for label, row in zip(best, right, strict=True)]))

    @cached_property
    def replay(self) -> ReplayDraws:
        """The released generator: ``replay.sample(n, seed)`` draws embeddings and labels."""
        if "replay" not in self.arrays:
            raise RunDirectoryError(
                f"a run of {self.predictor.model.method} has no replay to sample; use one of cslr"
            )
        return ReplayDraws(self.arrays["replay"], self.classes_)

    def save(self, directory: str | PathLike[str]) -> None:
        """Write the model to a new directory, for ``load`` and for ``cslr predict``.

        The paths of rows and ledger are left out.
        """
        folder = Path(directory)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunDirectoryError(f"{folder} exists and is not empty; choose another directory")
        facts, seed = self.predictor.model, int(self.cost["seed"])
        apart = ("stream.data", "stream.declaration", "stream.public", "privacy.federation")
        config = with_settings(self.config, {**dict.fromkeys(apart), "seeds": [seed]})
        kept = SeedDirectory(folder / f"seed-{seed}")
        for name, arrays in self.arrays.items():
            kept.save_arrays(name, arrays)
        plain = json.dumps(config.model_dump(mode="json"), indent=2)
        write_atomic(folder / "config.json", plain.encode() + b"\n")
        write_atomic(folder / "trace.jsonl", seal_line(self.cost).encode() + b"\n")
        replace(facts, seeds=(seed,)).save(folder)

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self._facts().items())
        return f"Model({facts})"

    def _repr_html_(self) -> str:
        rows = [
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(value)}</td></tr>"
            for name, value in {**self._facts(), "labels": ", ".join(self.classes_)}.items()
        ]
        return f"<table><caption>cslr.Model</caption>{''.join(rows)}</table>"

    def _facts(self) -> dict[str, str]:
        facts = self.predictor.model
        return {
            "family": facts.family,
            "labels": str(len(facts.labels)),
            "tasks": str(len(facts.tasks)),
            "encoder": repr(facts.encoder),
            "epsilon": f"{self.epsilon(self.config.privacy.adversary):.4g}",
            "delta": f"{self.delta:g}",
            "adversary": self.config.privacy.adversary,
            "privacy": self.privacy,
        }

    def _several(self, share: FloatArray) -> tuple[str, ...]:
        """The labels with probability above ½, or the most probable one if there are none."""
        order = np.argsort(-share, kind="stable")
        chosen = [label for label in order if share[label] > 0.5] or [order[0]]
        return tuple(str(self.classes_[label]) for label in chosen)

    def _vectors(self, X: TextsOrVectors) -> FloatArray:
        """(n, d) the embeddings given, or those of texts."""
        values = texts_or_vectors(X, "X")
        if isinstance(values, tuple):
            if self.predictor.encoder == GIVEN:
                raise EncoderError(
                    "the model was learnt on embeddings and has no encoder; give embeddings of "
                    "the same kind, or name the encoder when you learn: encoder='minilm'"
                )
            return self.predictor.embedded(values)
        width = self.predictor.width
        if values.shape[1] != width:
            raise DataError(
                f"X has embeddings of {values.shape[1]} numbers; the model was learnt on {width}"
            )
        return values


def load(path: str | PathLike[str], seed: int | None = None) -> Model:
    """Read a saved model, or the model of a finished run.

    seed: the seed whose head is read, if the run has several; None: the first.
    """
    folder = Path(path)
    predictor = load_predictor(folder, seed)
    seed = predictor.model.seeds[0] if seed is None else seed
    trace, _ = read_trace(folder / "trace.jsonl")
    cost = next((line for line in trace if line["kind"] == "cost" and line["seed"] == seed), None)
    if cost is None:
        raise RunDirectoryError(f"{folder} has no record of what its model cost; repeat the run")
    return Model(predictor, read_config(folder), cost, _arrays(folder / f"seed-{seed}"))


def _arrays(folder: Path) -> dict[str, dict[str, FloatArray]]:
    arrays = {}
    for path in sorted(path for part in _PARTS for path in folder.glob(f"{part}.safetensors")):
        try:
            arrays[path.stem] = open_arrays(path.read_bytes())
        except (OSError, ValueError):
            raise RunDirectoryError(f"{path} is damaged; save the model again") from None
    return arrays
