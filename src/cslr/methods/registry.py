"""All methods by name. A new method is a file in ``cslr.methods`` and a line here.

FedCIL and FedTA, which are folders, are imported when they are asked for.
"""

from __future__ import annotations

from typing import Final

from cslr.config import Config
from cslr.errors import ConfigError
from cslr.methods import cslr, dp_joint, dp_sgd
from cslr.methods.method import Method, MethodContext, Stages
from cslr.methods.presets import cslr_matchers, cslr_paper, dp_class_stats, dp_stat_share
from cslr.methods.yardsticks import FINETUNE, JOINT, MAJORITY, ZERO_SHOT
from cslr.privacy.plan import Schedule

__all__ = ["METHODS", "YARDSTICKS", "method_named"]


def _fedcil(context: MethodContext) -> Stages:
    from cslr.methods.fedcil import stages

    return stages(context)


def _fedcil_schedule(config: Config) -> Schedule:
    from cslr.methods.fedcil import schedule

    return schedule(config)


def _fedta(context: MethodContext) -> Stages:
    from cslr.methods.fedta import stages

    return stages(context)


METHODS: Final[dict[str, Method]] = {
    "cslr": cslr.METHOD,
    "cslr-paper": cslr_paper.METHOD,
    "cslr-noanchor": cslr_matchers.NO_ANCHOR,
    "cslr-nearestmean": cslr_matchers.NEAREST_MEAN,
    "cslr-hungarian": cslr_matchers.HUNGARIAN,
    "cslr-optimaltransport": cslr_matchers.OPTIMAL_TRANSPORT,
    "dp-sgd": dp_sgd.METHOD,
    "dp-joint": dp_joint.METHOD,
    "dp-stat-share": dp_stat_share.METHOD,
    "dp-class-stats": dp_class_stats.METHOD,
    "fedcil": Method(
        _fedcil,
        "privately",
        _fedcil_schedule,
        meaning="private generator and head",
        faces_hostile=False,
        hides_people=False,
    ),
    "fedta": Method(
        _fedta, "openly", meaning="personal, tail anchors", keeps_head=False, hides_people=False
    ),
    "majority": MAJORITY,
    "zero-shot": ZERO_SHOT,
    "finetune": FINETUNE,
    "joint": JOINT,
}

YARDSTICKS: Final = ("majority", "zero-shot", "finetune", "joint")


def method_named(name: str) -> Method:
    """The method of that name."""
    if name not in METHODS:
        raise ConfigError(f"unknown method {name!r}; known methods: {', '.join(METHODS)}")
    return METHODS[name]
