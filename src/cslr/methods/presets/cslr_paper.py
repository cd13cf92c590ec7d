"""The paper's own protocol as a preset: what is charged is what it does, and ε = ∞ where it is.

Reference: the CSLR paper, Algorithm 1, Section 4 and Appendix E: list release noised on the device,
stable clustering of the signatures at the server, four statistics clipped by themselves, whole
second moments, targets from clipped logits, K = T modes per task, L = 4, a federated head (50
rounds per task, q = 0.30, λ, n_r = 500).

Departures: the replay of a task is released once, after its rounds, and not in each of them (which
would cost fifty times as much); clipping radii come from public sentences instead of all being 1;
r = 32 public directions, since a list in 384 of them is noise; means and covariances are shrunk
towards public ones like everywhere here; the head starts at the one that label texts give.

Privacy: the replay release within its ε; end to end ε = ∞, since the head's updates are not noised
(``head.kind = "dp-fedavg"`` noises them).
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
        "replay.list_size": 4,
        "replay.dimension": 32,
        "head.kind": "federated",
        "head.rounds": ROUNDS,
    },
    head_q=0.3,
)
