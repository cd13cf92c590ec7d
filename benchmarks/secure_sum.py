"""What a secure sum costs a member and the server: CPU time and bytes, for several sizes.

    python benchmarks/secure_sum.py
    python benchmarks/secure_sum.py --members 5 20 --coordinates 386

One row is one whole first release (five exchanges) with a tenth of the members lost after sharing;
"steady" is a member's part of the last three exchanges, all there is from the second release on.
Messages travel as bytes. Where ``flwr`` is installed, the primitives of its SecAgg+ do the same
work at n = 20 (same thread, same vector length) and the ratio is printed: above 1 means CSLR needs
less CPU time.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cslr.privacy.accounting import Charge
from cslr.privacy.grid import Grid, bound
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.keys import SeededKeys
from cslr.privacy.noise_shares import draw_share
from cslr.privacy.plan import Budget
from cslr.privacy.secure_sum import Release, SumClient, SumServer, SumTerms, plain_sum
from cslr.privacy.secure_sum.codec import SumLimits, decode, encode
from cslr.seeding import Seeds

SIZES = ((5, 4, 1), (20, 14, 4), (50, 34, 5), (100, 67, 10))  # n, t, c
GRID = Grid(1.0)


@dataclass
class Meter:
    """CPU seconds and bytes, by party."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def timed(self, who: str, run: Callable[..., Any], *arguments: Any) -> Any:
        begun = time.process_time()
        result = run(*arguments)
        self.seconds[who] += time.process_time() - begun
        return result


@dataclass
class Federated:
    """A federation in one process, every message as bytes."""

    n: int
    t: int
    c: int
    coordinates: int

    def __post_init__(self) -> None:
        keys = [Ed25519PrivateKey.generate() for _ in range(self.n)]
        public = tuple(key.public_key().public_bytes_raw() for key in keys)
        self.terms = SumTerms("benchmark", public, self.t, self.c)
        self.clients = [SumClient(self.terms, key, 1000) for key in keys]
        self.server = SumServer(self.terms)
        self.limits = SumLimits(self.n, self.coordinates)
        rows = np.random.default_rng(1).normal(size=(self.n, self.coordinates))
        self.rows = [plain_sum([bound(row[None], GRID)]) for row in rows]
        federation = Federation("benchmark", Budget(math.inf), "simulated")
        self.ledger = Ledger.in_memory(federation, SeededKeys(Seeds(1)))

    def exchange(self, meter: Meter, requests: Any, answer: Callable[..., Any]) -> None:
        """Every request to its member, every answer to the server."""
        for member, request in requests.items():
            down = encode(request)
            sent = meter.timed("client", lambda m=member, d=down: answer(m, self._read(d)))
            up = encode(sent)
            meter.bytes["down"] += len(down)
            meter.bytes["up"] += len(up)
            meter.timed("server", lambda data=up: self.server.take(self._read(data)))

    def _read(self, data: bytes) -> Any:
        return decode(data, self.limits)

    def setup(self, meter: Meter) -> None:
        invitation = self.server.invite(1)
        everybody = dict.fromkeys(range(self.n), invitation)
        self.exchange(meter, everybody, lambda m, request: self.clients[m].join(request))
        requests = meter.timed("server", self.server.ask_shares, 1)
        self.exchange(meter, requests, lambda m, request: self.clients[m].share(request))

    def release(self, meter: Meter, label: str) -> None:
        """The three exchanges of a release; a tenth of those asked for a vector are gone."""
        wanted = Release(label, self.coordinates, 2.0, GRID)
        requests = meter.timed("server", self.server.ask_masks, wanted)
        for member in list(requests)[: self.n // 10]:
            del requests[member]
        self.exchange(meter, requests, lambda m, request: self._mask(m, request, wanted))
        requests = meter.timed("server", self.server.ask_consent)
        self.exchange(meter, requests, lambda m, request: self.clients[m].consent(request))
        charge = Charge(label, 0, "replay", 2.0)
        requests = meter.timed("server", self.server.ask_unmask, charge, self.ledger)
        self.exchange(meter, requests, lambda m, request: self.clients[m].unmask(request))
        meter.timed("server", self.server.finish)

    def _mask(self, member: int, request: Any, wanted: Release) -> Any:
        return self.clients[member].mask(request, wanted, self.rows[member], os.urandom(32))


def measure(n: int, t: int, c: int, coordinates: int) -> tuple[Meter, Meter, float]:
    """A first release, its last three exchanges alone, and CPU seconds of one noise share."""
    parties = Federated(n, t, c, coordinates)
    first, steady = Meter(), Meter()
    parties.setup(first)
    parties.release(steady, "task 0")
    for total, part in ((first.seconds, steady.seconds), (first.bytes, steady.bytes)):
        for name, value in part.items():
            total[name] += value  # type: ignore[index]
    scale = parties.terms.share_scale(Release("x", coordinates, 2.0, GRID))
    begun = time.process_time()
    draw_share(scale, coordinates, os.urandom(32))
    return first, steady, time.process_time() - begun


def secagg_plus(n: int, t: int, coordinates: int) -> float | None:
    """CPU seconds of all members and the server with Flower's SecAgg+ primitives; None without."""
    try:
        from flwr.common.secure_aggregation.crypto import shamir
        from flwr.common.secure_aggregation.crypto import symmetric_encryption as box
        from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
        from flwr.supercore.primitives.asymmetric import generate_key_pairs
    except ImportError:
        return None
    shape, lost = [(coordinates,)], n // 10
    begun = time.process_time()
    channel = [generate_key_pairs() for _ in range(n)]
    masking = [generate_key_pairs() for _ in range(n)]
    shared = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        shares = [shamir.create_shares(os.urandom(32), t, n) for _ in range(2)]
        shared.append(shares[0])
        for j in others:
            key = box.generate_shared_key(channel[i][0], channel[j][1])
            box.decrypt(key, box.encrypt(key, shares[0][j] + shares[1][j]))
        if i >= lost:  # a mask of its own and one with each of the others
            total = pseudo_rand_gen(os.urandom(32), 2**32, shape)[0]
            for j in others:
                key = box.generate_shared_key(masking[i][0], masking[j][1])
                total += pseudo_rand_gen(key, 2**32, shape)[0]
    for each in shared:  # the server: every secret, then every mask that does not cancel
        shamir.combine_shares(each[:t])
    for _ in range((n - lost) * (lost + 1)):
        total += pseudo_rand_gen(os.urandom(32), 2**32, shape)[0]
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, nargs="+", default=[n for n, _, _ in SIZES])
    parser.add_argument("--coordinates", type=int, nargs="+", default=[386, 49_796])
    chosen = parser.parse_args()
    print("| n, t, c | D | client ms | of it noise | steady ms | server ms | up kB | down kB |")
    print("|---|---|---|---|---|---|---|---|")
    for n, t, c in (size for size in SIZES if size[0] in chosen.members):
        for coordinates in chosen.coordinates:
            first, steady, noise = measure(n, t, c, coordinates)
            ms = [1e3 * each / n for each in (first.seconds["client"], noise * n)]
            per = [first.bytes[way] / n / 1e3 for way in ("up", "down")]
            print(
                f"| {n}, {t}, {c} | {coordinates:,} | {ms[0]:.1f} | {ms[1]:.1f} "
                f"| {1e3 * steady.seconds['client'] / n:.1f} | {1e3 * first.seconds['server']:.1f} "
                f"| {per[0]:.1f} | {per[1]:.1f} |",
                flush=True,
            )
            if n == 20:
                theirs = secagg_plus(n, t, coordinates)
                ours = first.seconds["client"] + first.seconds["server"]
                compare(theirs, ours)


def compare(theirs: float | None, ours: float) -> None:
    if theirs is None:
        print("<!-- flwr is not installed: no comparison with SecAgg+ -->")
    else:
        print(f"<!-- SecAgg+ {theirs:.2f} s, ours {ours:.2f} s: {theirs / ours:.1f} times -->")


if __name__ == "__main__":
    main()
