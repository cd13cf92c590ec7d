"""The cost of a secure sum for a member and the server: CPU time and bytes, for several sizes.

    python benchmarks/secure_sum.py
    python benchmarks/secure_sum.py --members 5 20 --coordinates 386
    python benchmarks/secure_sum.py --write        # into docs/secure-sum.md

One row is one whole first release (five exchanges) in which a tenth of the members drops out after
sharing; "steady" is a member's part of the last three exchanges, to which later releases are
limited. Messages are serialised to bytes. If ``flwr`` is installed, its SecAgg+ functions do the
same work at n = 20 alternately with ours (same thread, same vector length), and the ratio is
printed: above 1 means that CSLR needs less CPU time.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.privacy.noise_shares import draw_share
from cslr.privacy.plan import Budget
from cslr.privacy.secure_sum import Release, SumClient, SumServer, SumTerms
from cslr.privacy.secure_sum.codec import SumLimits, decode, encode
from cslr.privacy.values import Grid, bound, plain_sum
from cslr.seeding import Seeds

SIZES = ((5, 4, 1), (20, 14, 4), (50, 34, 5), (100, 67, 10))  # n, t, c
GRID = Grid(1.0)
BEGIN = "<!-- cost:begin (written by `benchmarks/secure_sum.py`) -->"
END = "<!-- cost:end -->"


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
        """The three exchanges of a release; a tenth of the members drops out before them."""
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
    """CPU seconds of all members and the server with Flower's SecAgg+; None without Flower.

    Members run the functions of its client module. The server does what its workflow does after
    the last answer: combine the shares of every secret, and subtract every remaining mask.
    Messages are not serialised, unlike ours.
    """
    try:
        from flwr.app import ConfigRecord
        from flwr.common import ndarrays_to_parameters
        from flwr.common.secure_aggregation.secaggplus_constants import Key
    except ImportError:
        return None
    flower: Any = import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
    lost, target = n // 10, 2**22
    rows = np.random.default_rng(1).normal(size=(n, coordinates)).astype(np.float32)
    begun = time.process_time()
    states = [flower.SecAggPlusState() for _ in range(n)]
    settings = {
        Key.SAMPLE_NUMBER: n,
        Key.SHARE_NUMBER: n,
        Key.THRESHOLD: t,
        Key.CLIPPING_RANGE: 8.0,
        Key.TARGET_RANGE: target,
        Key.MOD_RANGE: 2**32,
        Key.MAX_WEIGHT: 1000.0,
    }
    keys: dict[str, Any] = {}
    for i, state in enumerate(states):
        state.nid = i
        shown = flower._setup(state, ConfigRecord(settings))
        keys[str(i)] = [shown[Key.PUBLIC_KEY_1], shown[Key.PUBLIC_KEY_2]]
    sealed: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for i, state in enumerate(states):
        sent = flower._share_keys(state, ConfigRecord(keys))
        for to, text in zip(sent[Key.DESTINATION_LIST], sent[Key.CIPHERTEXT_LIST], strict=True):
            sealed[to].append((i, text))
    alive, dropped = list(range(lost, n)), list(range(lost))
    vectors = []
    for i in alive:
        sources, texts = zip(*sealed[i], strict=True)
        given = ConfigRecord({Key.SOURCE_LIST: list(sources), Key.CIPHERTEXT_LIST: list(texts)})
        parameters = ndarrays_to_parameters([rows[i]])
        masked = flower._collect_masked_vectors(states[i], given, 10, parameters)
        vectors.append(masked[Key.MASKED_PARAMETERS])
    ask = ConfigRecord({Key.ACTIVE_NODE_ID_LIST: alive, Key.DEAD_NODE_ID_LIST: dropped})
    answers = [flower._unmask(states[i], ask) for i in alive]
    _secagg_server(vectors, answers, states, alive)
    return time.process_time() - begun


def _secagg_server(vectors: Any, answers: Any, states: Any, alive: list[int]) -> None:
    """``SecAggPlusWorkflow.unmask_stage``, without its messages."""
    from flwr.common.secure_aggregation import ndarrays_arithmetic as arithmetic
    from flwr.common.secure_aggregation.crypto.shamir import combine_shares
    from flwr.common.secure_aggregation.secaggplus_constants import Key
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    flower: Any = import_module("flwr.server.workflow.secure_aggregation.secaggplus_workflow")
    total = [flower.bytes_to_ndarray(each) for each in vectors[0]]
    for vector in vectors[1:]:
        ours = [flower.bytes_to_ndarray(each) for each in vector]
        total = arithmetic.parameters_addition(total, ours)
    collected: dict[int, list[bytes]] = defaultdict(list)
    for answer in answers:
        for owner, share in zip(answer[Key.NODE_ID_LIST], answer[Key.SHARE_LIST], strict=True):
            collected[owner].append(share)
    shape = arithmetic.get_parameters_shape(total)
    for owner, shares in collected.items():
        secret = combine_shares(shares)
        if owner in alive:
            mask = pseudo_rand_gen(secret, 2**32, shape)
            total = arithmetic.parameters_subtraction(total, mask)
            continue
        for other in alive:
            key = flower.generate_shared_key(
                flower.bytes_to_private_key(secret), flower.bytes_to_public_key(states[other].pk1)
            )
            mask = pseudo_rand_gen(key, 2**32, shape)
            total = arithmetic.parameters_addition(total, mask)
    arithmetic.parameters_mod(total, 2**32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, nargs="+", default=[n for n, _, _ in SIZES])
    parser.add_argument("--coordinates", type=int, nargs="+", default=[386, 49_796])
    parser.add_argument("--times", type=int, default=3, help="Runs, of which the median is shown.")
    parser.add_argument("--write", action="store_true", help="Write into docs/secure-sum.md.")
    chosen = parser.parse_args()
    measure(3, 3, 1, 8)  # warm up: libraries are loaded at first use
    secagg_plus(3, 2, 8)
    table = [
        "| n, t, c | D | client ms | of it noise | steady ms | server ms | up kB | down kB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    compared = []
    print("\n".join(table))
    for n, t, c in (size for size in SIZES if size[0] in chosen.members):
        for coordinates in chosen.coordinates:
            row, comparison = measured_row(n, t, c, coordinates, chosen.times)
            table.append(f"| {n}, {t}, {c} | {coordinates:,} | {row} |")
            print(table[-1], flush=True)
            if comparison:
                compared.append(f"- D = {coordinates:,}: {comparison}")
    print("", *compared, sep="\n")
    if chosen.write:
        write(
            "\n".join(
                [*table, "", "Beside SecAgg+, n = 20, all members and the server:", *compared]
            )
        )


def write(content: str) -> None:
    """Put the figures between their marks in docs/secure-sum.md."""
    path = Path(__file__).parents[1] / "docs" / "secure-sum.md"
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n{content}\n{END}{after}", encoding="utf-8")


def measured_row(n: int, t: int, c: int, coordinates: int, times: int) -> tuple[str, str]:
    """A row of the table, and at n = 20 the comparison with SecAgg+, run in turns with ours."""
    runs, theirs = [], []
    for _ in range(times):
        runs.append(measure(n, t, c, coordinates))
        if n == 20:
            theirs.append(secagg_plus(n, t, coordinates))
    client = median(first.seconds["client"] for first, _, _ in runs)
    steady = median(later.seconds["client"] for _, later, _ in runs)
    server = median(first.seconds["server"] for first, _, _ in runs)
    noise = median(each for _, _, each in runs)
    up, down = (runs[0][0].bytes[way] / n / 1e3 for way in ("up", "down"))
    row = (
        f"{1e3 * client / n:.1f} | {1e3 * noise:.1f} | {1e3 * steady / n:.1f} "
        f"| {1e3 * server:.1f} | {up:.1f} | {down:.1f}"
    )
    if None in theirs or not theirs:
        return row, "" if n != 20 else "flwr is not installed: no comparison with SecAgg+"
    other, alike = median(theirs), client + server - noise * (n - n // 10)
    return row, (
        f"SecAgg+ {other:.2f} s, ours {client + server:.2f} s: {other / (client + server):.1f} "
        f"times; without noise, which SecAgg+ does not add, {alike:.2f} s: "
        f"{other / alike:.1f} times"
    )


if __name__ == "__main__":
    main()
