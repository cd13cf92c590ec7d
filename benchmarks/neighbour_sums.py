"""Secure sums over neighbour graphs, simulated: exactness with dropouts, CPU time and bytes.

    python benchmarks/neighbour_sums.py --members 100 1000
    python benchmarks/neighbour_sums.py --write          # into docs/secure-sum.md, 10⁴ members too
    python benchmarks/neighbour_sums.py --members 10000 --write      # one row again

Members share secrets with k neighbours and mask their vectors with them alone (Bell et al. 2020),
with the keys, masks, shares and noise of ``cslr.privacy.secure_sum``. One row is one first release
in which a tenth of the members is lost after sharing; the sum of the survivors is compared with
the plain sum of their integers, and must be equal. It is a simulation in one process: survivors
give no consent, and the state machines of a federation use the complete graph.

``--write`` stores the figures in ``neighbour_sums.json``, too, from which ``many_devices.py``
computes what a release over 10⁷ devices would take.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from neighbours import (
    Neighbourhood,
    least_neighbourhood,
    neighbour_graph,
    risks_of,
)

from cslr.privacy.noise_shares import draw_share, share_scale
from cslr.privacy.secure_sum.masks import (
    Context,
    MaskSum,
    agree,
    body_digest,
    commitment_of,
    public_of,
    seal,
    sign,
    unseal,
    verifies,
)
from cslr.privacy.secure_sum.shamir import SHARE_BYTES, combine, split
from cslr.privacy.secure_sum.terms import Release
from cslr.privacy.values import Grid

CORRUPT, DROPPED = 0.1, 0.2
"""Shares of members that the graph tolerates; in the simulation a tenth drops out."""
SIGMA = 2.0
TERMS = body_digest(b"neighbour sums")
ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "secure-sum.md"
STORED: Final = ROOT / "benchmarks" / "neighbour_sums.json"
DEFAULT: Final = ((100, 386), (1_000, 386), (1_000, 49_796), (10_000, 386))


@dataclass
class Meter:
    """CPU seconds and bytes, by party and direction."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _begun: float = 0.0
    _who: str = ""

    def turn(self, who: str) -> None:
        """Count CPU time for this party from now on."""
        now = time.process_time()
        if self._who:
            self.seconds[self._who] += now - self._begun
        self._who, self._begun = who, now


@dataclass(frozen=True)
class Setting:
    """What all members know."""

    members: int
    shape: Neighbourhood
    graph: np.ndarray  # (n, k)
    release: Release

    @property
    def context(self) -> Context:
        """The context of the only session."""
        return Context(TERMS, 1, self.release.digest)

    @property
    def noise_scale(self) -> float:
        """Grid steps of a member's noise share: enough without the dropped and the corrupt."""
        alive = math.floor((1 - DROPPED) * self.members)
        bad = max(1, math.ceil(CORRUPT * self.members))
        return share_scale(self.release.sigma, self.release.grid.steps, alive, bad)


@dataclass(frozen=True)
class Published:
    """What the server forwards from a member: keys, a commitment, and sealed shares."""

    channel: bytes
    channel_signature: bytes
    mask_key: bytes = b""
    commitment: bytes = b""
    sealed: tuple[bytes, ...] = ()


class Member:
    """One device of the simulation."""

    def __init__(self, number: int, setting: Setting) -> None:
        self.number, self.setting = number, setting
        self.neighbours: list[int] = setting.graph[number].tolist()
        self.identity = Ed25519PrivateKey.generate()
        self.public = self.identity.public_key().public_bytes_raw()

    def join(self) -> Published:
        """A signed channel key."""
        self.channel = X25519PrivateKey.generate()
        public = self.channel.public_key().public_bytes_raw()
        return Published(public, sign(self.identity, TERMS, public))

    def share(self, peers: list[tuple[bytes, Published]]) -> tuple[Published, bytes]:
        """New secrets, shared among the neighbours; peers: their identities and channel keys."""
        for identity, peer in peers:
            if not verifies(identity, peer.channel_signature, TERMS, body_digest(peer.channel)):
                raise RuntimeError("a channel key is not signed by its member")
        self.secrets = [agree(self.channel, peer.channel) for _, peer in peers]
        self.mask_secret, self.seed = X25519PrivateKey.generate(), os.urandom(32)
        secret = self.mask_secret.private_bytes_raw()
        mask_key, commitment = public_of(secret), commitment_of(self.seed)
        points = [other + 1 for other in self.neighbours]
        shares = split([secret, self.seed], points, self.setting.shape.threshold)
        context = self.setting.context
        sealed = tuple(
            seal(
                channel,
                context.pair(b"share", self.number, other),
                b"".join(both),
                mask_key + commitment,
            )
            for channel, other, both in zip(self.secrets, self.neighbours, shares, strict=True)
        )
        body = mask_key + commitment + b"".join(sealed)
        return Published(b"", b"", mask_key, commitment, sealed), sign(self.identity, TERMS, body)

    def mask(self, vector: np.ndarray, parcels: list[Published]) -> tuple[np.ndarray, bytes]:
        """The vector with a noise share under masks; parcels: one sealed share a neighbour.

        The words that the server gets, and a signature. The noise is kept for the check.
        """
        context, release = self.setting.context, self.setting.release
        self.held: list[tuple[bytes, bytes]] = []
        for channel, other, parcel in zip(self.secrets, self.neighbours, parcels, strict=True):
            name = context.pair(b"share", other, self.number)
            both = unseal(channel, name, parcel.sealed[0], parcel.mask_key + parcel.commitment)
            if both is None:
                raise RuntimeError("a share was not sealed for this member")
            self.held.append((both[:SHARE_BYTES], both[SHARE_BYTES:]))
        self.noise = draw_share(self.setting.noise_scale, release.coordinates, os.urandom(32))
        total = MaskSum(release.coordinates)
        total.add_words((vector + self.noise).view(np.uint64))
        total.add_mask(context.self_key(self.seed, self.number), 1)
        for other, parcel in zip(self.neighbours, parcels, strict=True):
            key = context.pair_key(agree(self.mask_secret, parcel.mask_key), self.number, other)
            total.add_mask(key, 1 if self.number < other else -1)
        return total.total, sign(self.identity, TERMS, total.total.tobytes())

    def unmask(self, alive: set[int]) -> tuple[bytes, ...]:
        """For each neighbour a share of its seed, or of its mask secret if it dropped out."""
        return tuple(
            held[1] if other in alive else held[0]
            for other, held in zip(self.neighbours, self.held, strict=True)
        )


def simulated(setting: Setting, meter: Meter) -> None:
    """One release; raises unless the sum is exactly that of the survivors."""
    n, release = setting.members, setting.release
    meter.turn("outside")
    rows = np.random.default_rng(1).integers(-1000, 1000, size=(n, release.coordinates))
    members = [Member(number, setting) for number in range(n)]
    meter.turn("member")
    joined = [member.join() for member in members]
    shared, signatures = [], []
    for member in members:
        around = [(members[other].public, joined[other]) for other in member.neighbours]
        published, signature = member.share(around)
        shared.append(published)
        signatures.append(signature)
    meter.turn("server")
    for member, join, published, signature in zip(members, joined, shared, signatures, strict=True):
        digests = (body_digest(join.channel), body_digest(_body(published)))
        both = zip((join.channel_signature, signature), digests, strict=True)
        if not all(verifies(member.public, text, TERMS, digest) for text, digest in both):
            raise RuntimeError("an answer is not signed by its member")
    place = [{other: i for i, other in enumerate(member.neighbours)} for member in members]
    lost = set(np.random.default_rng(2).choice(n, size=n // 10, replace=False).tolist())
    alive = set(range(n)) - lost
    total, plain = MaskSum(release.coordinates), np.zeros(release.coordinates, dtype=np.int64)
    for number in sorted(alive):
        meter.turn("server")
        parcels = [
            Published(
                b"",
                b"",
                shared[other].mask_key,
                shared[other].commitment,
                (shared[other].sealed[place[other][number]],),
            )
            for other in members[number].neighbours
        ]
        meter.turn("member")
        words, signature = members[number].mask(rows[number], parcels)
        meter.turn("server")
        digest = body_digest(words.tobytes())
        if not verifies(members[number].public, signature, TERMS, digest):
            raise RuntimeError("an answer is not signed by its member")
        total.add_words(words)
        meter.turn("outside")
        plain += rows[number] + members[number].noise
        del members[number].noise  # a thousand long vectors would not fit
    meter.turn("member")
    answers = {number: members[number].unmask(alive) for number in sorted(alive)}
    meter.turn("server")
    _take_off(setting, total, shared, answers, place, alive)
    meter.turn("outside")
    if not np.array_equal(total.total.view(np.int64), plain):
        raise RuntimeError("the unmasked sum is not the sum of the survivors' vectors and noise")
    meter.bytes.update(bytes_of(setting.shape, release.coordinates))


def _body(published: Published) -> bytes:
    return published.mask_key + published.commitment + b"".join(published.sealed)


def _take_off(
    setting: Setting,
    total: MaskSum,
    shared: list[Published],
    answers: dict[int, tuple[bytes, ...]],
    place: list[dict[int, int]],
    alive: set[int],
) -> None:
    """Recover each member's secret from t neighbours and subtract what it masks."""
    context, graph, threshold = setting.context, setting.graph, setting.shape.threshold
    for number in range(setting.members):
        around = graph[number].tolist()
        helpers = [other for other in around if other in alive][:threshold]
        shares = [[answers[other][place[other][number]]] for other in helpers]
        secret = combine(shares, [other + 1 for other in helpers])[0]
        if secret is None:
            raise RuntimeError("shares do not fit together")
        if number in alive:
            if commitment_of(secret) != shared[number].commitment:
                raise RuntimeError("a seed is not the one that was committed to")
            total.add_mask(context.self_key(secret, number), -1)
            continue
        if public_of(secret) != shared[number].mask_key:
            raise RuntimeError("a mask secret does not fit its key")
        private = X25519PrivateKey.from_private_bytes(secret)
        for other in around:
            if other in alive:
                key = context.pair_key(agree(private, shared[other].mask_key), number, other)
                total.add_mask(key, -1 if other < number else 1)


def bytes_of(shape: Neighbourhood, coordinates: int) -> dict[str, int]:
    """What a member that survives sends and receives; framing is not counted."""
    k, signature, key, number = shape.degree, 64, 32, 4
    sealed = 12 + 16 + 2 * SHARE_BYTES
    up = (
        (key + signature)
        + (2 * key + k * sealed + signature)
        + (8 * coordinates + signature)
        + (k * SHARE_BYTES + signature)
    )
    return {"up": up, "down": k * (number + 2 * key + signature) + k * (2 * key + sealed) + k}


# -- what is measured ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """One row."""

    members: int
    degree: int
    threshold: int
    coordinates: int
    member_ms: float
    server_seconds: float
    up_bytes: int
    down_bytes: int


def measured(n: int, coordinates: int, shape: Neighbourhood) -> Cost:
    """CPU time of one simulated release."""
    graph = neighbour_graph(n, shape.degree, np.random.default_rng(n))
    setting = Setting(n, shape, graph, Release("simulated", coordinates, SIGMA, Grid(1.0)))
    meter = Meter()
    simulated(setting, meter)
    return Cost(
        n,
        shape.degree,
        shape.threshold,
        coordinates,
        1e3 * meter.seconds["member"] / n,
        meter.seconds["server"],
        meter.bytes["up"],
        meter.bytes["down"],
    )


def row_of(cost: Cost) -> str:
    """A line of the table."""
    shape = Neighbourhood(cost.degree, cost.threshold)
    risks = risks_of(cost.members, shape, CORRUPT, DROPPED)
    powers = " | ".join(power(each) for each in (risks.exposed, risks.split, risks.lost))
    return (
        f"| {cost.members:,} | {cost.degree}, {cost.threshold} | {cost.coordinates:,} | "
        f"{cost.member_ms:.1f} | {1e3 * cost.server_seconds / cost.members:.2f} | "
        f"{cost.server_seconds:.1f} | {cost.up_bytes / 1e3:.1f} | {cost.down_bytes / 1e3:.1f} | "
        f"{powers} |"
    )


def power(log2: float) -> str:
    """A probability as a power of two."""
    return "0" if math.isinf(log2) else f"2^{log2:.0f}".replace("-", "−")


HEADER: Final = (
    "| n | k, t | D | member ms | server ms a member | server s | up kB | down kB "
    "| exposed | split | lost |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
)


def write(marker: str, script: str, lines: list[str]) -> None:
    """Put lines between two marks of docs/secure-sum.md."""
    begin = f"<!-- {marker}:begin (written by `benchmarks/{script}`) -->"
    end = f"<!-- {marker}:end -->"
    before, rest = PAGE.read_text(encoding="utf-8").split(begin)
    block = "\n".join([begin, *lines, end])
    PAGE.write_text(before + block + rest.split(end)[1], encoding="utf-8")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, nargs="+", help="Default: those of the table.")
    parser.add_argument("--coordinates", type=int, default=386)
    parser.add_argument("--degree", type=int, help="k; default: the least that is safe.")
    parser.add_argument("--threshold", type=int, help="t, with --degree.")
    parser.add_argument("--write", action="store_true", help="Write into docs/secure-sum.md.")
    asked = parser.parse_args()
    sizes = [(n, asked.coordinates) for n in asked.members] if asked.members else list(DEFAULT)
    print("\n".join(HEADER))
    measured(12, 8, Neighbourhood(4, 2))  # warm up: libraries are loaded at first use
    costs = []
    for n, coordinates in sizes:
        shape = least_neighbourhood(n, CORRUPT, DROPPED)
        if asked.degree:
            shape = Neighbourhood(asked.degree, asked.threshold)
        costs.append(measured(n, coordinates, shape))
        print(row_of(costs[-1]), flush=True)
    if asked.write:
        stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else []
        before = {_size(cost): cost for cost in (Cost(**each) for each in stored)}
        every = sorted({**before, **{_size(cost): cost for cost in costs}}.values(), key=_size)
        text = json.dumps([asdict(cost) for cost in every], indent=1)
        STORED.write_text(text + "\n", encoding="utf-8")
        write("neighbours", "neighbour_sums.py", [*HEADER, *[row_of(cost) for cost in every]])


def _size(cost: Cost) -> tuple[int, int]:
    """The key of a row in the stored figures."""
    return cost.members, cost.coordinates


if __name__ == "__main__":
    main()
