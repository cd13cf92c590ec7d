"""What clients and server agree on before the first release. All of it is public.

The clipping bound comes from *simulated clients on the public corpus*: groups of like sentences
stand for labels, small samples of them for clients.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from cslr.numerics.gaussian import Gaussians
from cslr.privacy.grid import Grid
from cslr.protocol.ports import Examples, Request
from cslr.protocol.public import Modes, PublicSpace
from cslr.protocol.step1_list import ListLearner
from cslr.protocol.step4_aggregate.contribution import Layout
from cslr.protocol.step4_aggregate.effects import model_facts
from cslr.protocol.targets import Family
from cslr.seeding import Seeds
from cslr.types import FloatArray

__all__ = ["Agreement", "simulated_clients"]

WEIGHT_SCALE: Final = 0.05
"""A weight is at most 1, an offset about 0.4: the weight block takes a small part of the norm."""
SHARED_SCALE: Final = 0.5
DIAGONAL_SCALE: Final = 0.01
TARGET_SCALE: Final = 0.1
FILLED: Final = 0.75
"""Share of the registered clients expected to speak fully about a mode."""
SIMULATED_CLIENTS: Final = 64
SIMULATED_ROWS: Final = 16
BOUND_QUANTILE: Final = 0.1
"""Most clients are clipped: what counts is the direction in which a client points, and a smaller
bound lowers signal and noise alike until a client with little to say weighs as much as any."""


@dataclass(frozen=True)
class Agreement:
    """The fixed settings of a federation."""

    space: PublicSpace
    modes: Modes
    learner: ListLearner
    matcher: str
    second_moments: str  # "shared" | "diagonal"
    seed: int
    clients: int  # N, registered
    family: Family
    bound: float = 1.0  # S
    kept: float = 1.0
    """Share of a simulated client's weight that survives the clip."""

    @property
    def expected_weight(self) -> float:
        """What a mode's weights are expected to sum to if all registered clients take part."""
        return FILLED * self.kept * self.clients

    def layout(self, modes: int) -> Layout:
        """The layout of a contribution about this many modes."""
        r = self.space.dimension
        shared = self.second_moments == "shared"
        return Layout(
            modes,
            r,
            seconds=1 if shared else r,
            targets=self.family.sent,
            weight_scale=WEIGHT_SCALE,
            second_scale=SHARED_SCALE if shared else DIAGONAL_SCALE,
            target_scale=TARGET_SCALE,
        )

    def request(
        self, task: int, labels: tuple[int, ...], expected: FloatArray | None = None
    ) -> Request:
        """What clients are told for a task; ``expected`` (K, r) replaces the prototypes' means."""
        chosen = self.modes.of_labels(labels)
        prototypes = self.modes.prototypes
        means = prototypes.mean[chosen] if expected is None else expected
        return Request(
            task=task,
            labels=labels,
            space=self.space,
            prototypes=Gaussians(means, prototypes.covariance[chosen]),
            family=self.family,
            learner=self.learner,
            matcher=self.matcher,
            layout=self.layout(len(chosen)),
            grid=Grid(self.bound),
            seed=self.seed,
        )

    def public_facts(self) -> dict[str, object]:
        """What the ledger fixes together with the plan."""
        return {
            "space": self.space.digest(),
            "modes": len(self.modes.labels),
            "dimension": self.space.dimension,
            "second_moments": self.second_moments,
            "learner": asdict(self.learner),
            "matcher": self.matcher,
            "prototypes": self.modes.digest(),
            "clients": self.clients,
            "family": self.family.name,
            "bound": round(self.bound, 9),
            "model": model_facts(),
        }


def simulated_clients(public: FloatArray, labels: int, seeds: Seeds) -> Examples:
    """Clients of public sentences (n, d); each holds rows of ``labels`` groups of like ones."""
    rng = seeds.at("simulated clients")
    z = public.astype(np.float64)
    size = max(SIMULATED_ROWS, len(z) // 25)
    shape = (SIMULATED_CLIENTS, labels)
    centres = rng.choice(len(z), size=shape)
    near = np.argsort(-(z[centres.ravel()] @ z.T), axis=1, kind="stable")[:, :size]
    picks = rng.integers(size, size=(len(near), SIMULATED_ROWS))
    rows = z[np.take_along_axis(near, picks, axis=1)]  # (clients × labels, rows, d)
    rows = rows.reshape(SIMULATED_CLIENTS, labels * SIMULATED_ROWS, z.shape[1])
    of_rows = np.tile(np.repeat(np.arange(labels), SIMULATED_ROWS), (SIMULATED_CLIENTS, 1))
    return Examples(rows, of_rows, np.ones_like(of_rows, bool), tuple(range(SIMULATED_CLIENTS)))
