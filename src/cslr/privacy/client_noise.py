"""What a plan fixes where clients add the noise themselves, inside a secure sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cslr.errors import ConfigError

__all__ = ["DRAW_ERROR", "ClientNoise"]

DRAW_ERROR: Final = 2.0**-48
"""Total variation between one draw of ``noise.discrete_gaussian`` and the discrete Gaussian."""


@dataclass(frozen=True)
class ClientNoise:
    """How clients add the noise themselves, inside a secure sum. All of it is public."""

    members: int  # n
    threshold: int  # t
    colluders: int  # c
    coordinates: int
    """D: the most coordinates of one release."""
    spare: int = 0
    """Sessions beyond the planned ones that the budget has room for: one that ends without a sum is
    charged, and so is its repetition."""

    def __post_init__(self) -> None:
        if not 1 <= self.colluders < self.threshold <= self.members:
            raise ConfigError(
                "colluders and threshold must satisfy 1 ≤ c < t ≤ n, not "
                f"c = {self.colluders}, t = {self.threshold}, n = {self.members}"
            )
        if self.spare < 0 or self.coordinates < 1:
            raise ConfigError("spare must be at least 0, and coordinates at least 1")

    @property
    def reserved(self) -> float:
        """n · D · 2⁻⁴⁸: what the samplers take from δ in one session."""
        return self.members * self.coordinates * DRAW_ERROR
