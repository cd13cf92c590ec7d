"""The speed of CSLR's parts next to named peers measured in the same run; written to docs/speed.md.

    make bench            all rows; at most 20 minutes on an idle machine
    make bench-peers      first: environments for pfl and for Flower on Ray, in build/peers
    python benchmarks/bench.py --only head --times 3

Medians of CPU seconds with one BLAS thread; repetitions of the two sides alternate. Between
machines compare ratios (peer / ours, above 1: CSLR is faster), not seconds. A row whose peer is not
installed says so. ``--only`` measures one kind of row again and keeps the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from bench_parts import accounting, encoding, federated_round, head, lists, noise, signed
from bench_whole import commands, paper_rounds, paper_run, prediction, scale, secure_sums
from growth import grown
from measuring import Measured, write

ROWS: dict[str, Callable[[int], Iterator[Measured]]] = {
    "encoding": encoding,
    "lists": lists,
    "signatures": signed,
    "noise": noise,
    "head": head,
    "round": federated_round,
    "calibrate": accounting,
    "prediction": prediction,
    "commands": commands,
    "secure-sum": secure_sums,
    "paper-rounds": paper_rounds,
    "paper-run": paper_run,
    "scale": scale,
}


def main() -> None:
    """Measure the selected rows and store them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[*ROWS, "growth"], help="one kind of row")
    parser.add_argument("--times", type=int, default=7)
    asked = parser.parse_args()
    for name in [asked.only] if asked.only else [*ROWS, "growth"]:
        if name == "growth":
            grown()
            continue
        found = []
        for row in ROWS[name](asked.times):
            print(row, flush=True)
            found.append(row)
        write(list(ROWS), {name: found})  # at once: an interruption loses one kind of row


if __name__ == "__main__":
    main()
