"""Settings as tables inside one another, and as dotted names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["dotted", "nested"]


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
