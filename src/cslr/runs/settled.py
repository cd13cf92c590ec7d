"""The settled configuration of a run: made once, then passed on.

It combines the user's configuration, the declaration of own rows, and the method's settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from cslr.config import Config
from cslr.data.own import Declaration
from cslr.methods.method import Method
from cslr.methods.registry import method_named
from cslr.runs.own_data import complete, declaration_of, is_own

__all__ = ["SettledConfig", "as_settled", "settle"]


@dataclass(frozen=True, eq=False)
class SettledConfig:
    """One method of a run under its settings."""

    given: Config
    """The configuration that the run directory keeps: complete, and the same for all methods."""
    name: str
    """Of the method: the run's own, or one that it is compared with."""
    method: Method
    config: Config
    """``given`` with what the method fixes and what it prefers."""
    declaration: Declaration | None = None
    """What is declared about own rows."""

    @classmethod
    def of(
        cls, given: Config, declaration: Declaration | None = None, name: str | None = None
    ) -> Self:
        """Of a complete configuration, for its own method or for the one of this name."""
        if declaration is None and is_own(given.stream):
            raise ValueError("declaration is required for own rows; use settle(config)")
        name = name or given.method
        method = method_named(name)
        return cls(given, name, method, method.settled(given), declaration)

    @property
    def is_compared(self) -> bool:
        """Whether it is a method that the run's own is compared with."""
        return self.name != self.given.method

    def compared_with(self, name: str) -> SettledConfig:
        """The same run for another method."""
        return SettledConfig.of(self.given, self.declaration, name)


def as_settled(config: Config | SettledConfig) -> SettledConfig:
    """A complete configuration for its own method; itself if it is settled."""
    if isinstance(config, SettledConfig):
        return config
    return SettledConfig.of(config, declaration_of(config.stream))


def settle(config: Config) -> SettledConfig:
    """The configuration with the settings of the declaration of own rows and of the method.

    Settings that contradict the declaration are refused.
    """
    declaration = declaration_of(config.stream)
    return SettledConfig.of(complete(config, declaration), declaration)
