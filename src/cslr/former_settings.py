"""Settings that earlier versions had: files that contain them are still read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["MOVED", "REMOVED", "moved", "without_removed"]

REMOVED: Final[dict[str, object]] = {
    "effort": "short",
    "layer": None,
    "replay.aggregate": "average",
    "replay.anchor_kind": "sentences",
    "replay.clipping": None,
    "replay.grouping": None,
    "replay.second_moments": None,
    "head.hidden": 128,
    "head.learning_rate": 3e-4,
    "head.participation": None,
    "head.passes": 10,
}
"""Settings of earlier versions and the value each is fixed at: a file that has it is still read.

None: the method decides.
"""
MOVED: Final[dict[tuple[str, str], tuple[str, str]]] = {
    ("replay.aggregate", "select"): ("replay.release", "select"),
    ("replay.anchor_kind", "synthetic"): ("replay.matcher", "signature-synthetic"),
    ("replay.anchor_kind", "random"): ("replay.matcher", "signature-random"),
}
"""Values of removed settings that another setting has today."""


def moved(name: str, value: object) -> tuple[str, str] | None:
    """Today's setting and value for a value of a removed one; None: there is no other."""
    return MOVED.get((name, value)) if isinstance(value, str) else None


def without_removed(values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Settings as a file has them, in terms of today's.

    A removed setting is left out at the value it is fixed at, and replaced if another setting has
    its value today; any other value is a ``ValueError`` that says what to do.
    """
    kept: dict[str, Any] = {}
    replaced: dict[str, str] = {}
    for key, value in values.items():
        name = f"{where}{key}"
        if name not in REMOVED:
            kept[key] = without_removed(value, f"{name}.") if isinstance(value, Mapping) else value
        elif (today := moved(name, value)) is not None:
            replaced[today[0].removeprefix(where)] = today[1]
        elif value != REMOVED[name]:
            raise ValueError(f"{name} = {value!r} is not a setting any more; {_advice(name)}")
    for key, value in replaced.items():
        if kept.get(key) is not None:
            raise ValueError(
                f"{where}{key} = {kept[key]!r} contradicts {where}{key} = {value!r}, which a "
                "setting of an earlier version stands for; keep one of the two"
            )
    return {**kept, **replaced}


def _advice(name: str) -> str:
    fixed = REMOVED[name]
    rule = "the method decides it" if fixed is None else f"it is fixed at {fixed!r}"
    return f"{rule}: remove it, or use the version of cslr that the file was written by"
