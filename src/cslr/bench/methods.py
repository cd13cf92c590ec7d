"""Every method by name, and CSLR itself as one."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from cslr.baselines import finetune, joint, majority, zero_shot
from cslr.baselines.setting import Learnt, Method, Setting, Stages, learnt_by
from cslr.errors import ConfigError
from cslr.privacy.noise import KeyStream
from cslr.privacy.sampling import poisson_cohort
from cslr.privacy.values import Released
from cslr.protocol.agreement import Agreement
from cslr.protocol.bounds import with_bound
from cslr.protocol.public import build_space, declare_modes
from cslr.protocol.round import one_round, replay_of
from cslr.protocol.step1_list import ListLearner
from cslr.protocol.step4_aggregate.estimate import Replay, TaskRelease
from cslr.protocol.step5_rehearse import rehearse
from cslr.types import FloatArray

__all__ = ["METHODS", "NON_PRIVATE", "YARDSTICKS", "agree", "method_named"]


def agree(setting: Setting) -> Agreement:
    """Everything public, fixed before the first release; written into the ledger's plan."""
    replay, seeds = setting.replay, setting.seeds
    space = build_space(
        setting.public, setting.encoder, replay.directions, replay.anchors, seeds.at("anchors")
    )
    modes = declare_modes(
        space,
        setting.public,
        setting.label_texts,
        replay.sub_modes,
        replay.prior,
        seeds.at("prototypes"),
    )
    default = 1 if replay.sub_modes == 1 else 2 * replay.sub_modes
    agreement = Agreement(
        space,
        modes,
        ListLearner(size=replay.list_size or default),
        replay.matcher,
        replay.second_moments,
        seeds.seed,
        setting.population.count,
        setting.family,
    )
    return with_bound(agreement, setting.public, max(len(labels) for labels in setting.tasks))


def cslr(setting: Setting) -> Stages:
    """Canonicalized Stable-List Replay: a private round per task, a head from the replay alone."""
    agreement = agree(setting)
    setting.ledger.fix_plan(setting.plan, agreement.public_facts())
    releases: list[Released[TaskRelease]] = []
    yield partial(_rehearsed, setting, agreement, ())
    for task, labels in enumerate(setting.tasks):
        taking_part = poisson_cohort(
            setting.population.count, setting.plan.q, KeyStream(setting.coins(task))
        )
        cohort = setting.population.cohort(task, taking_part, setting.plan.cap)
        releases.append(
            one_round(
                task,
                labels,
                cohort,
                agreement,
                setting.plan,
                setting.ledger,
                setting.keep,
                earlier=tuple(releases),
            )
        )
        yield partial(_rehearsed, setting, agreement, tuple(releases))


def _rehearsed(
    setting: Setting, agreement: Agreement, releases: tuple[Released[TaskRelease], ...]
) -> Learnt:
    """Lines 9 to 13 and step 5: everything from here on is post-processing."""
    replay = replay_of(releases, agreement).value
    known = np.isin(np.arange(setting.labels), replay.labels)
    head = setting.initial_head()
    if known.any():
        head = rehearse(
            replay,
            agreement.space,
            setting.family,
            head,
            setting.head_settings,
            setting.head.samples,
            setting.head.passes,
            setting.seeds.under("rehearse", len(releases)),
        )
    return learnt_by(head, known, setting.family, replay=_arrays(replay, agreement))


def _arrays(replay: Replay, agreement: Agreement) -> dict[str, FloatArray]:
    """Q_{1:t} as arrays: enough to draw from it without anything else."""
    return {
        "weights": replay.weights,
        "mean": replay.mean,
        "variance": replay.gaussians(agreement.space).covariance,
        "labels": replay.labels.astype(np.float64),
        "targets": replay.targets,
        "known": replay.known.astype(np.float64),
        "centre": agreement.space.centre,
        "basis": agreement.space.basis,
    }


METHODS: Final[dict[str, Method]] = {
    "cslr": cslr,
    "majority": majority.stages,
    "zero-shot": zero_shot.stages,
    "finetune": finetune.stages,
    "joint": joint.stages,
}

YARDSTICKS: Final = ("majority", "zero-shot", "finetune", "joint")

NON_PRIVATE: Final = ("finetune", "joint")
"""Methods that read client data without noise: their ε is ∞ and no finite budget admits them."""


def method_named(name: str) -> Method:
    """The method of that name."""
    if name not in METHODS:
        raise ConfigError(f"there is no method {name!r}; known: {', '.join(METHODS)}")
    return METHODS[name]
