"""The paper's protocol, implemented exactly as written; its true cost is charged, even if ε = ∞.

Reference: the CSLR paper, Algorithm 1, Section 4 and its appendices. Every client sends its noised
list of L = 4 entries (π, μ, M, y). The server computes signatures of the received lists, and
clusters them or matches them to running prototypes. Then four sums follow, each statistic clipped
separately to B = 1; covariances are M − μμᵀ with eigenvalues of at least λ_min. K = T modes per
task, r = 384 directions, q = 0.30, a federated head (50 rounds per task, λ, n_r = 500) that starts
at random. Targets are mean logits, tag frequencies or intent masks. ``[paper]`` has all constants.

The remaining departures are in the table of docs/paper.md, each with its reason and its setting.

Privacy: the replay release within its ε, or with the paper's σ at the cost that the ledger computes
(``paper.calibration``); end to end ε = ∞, since the head's updates have no noise (``head.kind =
"dp-fedavg"`` adds it).
"""

from __future__ import annotations

from typing import Final

from cslr.methods.cslr import replay_method
from cslr.methods.federated_head import ROUNDS

__all__ = ["METHOD"]

METHOD: Final = replay_method(
    "the paper's protocol",
    defaults={
        "replay.release": "paper",
        "paper.list_size": 4,
        "replay.dimension": 384,
        "head.kind": "federated",
        "head.rounds": ROUNDS,
    },
    head_q=0.3,
)
