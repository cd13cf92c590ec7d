"""Training schedule of both networks, chosen to run on two cores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from cslr.config import HeadConfig

__all__ = ["RECIPE", "TrainingSchedule", "recipe_of"]


@dataclass(frozen=True)
class TrainingSchedule:
    """Lengths, step sizes and other constants of training; public."""

    rounds: int
    iterations: int
    rate: float
    consolidation: int
    generator_rate: float = 0.3
    """The generator's rate, relative to the critic's."""
    coordinates: int = 100
    noise: int = 100
    generator_hidden: int = 128
    batch: int = 32
    consistency: float = 1.0
    norm: float = 3.0
    """The clipping bound of a client's update of both networks."""
    trust: float = 3.0
    """Standard deviations by which a layer's update must exceed its noise to be used at all."""
    pool: int = 2048
    prior_rows: int = 4000
    imitation: int = 400
    server_rate: float = 1e-4


RECIPE: Final = TrainingSchedule(5, 50, 1e-3, 50)
"""Published: 10 rounds of 400 iterations at 1e-4 and 100 of consolidation."""


def recipe_of(head: HeadConfig) -> TrainingSchedule:
    """The recipe, with rounds and clipping bound from the configuration if they are given."""
    return replace(RECIPE, rounds=head.rounds or RECIPE.rounds, norm=head.clip or RECIPE.norm)
