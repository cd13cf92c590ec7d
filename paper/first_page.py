"""The first page of REPRODUCTION.md: what of the paper holds, what does not, what was not tested.

Every sentence is made of the verdicts below it; none is typed as a result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from paper.verdicts import (
    APART,
    CONFIRMED,
    KEPT,
    LARGER,
    NOT_KEPT,
    NOT_SHOWN,
    OTHER,
    REVERSED,
    SAME,
    SMALLER,
    VOID,
    Line,
)

__all__ = ["first_page"]

_CLAIMS: Final = {
    "tab:protocol": "The benchmarks are those of the paper (tasks, clients, partitions)",
    "tab:main": "The final scores",
    "tab:bwt": "Forgetting (BWT)",
    "tab:fwt": "Forward transfer (FWT)",
    "tab:effect_sizes": "CSLR gains over DP-Stat-Share and over transport",
    "sec:experiments": "The least and the largest gain that the text claims",
    "tab:privacy_scope": "Scores at ε = 1, 4 and 8",
    "tab:accountant": "The table of noise multipliers buys the ε it promises",
    "fig:anchor_sweep": "Scores grow with the number of anchors and then stay",
    "tab:anchor_diag": "Hit rate and margin of the anchors",
    "tab:list_size": "Longer lists help",
    "app:stats": "The quantile of the intervals",
}
_HOLDS: Final = (SAME, CONFIRMED, SMALLER, LARGER, KEPT)
_FAILS: Final = (OTHER, NOT_SHOWN, REVERSED, NOT_KEPT)
_UNTESTED: Final = (APART, VOID)


def first_page(found: Mapping[str, Sequence[Line]]) -> str:
    """Three lists, by table of the paper; a table may stand in several, with its counts."""
    holds: list[str] = []
    fails: list[str] = []
    untested: list[str] = []
    for label, lines in found.items():
        counts = Counter(line.verdict for line in lines)
        claim = f"{_CLAIMS.get(label, label)} ({label})"
        for verdicts, where in ((_HOLDS, holds), (_FAILS, fails), (_UNTESTED, untested)):
            if said := _said(counts, verdicts):
                where.append(f"- {claim}: {said} of {len(lines)}.")
        others = {v: n for v, n in counts.items() if v not in (*_HOLDS, *_FAILS, *_UNTESTED)}
        if others:
            said = ", ".join(f"{number} {verdict}" for verdict, number in others.items())
            untested.append(f"- {claim}: {said} of {len(lines)}.")
    return "\n\n".join(
        f"**{title}**\n\n" + ("\n".join(lines) if lines else "- Nothing.")
        for title, lines in (
            ("Holds", holds),
            ("Does not hold here", fails),
            ("Could not be tested", untested),
        )
    )


def _said(counts: Mapping[str, int], verdicts: Sequence[str]) -> str:
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in verdicts if counts.get(verdict))
