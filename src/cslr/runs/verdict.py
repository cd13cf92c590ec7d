"""The verdict of a run in one sentence: the first line of every result.

It depends on the values of ``result.json`` only, so a stored run and a fresh one have the same
verdict, and scores that are not stored cannot enter it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

__all__ = ["Level", "Verdict", "verdict_of"]

Level = Literal["above", "below", "unknown"]

_FREE_HEAD: Final = "below zero-shot: keep the free head (--method zero-shot, ε = 0)"


@dataclass(frozen=True)
class Verdict:
    """A sentence, and whether private data helped."""

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
