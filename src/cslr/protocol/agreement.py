"""The public settings that clients and server fix before the first release.

The clipping bound comes from *simulated clients on the public corpus*: groups of similar sentences
act as labels, small samples of them as clients.

With the plan the ledger records sketches of the public data: short lists of numbers that are
compared within a tolerance. They are needed because embeddings of the same sentences differ between
machines in their last bits. What is computed from them mostly differs as little, but two sentences
at nearly the same distance from a topic may change places, and directions of nearly equal variance
may rotate into each other. A sketch changes little when that happens, and much when the sentences,
the label texts or the encoder are different. ``records.agree`` compares two sketches: their
Euclidean distance may be at most ``within``.

    centre, texts      random projections, which keep distances approximately
    spectrum, bounds   logarithms, so that distances are relative
    others             projected with B = Σ b_i v_i v_iᵀ / b_1, the public between-topic covariance:
                       invariant to signs of directions and to rotations among equal ones

The projections have entries ±1/√k (Achlioptas 2003) from SHAKE-256: the same on every machine and
with every version of NumPy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.numerics.mixture import Gaussians
from cslr.paper_constants import SHARED_CONSTANTS, PaperConstants
from cslr.privacy.ledger.records import Sketch
from cslr.privacy.plan import Plan
from cslr.privacy.values import Grid
from cslr.protocol.head import Family, Head
from cslr.protocol.literal.reading import written_modes
from cslr.protocol.ports import Examples, Request
from cslr.protocol.public_space import Modes, PublicSpace
from cslr.protocol.step1_list import ListLearner
from cslr.protocol.step4_aggregate.contribution import (
    FEW_UNITS,
    Layout,
    Resolution,
    Statistics,
    elected,
)
from cslr.protocol.step4_aggregate.estimate import Noise, TaskRelease, expected_means
from cslr.protocol.step4_aggregate.mixed_model import model_facts
from cslr.seeding import Seeds

__all__ = ["Agreement", "simulated_clients"]

DIAGONAL_SCALE: Final = 0.01
TARGET_SCALE: Final = 0.1
FILLED: Final = 0.75
"""Share of the registered clients that are expected to contribute to a mode with full weight."""
SIMULATED_CLIENTS: Final = 64
BOUND_QUANTILE: Final = 0.1
"""Quantile of the simulated clients' norms that becomes the clipping bound. Most clients are
clipped: the direction of a contribution matters most. A smaller bound lowers noise and signal
alike, until a client with little data weighs as much as any other."""


@dataclass(frozen=True)
class Agreement:
    """The fixed settings of a federation."""

    space: PublicSpace
    modes: Modes
    learner: ListLearner
    matcher: str
    second_moments: str  # "shared" | "diagonal" | "full" | "tied"
    seed: int
    clients: int  # N, registered
    family: Family
    release: str = "sum"  # or "list": before the sum, every client's noised list
    clipping: str = "joint"  # or "separate": a clip of its own for each of the four statistics
    bounds: tuple[float, ...] = (1.0,)  # S of each clip
    list_bound: float = 1.0  # S of a list
    kept: float = 1.0
    """Share of a simulated client's weight that survives the clip."""
    resolution: Resolution = FEW_UNITS
    clients_per_person: int = 1
    paper: PaperConstants | None = None
    """The constants of the paper's protocol, if it is run exactly as written."""

    @property
    def expected_weight(self) -> float:
        """The expected sum of a mode's weights, if all registered clients participate."""
        return FILLED * self.kept * self.clients

    def layout(self, modes: int) -> Layout:
        """The layout of a contribution about this many modes."""
        r = self.space.dimension
        full = r * (r + 1) // 2
        seconds = {"shared": 1, "tied": 0, "diagonal": r, "full": full}[self.second_moments]
        candidates = self.modes.candidates
        return Layout(
            modes,
            r if candidates is None else candidates.shape[1],
            seconds=seconds,
            targets=self.family.sent(self.modes.pooled or self.paper is not None),
            weight_scale=self.resolution.weight_scale,
            second_scale=self.resolution.second_scale if seconds <= 1 else DIAGONAL_SCALE,
            target_scale=TARGET_SCALE,
            tied=self.resolution.tied,
            tied_scale=self.resolution.tied_scale,
        )

    def list_layout(self, groups: int) -> Layout:
        """The layout of a list that is released: weights, means and one spread for each entry."""
        entries = groups * self.learner.size
        if self.paper is not None:  # complete entries with full second moments, unscaled
            r, outputs = self.space.dimension, self.family.outputs
            return Layout(entries, r, r * (r + 1) // 2, outputs, 1.0, 1.0, 1.0)
        scales = (FEW_UNITS.weight_scale, FEW_UNITS.second_scale, 1.0)
        return Layout(entries, self.space.dimension, 1, 0, *scales)

    def request(
        self,
        task: int,
        labels: tuple[int, ...],
        expected: FloatArray | None = None,
        head: Head | None = None,
    ) -> Request:
        """The request for a task; ``expected`` (K, r) replaces the prototypes' means."""
        groups = self.modes.groups_of(labels)
        chosen = self.modes.of_groups(groups)
        prototypes = self.modes.prototypes
        means = prototypes.mean[chosen] if expected is None else expected
        return Request(
            task=task,
            groups=groups,
            space=self.space,
            prototypes=Gaussians(means, prototypes.covariance[chosen]),
            family=self.family,
            learner=self.learner,
            matcher=self.matcher,
            layout=self.layout(len(chosen)),
            grids=tuple(Grid(bound, share=self.clients_per_person) for bound in self.bounds),
            seed=self.seed,
            candidates=self._candidates_of(groups),
            head=head,
            resolution=self.resolution,
            paper=self.paper,
        )

    def request_after(
        self,
        task: int,
        labels: tuple[int, ...],
        head: Head | None,
        earlier: Sequence[TaskRelease],
    ) -> Request:
        """As ``request``, with prototypes moved to the means that earlier releases predict."""
        if self.paper is not None:
            return self.request(task, labels, head=head)
        modes = self.modes.of_groups(self.modes.groups_of(labels))
        expected = expected_means(earlier, self.modes, self.space, task, modes)
        return self.request(task, labels, expected, head)

    def read(
        self, sums: Statistics, request: Request, plan: Plan, carried: float | None = None
    ) -> TaskRelease:
        """Released sums with the public facts that are needed to read them.

        carried: the noise multiplier that came with the release; None: the plan's.
        """
        share = plan.q * plan.cap / plan.releases / request.sub_modes
        share *= self.resolution.share_of_labels(len(request.groups))
        modes, offered = self.modes.of_groups(request.groups), request.candidates
        winners = None
        if offered is not None:
            winners = elected(sums.offset, offered, np.arange(len(modes)) // request.sub_modes)
        written = None
        if self.paper is not None:
            cohort = self.clients * plan.q * plan.cap / plan.releases
            groups = [self.modes.groups[group] for group in self.modes.group[modes].tolist()]
            written = written_modes(sums, cohort, self.paper, self.family, groups, winners)
        return TaskRelease(
            task=request.task,
            modes=modes,
            prototypes=request.prototypes.mean,
            sums=sums,
            noise=Noise.of(plan.sigma if carried is None else carried, self.bounds, request.layout),
            expected_weight=share * self.expected_weight,
            logits=request.head is not None,
            elected=winners,
            weight_unsure=self.resolution.weight_unsure,
            written=written,
        )

    def _candidates_of(self, groups: tuple[tuple[int, ...], ...]) -> FloatArray | None:
        """(groups, V, r) the public candidates for the means of these groups' modes."""
        if self.modes.candidates is None:
            return None
        return self.modes.candidates[[self.modes.groups.index(group) for group in groups]]

    def public_facts(self) -> dict[str, object]:
        """The public facts that the ledger records with the plan; arrays as sketches."""
        facts: dict[str, object] = {
            "space": space_facts(self.space),
            "seed": self.seed,
            "modes": len(self.modes.group),
            "dimension": self.space.dimension,
            "second_moments": self.second_moments,
            "learner": asdict(self.learner),
            "matcher": self.matcher,
            "prototypes": modes_facts(self.modes, self.space),
            "clients": self.clients,
            "family": self.family.name,
            "release": self.release,
            "bounds": bounds_sketch((*self.bounds, self.list_bound)),
            "model": model_facts(),
        }
        if self.resolution != FEW_UNITS:  # plans of few units stay equal to those of old versions
            facts["resolution"] = self.resolution.facts()
        if self.paper is not None:
            facts["paper"] = self.paper.model_dump(mode="json", exclude=SHARED_CONSTANTS)
        if self.clients_per_person > 1:
            facts["clients_per_person"] = self.clients_per_person
        return facts


def simulated_clients(
    public: FloatArray, labels: int, seeds: Seeds, rows: int = FEW_UNITS.simulated_rows
) -> Examples:
    """Units made of public sentences (n, d); each has ``rows`` from each of ``labels`` topics.

    A topic is a random sentence with those nearest to it.
    """
    rng = seeds.at("simulated clients")
    z = public.astype(np.float64)
    size = max(FEW_UNITS.simulated_rows, len(z) // 25)
    shape = (SIMULATED_CLIENTS, labels)
    centres = rng.choice(len(z), size=shape)
    near = np.argsort(-(z[centres.ravel()] @ z.T), axis=1, kind="stable")[:, :size]
    picks = rng.integers(size, size=(len(near), rows))
    chosen = z[np.take_along_axis(near, picks, axis=1)]  # (clients × labels, rows, d)
    chosen = chosen.reshape(SIMULATED_CLIENTS, labels * rows, z.shape[1])
    of_rows = np.tile(np.repeat(np.arange(labels), rows), (SIMULATED_CLIENTS, 1))
    return Examples(chosen, of_rows, np.ones_like(of_rows, bool), tuple(range(SIMULATED_CLIENTS)))


# -- sketches: public facts for the plan -----------------------------------------------------------

CENTRE_WITHIN: Final = 3e-5
"""Relative to embeddings of length 1. If every entry of all public embeddings has the same error of
1e-6, the centre moves by 2e-5 in 384 dimensions; independent errors move it much less. Replacing
one sentence of 10,000 moves it by about 1e-4."""
TEXT_WITHIN: Final = 1e-4
"""The same for a label text: errors of 1e-6 move it by 2e-5, a changed word by 1e-2 or more."""
TOPIC_WITHIN: Final = 0.01
"""Relative, for what depends on which sentences are neighbours, since a few may change places."""
PROTOTYPE_WITHIN: Final = 0.02
"""Relative to embeddings of length 1, for each mode: a few sentences of a label may change."""
BOUND_WITHIN: Final = 0.02
"""Relative, for a quantile over simulated clients made of public sentences."""
_LEADING: Final = 8
_MANY: Final = 64
_FEW: Final = 8


def space_facts(space: PublicSpace) -> dict[str, object]:
    """The plan's facts about the public space."""
    seen = _through(space)  # (d, r)
    signs = _probes("anchors", _FEW, len(space.anchors)) * np.sqrt(_FEW / len(space.anchors))
    anchors = (space.anchors * _weights(space)) @ (signs @ space.anchors).T  # (m, few)
    anchors = _probes("of anchors", _FEW, len(anchors)) @ anchors
    centre = _probes("centre", _MANY, len(space.centre)) @ space.centre
    probes = _probes("directions", _MANY, len(space.centre))
    ambient = probes @ space.basis  # (many, d)
    return {
        "encoder": space.encoder,
        "centre": Sketch.of(centre, CENTRE_WITHIN),
        "spectrum": Sketch.of(_logs(_spectrum(space)), TOPIC_WITHIN * np.sqrt(_LEADING)),
        "directions": Sketch.of(_unit(np.square(probes @ seen).sum(axis=1)), TOPIC_WITHIN),
        "shape": Sketch.of(
            _unit(np.einsum("ki,ij,kj->k", ambient, space.within, ambient)), TOPIC_WITHIN
        ),
        "anchors": Sketch.of(_unit(anchors), TOPIC_WITHIN),
    }


def modes_facts(modes: Modes, space: PublicSpace) -> dict[str, object]:
    """The plan's facts about the prototypes."""
    seen = _through(space) * np.sqrt(_weights(space))
    means = modes.prototypes.mean @ seen.T  # (K, d)
    facts: dict[str, object] = {
        "labels": modes.labels.tolist(),
        "means": Sketch.of(
            means @ _probes("prototypes", _FEW, means.shape[1]).T,
            PROTOTYPE_WITHIN * np.sqrt(len(means)),
        ),
    }
    if modes.texts is not None:
        projected = modes.texts @ _probes("texts", _FEW, modes.texts.shape[1]).T
        facts["texts"] = [Sketch.of(each, TEXT_WITHIN) for each in projected]
    return facts


def bounds_sketch(bounds: tuple[float, ...]) -> Sketch:
    """The clipping bounds."""
    return Sketch.of(_logs(np.array(bounds)), BOUND_WITHIN)


def _spectrum(space: PublicSpace) -> FloatArray:
    """(8 + 1,) the largest between-topic variances, and the total within-topic variance."""
    return np.append(space.between[:_LEADING], np.trace(space.within))


def _weights(space: PublicSpace) -> FloatArray:
    """(r,) b_i / b_1 of the released directions."""
    weights: FloatArray = space.between[: space.dimension] / space.between[0]
    return weights


def _through(space: PublicSpace) -> FloatArray:
    """(d, r) the released directions, each times √(b_i / b_1)."""
    through: FloatArray = space.basis[:, : space.dimension] * np.sqrt(_weights(space))
    return through


def _probes(name: str, count: int, width: int) -> FloatArray:
    """(count, width) ±1/√count: a random projection that keeps lengths on average."""
    bits = hashlib.shake_256(f"cslr/sketch/1/{name}".encode()).digest(-(-count * width // 8))
    signs = np.unpackbits(np.frombuffer(bits, dtype=np.uint8))[: count * width]
    probes: FloatArray = (2.0 * signs - 1.0).reshape(count, width) / np.sqrt(count)
    return probes


def _logs(values: FloatArray) -> FloatArray:
    logs: FloatArray = np.log(np.maximum(values, np.finfo(np.float64).tiny))
    return logs


def _unit(values: FloatArray) -> FloatArray:
    """Scaled to length 1, so that distances are relative."""
    unit: FloatArray = values / max(float(np.linalg.norm(values)), np.finfo(np.float64).tiny)
    return unit
