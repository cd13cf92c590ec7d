"""Proposition 3 on a screen: unordered lists cannot be aligned without anchors.

python examples/anchorless.py
"""

from __future__ import annotations

from cslr import Seeds
from cslr.research.theory.barrier import barrier

MEANING = {
    "symbols": "the best constant answer",
    "blind": "signatures at anchors that all lie in one place",
    "means": "means, each client in its own coordinates",
    "anchors": "signatures at 30 public anchors",
}


def main() -> None:
    print("Expected error of a server that aligns lists, c = 1, with 95 % confidence interval")
    for modes in (2, 3, 4):
        found = barrier(modes, trials=10_000, anchors=30, rng=Seeds(1).at("modes", modes))
        print(f"\nK = {modes}: without side information at least 1 - 1/K! = {found.bound:.4f}")
        for name, share in found.servers.items():
            interval = f"[{share.low:.4f}, {share.high:.4f}]"
            print(f"  {share.error:.4f} {interval}  {MEANING[name]}")


if __name__ == "__main__":
    main()
