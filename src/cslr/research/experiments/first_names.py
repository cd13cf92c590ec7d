"""The names and values that settings had in earlier versions; names of cells are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["FORMERLY", "first_names"]

FORMERLY: Final[dict[str, str]] = {
    "paper.m": "replay.anchors",
    "paper.list_size": "replay.list_size",
    "paper.n_r": "head.samples",
    "paper.replay_weight": "head.replay_weight",
    "paper.replay_loss": "head.replay_loss",
}
"""The earlier names of settings that were renamed."""
_MOVED: Final[dict[tuple[str, str], tuple[str, str]]] = {
    ("replay.release", "select"): ("replay.aggregate", "select"),
    ("replay.matcher", "signature-synthetic"): ("replay.anchor_kind", "synthetic"),
    ("replay.matcher", "signature-random"): ("replay.anchor_kind", "random"),
}
"""The earlier names and values of values that moved to another setting."""


def first_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings (dotted names) under the names and with the values they had at first."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        moved = _MOVED.get((name, value)) if isinstance(value, str) else None
        flat.update([moved or (FORMERLY.get(name, name), value)])
    if attacked := flat.pop("stream.poisoning", None):
        attack, _, share = attacked.partition("-")
        flat |= {"stream.attack": attack} if attack != "oppose" else {}
        flat |= {"stream.hostile": float(share)} if float(share) else {}
    if after := flat.pop("upgrade", 0):
        flat |= {"upgrade.after": after, "upgrade.encoder": flat.pop("encoders")[0]}
        carry = flat.pop("replay.coordinates", "projection")
        flat |= {"upgrade.carry": carry} if carry != "projection" else {}
    kind, _, count = flat.get("replay.coordinates", "").partition("-")
    if count:
        flat |= {"replay.coordinates": kind, "replay.shared_sentences": int(count)}
    return flat
