"""Definition 1 and Theorem 2 on measured candidates: how many anchors separate them.

    p̂_γ     the share of public sentences at which two candidates of different modes differ by γ;
            Definition 1 takes the minimum over all pairs, the paper's table shows a mean
    m       (1/p̂) log(N²/η) by the theorem, or the smallest count that sufficed in random draws

Signatures are standardised, so γ counts standard deviations of a candidate's log densities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.config import Config
from cslr.errors import ConfigError, DataError
from cslr.numerics.mixture import log_density
from cslr.protocol.step2_sign import (
    anchors_needed,
    failure_bound,
    pair_hits,
    pair_margins,
    standardised,
)
from cslr.research.theory.candidates import Candidates, simulated_candidates
from cslr.research.theory.coverage import Coverage, Licence, coverage, licence_of
from cslr.runs.embedded import EmbeddedStream
from cslr.seeding import Seeds

__all__ = [
    "MARGIN",
    "SWEEP",
    "Examined",
    "Prescription",
    "Sweep",
    "Tried",
    "examine",
    "prescribe",
    "sweep",
]

MARGIN: Final = 0.25
"""The default of γ: a quarter of a signature's standard deviation."""

SWEEP: Final = (10, 25, 50, 100, 200)
"""The paper's anchor counts."""
REFERENCE: Final = 1000
"""Public sentences that stand for the anchor distribution ρ."""
DRAWS: Final = 20
"""How often each number of anchors is drawn at random."""


@dataclass(frozen=True)
class Prescription:
    """Theorem 2 for N candidates, hit probability p and failure probability η."""

    candidates: int  # N
    hit: float  # p
    failure: float  # η
    anchors: int
    """m by the theorem."""
    fewest: int
    """The least m whose union bound over N(N − 1)/2 pairs is at most η."""


def prescribe(candidates: int, hit: float, failure: float) -> Prescription:
    """How many anchors are enough."""
    most = anchors_needed(candidates, hit, failure)
    fewest = most
    if candidates > 1 and hit < 1:
        pairs = candidates * (candidates - 1) / 2
        fewest = max(1, math.ceil(math.log(pairs / failure) / -math.log1p(-hit)))
    elif failure_bound(candidates, hit, 1) <= failure:
        fewest = 1
    return Prescription(candidates, hit, failure, most, min(fewest, most))


@dataclass(frozen=True)
class Tried:
    """The separation by one number of anchors, averaged over draws of them."""

    anchors: int  # m
    hit_mean: float
    """Mean over pairs of the share of anchors that separate a pair by γ."""
    hit_least: float
    """The minimum over pairs of that share."""
    margin: float
    """The minimum over pairs of the largest difference at any anchor."""
    missed: float
    """Share of draws in which no anchor separates some pair by γ."""
    neighbours: float
    """Share of candidates whose nearest signature at another client is of their own mode."""
    bound: float
    """The upper bound on ``missed`` by Theorem 2's proof, from the hit rate at the reference."""


@dataclass(frozen=True)
class Sweep:
    """The separation of candidates by increasing numbers of anchors."""

    candidates: int  # N, after sampling
    total: int
    """The number of candidates before sampling."""
    pairs: int
    """Pairs of candidates of different modes."""
    margin: float  # γ
    failure: float  # η
    reference: int
    hit_mean: float
    hit_least: float  # p̂_γ of Definition 1, at the reference
    unseen: float
    """Share of pairs that no public sentence of the reference separates by γ."""
    tried: tuple[Tried, ...]
    prescribed: int | None
    """m by Theorem 2 with p̂ = ``hit_least``; None if that is 0, so that no number is enough."""

    @property
    def enough(self) -> int | None:
        """The smallest anchor count tried for which at most a share η of draws missed a pair."""
        return next((each.anchors for each in self.tried if each.missed <= self.failure), None)


def sweep(
    candidates: Candidates,
    public: FloatArray,
    counts: Sequence[int],
    margin: float,
    failure: float,
    rng: np.random.Generator,
    draws: int = DRAWS,
) -> Sweep:
    """Try every m of ``counts`` on ``draws`` random choices among the sentences public (n, r)."""
    if max(counts) > len(public):
        raise ValueError(
            f"counts: {max(counts)} anchors cannot be drawn from {len(public)} public sentences"
        )
    if not margin > 0:
        raise ValueError(f"margin must be positive, not {margin}")
    pool = rng.permutation(len(public))[: max(REFERENCE, *counts)]
    raw = log_density(candidates.gaussians, public[pool]).T  # (N, M)
    ids = candidates.ids
    hits = pair_hits(standardised(raw).astype(np.float32), ids, margin)
    if not len(hits):
        raise ValueError("candidates must have at least two modes")
    least = float(hits.min())
    tried = [_try(raw, candidates, m, margin, least, rng, draws) for m in sorted(set(counts))]
    return Sweep(
        candidates=len(ids),
        total=candidates.total,
        pairs=len(hits),
        margin=margin,
        failure=failure,
        reference=len(pool),
        hit_mean=float(hits.mean()),
        hit_least=least,
        unseen=float(np.mean(hits == 0)),
        tried=tuple(tried),
        prescribed=anchors_needed(candidates.total, least, failure) if least > 0 else None,
    )


def _try(
    raw: FloatArray,
    candidates: Candidates,
    anchors: int,
    margin: float,
    least: float,
    rng: np.random.Generator,
    draws: int,
) -> Tried:
    """Draw m of the M columns of raw log densities (N, M), ``draws`` times."""
    seen = []
    for _ in range(draws):
        chosen = rng.choice(raw.shape[1], size=anchors, replace=False)
        signed = standardised(raw[:, chosen]).astype(np.float32)
        hits = pair_hits(signed, candidates.ids, margin)
        margins = pair_margins(signed, candidates.ids)
        alike = _neighbours(signed, candidates.ids, candidates.clients)
        seen.append((hits.mean(), hits.min(), margins.min(), margins.min() < margin, alike))
    hit_mean, hit_least, margin_least, missed, alike = np.mean(seen, axis=0).tolist()
    bound = failure_bound(candidates.total, least, anchors) if least > 0 else 1.0
    return Tried(anchors, hit_mean, hit_least, margin_least, missed, alike, bound)


def _neighbours(signed: FloatArray, ids: IntArray, clients: IntArray) -> float:
    """Share of candidates whose nearest signature at another client has their id; NaN if none."""
    squares = np.square(signed).sum(axis=1)
    distance = squares[:, None] + squares - 2.0 * signed @ signed.T
    distance[clients[:, None] == clients] = np.inf
    judged = np.isfinite(distance).any(axis=1)
    alike = ids[distance.argmin(axis=1)] == ids
    return float(alike[judged].mean()) if judged.any() else math.nan


@dataclass(frozen=True)
class Examined:
    """A stream's public sentences as anchors: number, coverage and licence."""

    stream: str
    seed: int
    unit: str
    """What an anchor is: a sentence, or for tagging a word."""
    sweep: Sweep
    coverage: Coverage
    licence: Licence


def examine(
    config: Config,
    embedded: EmbeddedStream,
    margin: float,
    failure: float,
    counts: Sequence[int] | None,
) -> Examined:
    """NON-PRIVATE: reads the lists of simulated clients without noise.

    counts: the anchor counts to try; None: the paper's.
    """
    name, sentences = embedded.stream.name, len(embedded.public)
    unit = "word" if embedded.family.name == "tagging" else "sentence"
    if config.replay.anchor_kind != "sentences" or config.replay.pooled:
        raise ConfigError(
            "cslr anchors supports lists per label and public sentences as anchors only: "
            "remove replay.matcher and replay.release"
        )
    most = max([config.paper.m, *(counts or ())])
    if most > sentences:
        raise ConfigError(
            f"stream {name!r} has {sentences} public {unit}s, so {most} anchors cannot be "
            "drawn from them; use fewer with --anchor-count or --sweep"
        )
    candidates = simulated_candidates(config, embedded)
    if len(np.unique(candidates.ids)) < 2:
        raise DataError(f"stream {name!r} has one mode only, so there is nothing to separate")
    seed, public = config.seeds[0], candidates.space.into(embedded.public)
    tried = counts or [count for count in SWEEP if count <= sentences]
    seen = sweep(candidates, public, tried, margin, failure, Seeds(seed).at("anchors tried"))
    covered = coverage(candidates.space.anchors, public, candidates.rows, candidates.gaussians.mean)
    return Examined(name, seed, unit, seen, covered, licence_of(config.stream.data))
