"""Every method by name. A new one is a file in ``cslr.methods`` and a line here."""

from __future__ import annotations

from typing import Final

from cslr.errors import ConfigError
from cslr.methods import cslr, dp_sgd, fedcil, fedta
from cslr.methods.method import Method
from cslr.methods.presets import cslr_matchers, cslr_paper, dp_class_stats, dp_stat_share
from cslr.methods.yardsticks import finetune, joint, majority, zero_shot

__all__ = ["METHODS", "YARDSTICKS", "method_named"]

METHODS: Final[dict[str, Method]] = {
    "cslr": cslr.METHOD,
    "cslr-paper": cslr_paper.METHOD,
    "cslr-noanchor": cslr_matchers.NO_ANCHOR,
    "cslr-nearestmean": cslr_matchers.NEAREST_MEAN,
    "cslr-hungarian": cslr_matchers.HUNGARIAN,
    "cslr-optimaltransport": cslr_matchers.OPTIMAL_TRANSPORT,
    "dp-sgd": dp_sgd.METHOD,
    "dp-stat-share": dp_stat_share.METHOD,
    "dp-class-stats": dp_class_stats.METHOD,
    "fedcil": fedcil.METHOD,
    "fedta": fedta.METHOD,
    "majority": majority.METHOD,
    "zero-shot": zero_shot.METHOD,
    "finetune": finetune.METHOD,
    "joint": joint.METHOD,
}

YARDSTICKS: Final = ("majority", "zero-shot", "finetune", "joint")


def method_named(name: str) -> Method:
    """The method of that name."""
    if name not in METHODS:
        raise ConfigError(f"there is no method {name!r}; known: {', '.join(METHODS)}")
    return METHODS[name]
