"""The estimated cost of one release over 10⁷ devices, from measured costs of a simulated member.

    python benchmarks/neighbour_sums.py --write     # first: measures a member and the server
    python benchmarks/many_devices.py --write       # into docs/secure-sum.md

An extrapolation: nothing of this size was run. The neighbourhood comes from the bounds for n = 10⁷,
bytes from message sizes, a device's time from the measured member's in proportion to the number of
neighbours, the server's in proportion to the number of masks it removes. ``Deployment`` has the
remaining numbers, which are assumptions.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass

from neighbour_sums import CORRUPT, DROPPED, SIGMA, STORED, Cost, bytes_of, power, write
from neighbours import least_neighbourhood, risks_of

from cslr.privacy.secure_sum.terms import MOST_MEMBERS


@dataclass(frozen=True)
class Deployment:
    """Assumptions that are not measured."""

    devices: int = 10**7
    cores: int = 64
    gigabits: float = 10.0
    """Bandwidth of the server, each way."""
    slower: float = 5.0
    """How many times slower a phone's core is than the measured one."""
    window_minutes: float = 30.0
    """Time that devices have to answer one exchange; slower ones count as dropped."""
    exchanges: int = 4


def devices_table(cost: Cost, given: Deployment) -> list[str]:
    """The table of one release over all devices, computed from a measured cost."""
    n, d = given.devices, cost.coordinates
    shape = least_neighbourhood(n, CORRUPT, DROPPED)
    risks, more = risks_of(n, shape, CORRUPT, DROPPED), shape.degree / cost.degree
    masks = (1 - DROPPED) * n + DROPPED * n * shape.degree * (1 - DROPPED)
    # Masks in the measured run: a tenth dropped, whose pairwise masks were removed one by one.
    then = 0.9 * cost.members + 0.1 * cost.members * cost.degree * 0.9
    server_core_hours = cost.server_seconds * masks / then / 3600
    up, down = bytes_of(shape, d).values()
    wire_hours = n * max(up, down) * 8 / (given.gigabits * 1e9) / 3600
    compute_hours = server_core_hours / given.cores
    waiting_hours = given.exchanges * given.window_minutes / 60
    total = max(wire_hours, waiting_hours) + compute_hours
    least = (1 - DROPPED - CORRUPT) * n
    steps = 2 ** math.ceil(math.log2(2**12 * math.sqrt(least) / SIGMA))
    facts = [
        ("neighbours k, threshold t", f"{shape.degree}, {shape.threshold}"),
        (
            "exposed, split, lost, at most",
            ", ".join(power(each) for each in (risks.exposed, risks.split, risks.lost)),
        ),
        ("messages, both ways", f"{2 * given.exchanges * n:.1e}"),
        ("a device sends, receives", f"{up / 1e3:.1f} kB, {down / 1e3:.1f} kB"),
        ("the server receives, sends", f"{n * up / 1e12:.2f} TB, {n * down / 1e12:.2f} TB"),
        ("a device computes", f"{cost.member_ms * more * given.slower / 1e3:.2f} CPU s"),
        (f"masks the server removes, {DROPPED:.0%} dropped", f"{masks:.1e}"),
        ("the server computes", f"{server_core_hours:,.0f} core hours"),
        (f"the same on {given.cores} cores", f"{compute_hours:.1f} h"),
        (f"bytes at {given.gigabits:g} Gbit/s", f"{wire_hours:.1f} h"),
        (
            f"{given.exchanges} exchanges of {given.window_minutes:g} minutes",
            f"{waiting_hours:.1f} h",
        ),
        ("a release, about", f"{total:.1f} h"),
        ("grid steps that a noise share of 2¹² steps needs", f"2^{math.log2(steps):.0f}"),
        ("devices beyond the most members of a sum now", f"{n / MOST_MEMBERS:,.0f} times"),
    ]
    return [f"| D = {d:,} | |", "|---|---|", *[f"| {name} | {value} |" for name, value in facts]]


def main() -> None:
    """The tables, for each size of vector from its largest federation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="Write into docs/secure-sum.md.")
    asked = parser.parse_args()
    costs = [Cost(**each) for each in json.loads(STORED.read_text(encoding="utf-8"))]
    largest = {cost.coordinates: cost for cost in sorted(costs, key=lambda cost: cost.members)}
    lines: list[str] = []
    for cost in largest.values():
        lines += ["", *devices_table(cost, Deployment())]
    print("\n".join(lines))
    if asked.write:
        write("devices", "many_devices.py", lines[1:])


if __name__ == "__main__":
    main()
