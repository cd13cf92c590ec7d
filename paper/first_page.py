"""The first page of REPRODUCTION.md: what of the paper holds, what does not, what was not tested.

Every sentence is generated from the verdicts further down; no result is typed by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from paper.figure import NOT_RUN, UNDEFINED
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
    WHERE_ROSTER,
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
_GAINS: Final = {
    CONFIRMED: "a gain that agrees with the printed one",
    SMALLER: "a smaller gain than printed",
    LARGER: "a larger gain than printed",
    NOT_SHOWN: "no gain beyond the spread of seeds",
    REVERSED: "a loss",
    VOID: "the same figures on both sides, so nothing was compared",
}
"""Words for the verdicts on a margin; the comparison and its streams are named with them."""
_COUNTS: Final = {
    SAME: "are the same here",
    OTHER: "are different here",
    KEPT: "keep what they promise",
    WHERE_ROSTER: "keep it only if nobody learns who took part",
    NOT_KEPT: "cost more than the printed ε",
    APART: "stand beside ours but cannot be compared, because labels, rows or what ε covers differ",
    UNDEFINED: "are undefined here",
    NOT_RUN: "were not run",
}
_HOLDS: Final = (SAME, CONFIRMED, SMALLER, LARGER, KEPT)
_FAILS: Final = (OTHER, NOT_SHOWN, REVERSED, NOT_KEPT, WHERE_ROSTER)
_UNTESTED: Final = (APART, VOID, UNDEFINED, NOT_RUN)


def first_page(found: Mapping[str, Sequence[Line]]) -> str:
    """Three lists of claims; one claim may be in several of them, with different rows."""
    titles = {
        "Holds": _HOLDS,
        "Does not hold here": _FAILS,
        "Could not be tested": _UNTESTED,
    }
    parts = []
    for title, verdicts in titles.items():
        said = [
            f"- {_CLAIMS.get(label, label)} ({label}): {'; '.join(texts)}."
            for label, lines in found.items()
            if (texts := _texts(lines, verdicts))
        ]
        parts.append(f"**{title}**\n\n" + ("\n".join(said) if said else "- Nothing."))
    return "\n\n".join(parts)


def _texts(lines: Sequence[Line], verdicts: Sequence[str]) -> list[str]:
    """Texts for lines with these verdicts: margins by comparison and stream, others as counts."""
    texts = []
    for verdict in verdicts:
        own = [line for line in lines if line.verdict == verdict]
        if own and verdict in _GAINS:
            for row in dict.fromkeys(line.row for line in own):
                where = ", ".join(line.column for line in own if line.row == row)
                texts.append(f"{row}: {_GAINS[verdict]} ({where})")
        elif own:
            texts.append(f"{len(own)} of {len(lines)} {_COUNTS[verdict]}")
    return texts
