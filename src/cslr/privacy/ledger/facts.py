"""The public facts of a plan, and the comparison of two plans.

Everything is compared exactly, except a ``Sketch``: numbers that differ slightly between machines.
Two sketches agree if their Euclidean distance is at most the tolerance that both state. Nothing
here depends on private rows, and on one machine nothing is rounded: the same public vectors give
the same bits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, Final, Self

from cslr.privacy.ledger.chain import canonical

__all__ = ["Sketch", "agree", "differences", "plain"]

_KEYS: Final = frozenset({"values", "within"})


class Sketch(dict[str, Any]):
    """``{"values": [...], "within": tolerance}``, as it is written in the ledger.

    Floats are written with all their digits, so they are read back as they were.
    """

    @classmethod
    def of(cls, values: Iterable[Any], within: float) -> Self:
        """The numbers of an array of any shape, with the distance that is allowed between two."""
        flat = [float(value) for value in _flat(values)]
        if not all(map(math.isfinite, flat)):
            raise ValueError("values must be finite")
        if not 0 <= within < math.inf:
            raise ValueError(f"within must be a finite number of at least 0, not {within}")
        return cls(values=flat, within=float(within))


def agree(before: Any, after: Any) -> bool:
    """Whether two plain values are the same, sketches within their tolerance."""
    if isinstance(before, dict) and isinstance(after, dict):
        if before.keys() != after.keys():
            return False
        if before.keys() == _KEYS:
            return _distance(before, after) <= float(before["within"])
        return all(agree(before[key], after[key]) for key in before)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(agree, before, after))
    return bool(before == after)


def differences(before: Any, after: Any, where: str = "") -> str:
    """The dotted names under which two plain values differ."""
    if agree(before, after):
        return ""
    if _is_sketch(before) and _is_sketch(after):
        apart = _distance(before, after)
        return f"{where} ({apart:.2g} apart, {before['within']:.2g} allowed)"
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted(before.keys() | after.keys())
        pairs = [(key, before.get(key), after.get(key)) for key in keys]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = [(str(index), *pair) for index, pair in enumerate(zip(before, after, strict=True))]
        if not any(isinstance(value, dict) for value in before):
            return f"{where} ({before} -> {after})"
    else:
        return f"{where} ({_shown(before)} -> {_shown(after)})"
    nested = [differences(one, two, f"{where}.{key}".lstrip(".")) for key, one, two in pairs]
    return ", ".join(text for text in nested if text)


def plain(value: object) -> Any:
    """As it will be read back from the file."""
    return json.loads(canonical(value))


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, Iterable):
            yield from _flat(value)
        else:
            yield value


def _is_sketch(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == _KEYS


def _distance(before: dict[str, Any], after: dict[str, Any]) -> float:
    """∞ unless both are sketches of as many numbers with the same tolerance."""
    one, two = before["values"], after["values"]
    if before["within"] != after["within"] or len(one) != len(two):
        return math.inf
    return math.dist(one, two)


def _shown(value: Any) -> str:
    """A value short enough for a message."""
    return "numbers" if isinstance(value, dict) else str(value)
