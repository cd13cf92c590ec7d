"""DP-Stat-Share: one Gaussian per client and task with soft targets; no list, no matching.

Reference: the paper cites Yoon et al., "Federated continual learning with weighted inter-client
transfer" (FedWeIT), ICML 2021, whose code shares no statistics and has no privacy; its scores in
the paper are those of the paper's L = 1. So this is CSLR with one mode per task and L = 1.

Departures: the public knowledge that CSLR uses (directions, label prior, shrinkage), a joint clip,
and a head on the released replay. If a task has one label it is the same as ``dp-class-stats``.

Privacy: end to end, since its head is trained on the release alone.
"""

from __future__ import annotations

from typing import Final

from cslr.methods.cslr import replay_method

__all__ = ["METHOD"]

METHOD: Final = replay_method(
    "one Gaussian per task",
    settings={"replay.release": "pooled", "replay.sub_modes": 1, "paper.list_size": 1},
)
