"""Settings that earlier versions had: files that contain them are still read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["MOVED", "REMOVED", "RENAMED", "current_settings", "dotted", "first_names", "nested"]

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
RENAMED: Final[dict[str, str]] = {
    "replay.anchors": "paper.m",
    "replay.list_size": "paper.list_size",
    "head.samples": "paper.n_r",
    "head.replay_weight": "paper.replay_weight",
    "head.replay_loss": "paper.replay_loss",
}
"""Settings that have another name today."""
_EARLIER: Final = {today: earlier for earlier, today in MOVED.items()}
_EARLIER_NAMES: Final = {today: earlier for earlier, today in RENAMED.items()}

_Flat = dict[str, Any]


def current_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a file has them, tables inside one another, in terms of today's.

    A removed setting is left out at the value it is fixed at, and replaced if another setting has
    its value today; any other value is a ``ValueError`` that says what to do.
    """
    flat = dotted(values)
    replaced: _Flat = {}
    for name in [name for name in flat if name in REMOVED]:
        value = flat.pop(name)
        today = MOVED.get((name, value)) if isinstance(value, str) else None
        if today is not None:
            replaced[today[0]] = today[1]
        elif value != REMOVED[name]:
            raise ValueError(f"{name} = {value!r} is not a setting any more; {_advice(name)}")
    for name in [name for name in flat if name in RENAMED]:
        replaced[RENAMED[name]] = flat.pop(name)
    for replace in (_poisoning, _rows, _upgrade, _coordinates):
        replaced.update(replace(flat))
    for name, value in replaced.items():
        if flat.get(name) not in (None, value):
            raise ValueError(
                f"{name} = {flat[name]!r} contradicts {name} = {value!r}, which a "
                "setting of an earlier version stands for; keep one of the two"
            )
    return nested({**flat, **replaced})


def dotted(values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Nested tables as dotted names: ``stream.name = ...`` without quotes is a table in TOML."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{where}{key}"
        flat.update(dotted(value, f"{name}.") if isinstance(value, Mapping) else {name: value})
    return flat


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as tables; ``ValueError`` where one name is a setting and a table."""
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *sections, key = name.split(".")
        target = nested
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise ValueError(f"{section} must be a table, [{section}]")
        target[key] = value
    return nested


def _advice(name: str) -> str:
    fixed = REMOVED[name]
    rule = "the method decides it" if fixed is None else f"it is fixed at {fixed!r}"
    return f"{rule}: remove it, or use the version of cslr that the file was written by"


# -- several settings that are one today: each function takes the former ones out ------------------


def _poisoning(flat: _Flat) -> _Flat:
    """The share of hostile clients and their attack; the default attack without clients is none."""
    share, attack = flat.pop("stream.hostile", None), flat.pop("stream.attack", None)
    if not share and attack in (None, "oppose"):
        return {}
    return {"stream.poisoning": f"{attack or 'oppose'}-{share or 0:g}"}


def _rows(flat: _Flat) -> _Flat:
    """Own rows had no choice but to leave out bad ones."""
    if not flat.pop("stream.skip_bad_rows", False):
        return {}
    if flat.get("stream.rows") == "subset":
        del flat["stream.rows"]
    return {"stream.rows": "valid"}


def _upgrade(flat: _Flat) -> _Flat:
    """The encoder before an upgrade, the tasks released with it, and what becomes of them."""
    encoder, after = flat.pop("upgrade.encoder", None), flat.pop("upgrade.after", 0)
    carry = flat.pop("upgrade.carry", "mapped")
    if (encoder is None) != (after == 0):
        raise ValueError(
            "upgrade.encoder (the encoder before the upgrade) and upgrade.after (the number of "
            "tasks before it) must be set together"
        )
    if encoder is None:
        return {}
    kept = {} if carry == "mapped" else {"replay.coordinates": carry}
    if kept and flat.get("replay.coordinates") == "projection":
        del flat["replay.coordinates"]
    if not flat.get("encoders", True):
        del flat["encoders"]
    return {"encoders": [encoder], "upgrade": after, **kept}


def _coordinates(flat: _Flat) -> _Flat:
    """The number of sentences that maps are fitted on, which nothing but maps reads."""
    count = flat.pop("replay.shared_sentences", None)
    if count is None or flat.get("replay.coordinates") != "mapped":
        return {}
    del flat["replay.coordinates"]
    return {"replay.coordinates": f"mapped-{count}"}


# -- and back -------------------------------------------------------------------------------------


def first_names(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that differ from their defaults, by the names and values they had at first.

    The names of finished cells are made of these.
    """
    flat: _Flat = {}
    for name, value in chosen.items():
        earlier = _EARLIER.get((name, value)) if isinstance(value, str) else None
        flat.update([earlier or (_EARLIER_NAMES.get(name, name), value)])
    if attacked := flat.pop("stream.poisoning", None):
        attack, _, share = attacked.partition("-")
        flat |= {"stream.attack": attack} if attack != "oppose" else {}
        flat |= {"stream.hostile": float(share)} if float(share) else {}
    if after := flat.pop("upgrade", 0):
        flat |= {"upgrade.after": after, "upgrade.encoder": flat.pop("encoders")[0]}
        if carry := flat.pop("replay.coordinates", None):
            flat["upgrade.carry"] = carry
    kind, _, count = flat.get("replay.coordinates", "").partition("-")
    if count:
        flat |= {"replay.coordinates": kind, "replay.shared_sentences": int(count)}
    return flat
