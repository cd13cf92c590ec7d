"""CSLR itself as a method; its presets are other settings of it.

There is one private round per task. The head is trained on the replay alone, or by the clients on
their own rows and the replay (as in the paper), or by gradient rounds without a replay
(``head.kind``).

With the replay come arrays for plots: a plane of the public space, and signal-to-noise ratios.
They are computed from public data and releases, so they cost nothing and may be stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.config import Config
from cslr.errors import ConfigError
from cslr.methods import gradient_rounds
from cslr.methods.alignment import Alignment, align, summary
from cslr.methods.federated_head import ROUNDS, federated_stage
from cslr.methods.gradient_rounds import check_tasks, gradient_facts, gradient_stage, start_rule
from cslr.methods.method import (
    Corpus,
    Earlier,
    Fitted,
    Method,
    MethodContext,
    Stages,
    View,
    fitted_by,
)
from cslr.privacy.plan import Schedule
from cslr.protocol.agreement import Agreement
from cslr.protocol.carry_over import Passage, carried, lifted, passage, raw_passage
from cslr.protocol.head import Head
from cslr.protocol.messages import with_bound
from cslr.protocol.public_space import PublicSpace, build_space, clearness, declare_modes
from cslr.protocol.round import Session, replay_of
from cslr.protocol.step1_list import ListLearner
from cslr.protocol.step4_aggregate.contribution import BLOCKS, FEW_UNITS, resolve
from cslr.protocol.step4_aggregate.estimate import Replay, TaskRelease
from cslr.protocol.step5_rehearse import Rehearsal, free_rule, rehearse, share_of_zero_shot
from cslr.seeding import Seeds

__all__ = [
    "BLOCK_NAMES",
    "METHOD",
    "agree",
    "free_head",
    "prior_head",
    "rehearsal_of",
    "replay_method",
]

CANDIDATES: Final = 32
"""V: public means per label that clients vote for, if means are selected."""
PASSES: Final = 10
"""Draws of the replay that a released head is trained on, each with n_r samples per label."""


def agree(context: MethodContext) -> Agreement:
    """Everything public, fixed before the first release; the ledger's plan records it."""
    replay, seeds = context.replay, context.seeds
    if context.constants.m > len(context.public):
        raise ConfigError(
            f"paper.m = {context.constants.m} is more than the {len(context.public)} public "
            "sentences; use fewer (--anchor-count)"
        )
    space = _space_of(context)
    pooled = replay.pooled
    topics = None if pooled or replay.prior != "labels" else context.topics
    sub_modes = replay.sub_modes or (1 if topics is None else topics.shape[1])
    if replay.sub_modes is None and replay.sends_lists and pooled:
        sub_modes = len(context.tasks)  # the paper's K
    paper = context.paper
    selects = replay.aggregate == "select" or (paper is not None and paper.aggregate == "select")
    modes = declare_modes(
        space,
        context.public,
        context.label_texts,
        sub_modes,
        replay.prior,
        seeds.at("prototypes"),
        dict.fromkeys(context.tasks) if pooled else None,
        candidates=CANDIDATES if selects else 0,
        topics=topics if topics is not None and topics.shape[1] == sub_modes else None,
    )
    default = 1 if sub_modes == 1 else 2 * sub_modes
    labels = max(len(labels) for labels in context.tasks)
    plain = sub_modes == 1 and not pooled and replay.prior == "labels" and not replay.sends_lists
    resolution = FEW_UNITS
    if replay.clipping == "joint":
        resolution = resolve(context.units, context.plan, labels, space.spread, plain)
    agreement = Agreement(
        space,
        modes,
        ListLearner(size=context.constants.list_size or default),
        replay.matching,
        "tied" if resolution.tied else replay.second_moments,
        seeds.seed,
        context.clients.count,
        context.family,
        release="list" if replay.sends_lists else "sum",
        clipping=replay.clipping,
        resolution=resolution,
        clients_per_person=context.units.clients_per_person,
        paper=paper,
    )
    return with_bound(agreement, context.public, labels)


def _space_of(context: MethodContext) -> PublicSpace:
    replay = context.replay
    count = context.constants.m
    settings = (replay.directions, count, context.seeds, replay.anchor_kind)
    return _space(Corpus(context.public), context.encoder, *settings)


@lru_cache(maxsize=8)
def _space(
    public: Corpus, encoder: str, dimension: int, anchors: int, seeds: Seeds, kind: str
) -> PublicSpace:
    """The space of a corpus: all methods of a seed share it, so it is built once."""
    return build_space(public.z, encoder, dimension, anchors, seeds.at("anchors"), kind)


def stages(context: MethodContext) -> Stages:
    """One stage before any task and one after each."""
    if context.earlier is not None:
        yield from upgraded_stages(context, context.earlier)
        return
    if context.head.kind == "rounds":
        yield from gradient_stages(context)
        return
    agreement = agree(context)
    context.ledger.fix_plan(context.plan, agreement.public_facts())
    session = Session(agreement, context.plan, context.ledger, context.keep)
    federated = context.head.kind in ("federated", "dp-fedavg")
    head = _first_head(context) if federated else None
    aligned: list[Alignment] = []
    yield partial(_fitted, context, session.snapshot(), head)
    for task, labels in enumerate(context.tasks):
        if head is not None:
            head = federated_stage(context, task, head, _released(session), agreement.space)
        teacher = head if agreement.release == "list" else None
        session.release(task, labels, context.cohort(task), teacher)
        aligned = [*aligned, *_aligned(context, session, task)]
        yield partial(_fitted, context, session.snapshot(), head, aligned)


def gradient_stages(context: MethodContext) -> Stages:
    """The stages with gradient rounds of a linear head; Q remains the public prior."""
    check_tasks(context)
    agreement = agree(context)
    facts = {**agreement.public_facts(), **gradient_facts(context)}
    context.ledger.fix_plan(context.plan, facts)
    session = Session(agreement, context.plan, context.ledger, context.keep)
    rule = start_rule(context, free_head(context, agreement))
    yield partial(_fitted, context, session.snapshot(), rule.head())
    for task in range(len(context.tasks)):
        rule = gradient_stage(context, task, rule)
        texts = context.family.name == "classification"  # what it was tested on
        answering = rule.without_noise() if texts else rule
        yield partial(_fitted, context, session.snapshot(), answering.head())


def _aligned(context: MethodContext, session: Session, task: int) -> list[Alignment]:
    """How well the candidates of a task were matched, if clients are simulated."""
    if session.request is None or session.agreement.learner.size == 1 or context.enforced:
        return []
    return align(context.open_cohort(task), session.request)


def upgraded_stages(context: MethodContext, earlier: Earlier) -> Stages:
    """The stages of a run whose first tasks were released under another encoder.

    Up to the upgrade everything is as it was then. After it, earlier releases are mapped into the
    new space and used together with new ones. The ledger records the change.
    """
    _check_upgrade(context)
    old, new = agree(earlier.context), agree(context)
    then = old.public_facts()
    now = {**new.public_facts(), "upgraded after": earlier.tasks, "before": then}
    if not context.ledger.has_fixed(context.plan, now):
        context.ledger.fix_plan(context.plan, then)
    session = Session(old, context.plan, context.ledger, context.keep)
    asked = earlier.context
    yield partial(_fitted, asked, session.snapshot())
    for task, labels in enumerate(context.tasks):
        session.release(task, labels, asked.cohort(task))
        if task + 1 == earlier.tasks:
            context.ledger.upgrade_plan(context.plan, then, now)
            asked, session = context, _carried(session, new, earlier)
        yield partial(_fitted, asked, session.snapshot())


def _check_upgrade(context: MethodContext) -> None:
    if context.head.kind in ("federated", "dp-fedavg", "rounds"):
        raise ConfigError(
            "a head trained by clients cannot be carried over to another encoder; use --head "
            "released"
        )
    if context.replay.second_moments != "shared":
        raise ConfigError(
            f"replay.release = {context.replay.release!r} releases whole second moments, which "
            "cannot be carried over to another encoder; use --set replay.release=sum"
        )


def _carried(session: Session, agreement: Agreement, earlier: Earlier) -> Session:
    """The session in another encoder's space, with earlier releases unless they are dropped."""
    if earlier.carry == "dropped":
        return replace(session, agreement=agreement, releases=())
    old, new = session.agreement.space, agreement.space
    raw = earlier.carry == "raw"
    way = raw_passage(old, new) if raw else passage(old, new, earlier.between)
    releases = tuple(each.map(partial(carried, way=way)) for each in session.releases)
    return replace(session, agreement=agreement, releases=releases)


def _released(session: Session) -> Replay | None:
    """Q of the tasks released so far, without modes that are known from label texts only."""
    return session.replay().released() if session.releases else None


def rehearsal_of(context: MethodContext, releases: int) -> Rehearsal:
    """How a head is trained on the replay of so many releases, without a free rule."""
    return Rehearsal(
        context.initial_head(),
        context.head_settings,
        context.constants.n_r,
        PASSES,
        context.seeds.under("rehearse", releases),
    )


def _held(
    context: MethodContext, agreement: Agreement, releases: int, way: Passage | None = None
) -> Rehearsal:
    """``rehearsal_of`` with the free rule of label texts and public sentences, if there is one.

    way: from the agreement's space to that of ``context``, if that is another encoder's.
    """
    how = rehearsal_of(context, releases)
    if agreement.modes.texts is None or agreement.paper is not None:
        return how
    if context.family.name == "tagging":
        return replace(how, free=start_rule(context).head())
    prior, space = replay_of((), agreement).value, agreement.space
    if way is not None:
        prior, space = lifted(prior, way), _space_of(context)
    texts = context.label_texts
    share = share_of_zero_shot(clearness(context.public, texts))
    return replace(how, free=free_rule(prior, space, context.family, how, texts, share))


def free_head(context: MethodContext, agreement: Agreement) -> Head | None:
    """The free rule of label texts and public sentences, if there is one."""
    return _held(context, agreement, 0).free


def prior_head(context: MethodContext) -> Head:
    """The head from label texts and public sentences, at which training by clients starts."""
    labels = replace(
        context,
        replay=context.replay.model_copy(update={"release": "sum", "sub_modes": 1}),
        constants=context.constants.model_copy(update={"list_size": 1}),
    )
    session = Session(agree(labels), context.plan, context.ledger, context.keep)
    return session.learn(replace(rehearsal_of(labels, 0), goes_on=True))


def _first_head(context: MethodContext) -> Head:
    """The head at which training by clients starts: ``prior_head``, or the paper's random one."""
    if context.paper is not None and context.paper.start == "random":
        return context.initial_head()
    return prior_head(context)


def _replay_arrays(replay: Replay, agreement: Agreement) -> dict[str, FloatArray]:
    """Q_{1:t} as arrays that a run saves; they suffice to sample from it."""
    return {
        "weights": replay.weights,
        "mean": replay.mean,
        "variance": replay.gaussians(agreement.space).covariance,
        "labels": replay.labels.astype(np.float64),
        "tasks": replay.tasks.astype(np.float64),
        "targets": replay.targets,
        "known": replay.known.astype(np.float64),
        "centre": agreement.space.centre,
        "basis": agreement.space.basis,
    }


def _fitted(
    context: MethodContext,
    session: Session,
    head: Head | None = None,
    aligned: Sequence[Alignment] = (),
) -> Fitted:
    """What is learnt from the releases of a session.

    head: the one that clients trained, if they did; aligned: how well candidates were matched.
    """
    replay, tasks = session.replay(), len(session.releases)
    known = replay.heard
    encoder_heads: list[Head] = []
    if head is not None:  # trained on clients' rows: it knows the labels of all tasks so far
        known = known | context.seen(tasks)
    else:
        head = session.learn(_held(context, session.agreement, tasks))
        if session.agreement.second_moments == "shared":
            encoder_heads = [_encoder_head(view, session, replay, head) for view in context.views]
    fitted = fitted_by(
        head, known, context.family, replay=_replay_arrays(replay, session.agreement)
    )
    return replace(
        fitted,
        artefacts={
            **fitted.artefacts,
            "picture": picture_arrays(session, replay),
            **{f"head-{number}": vars(each) for number, each in enumerate(encoder_heads)},
        },
        own=[fitted_by(each, known, context.family).scores for each in encoder_heads],
        diagnosis=summary(aligned) if aligned else {},
    )


def _encoder_head(view: View, session: Session, replay: Replay, common: Head) -> Head:
    """A head for one of the encoders that clients run, from the replay mapped into its space.

    It is made like the head in common coordinates, so every client with that encoder can make it.
    """
    if view.back is None:
        return common
    space = _space_of(view.context)
    way = passage(session.agreement.space, space, view.back)
    rehearsal = _held(view.context, session.agreement, len(session.releases), way)
    return rehearse(lifted(replay, way), space, view.context.family, rehearsal)


def schedule(config: Config) -> Schedule:
    """The releases per task: the replay, and noised updates of a head if clients train it."""
    replay, head = config.replay, config.head
    if head.kind == "rounds":
        return Schedule(replay=0, head=head.rounds or gradient_rounds.ROUNDS)
    return Schedule(
        replay=len(BLOCKS) if replay.clipping == "separate" else 1,
        lists=1 if replay.sends_lists else 0,
        head=(head.rounds or ROUNDS) if head.kind == "dp-fedavg" else 0,
    )


def replay_method(
    meaning: str,
    settings: Mapping[str, object] | None = None,
    defaults: Mapping[str, object] | None = None,
    head_q: float | None = None,
) -> Method:
    """CSLR with other settings: fixed ones, and defaults for those that are not given."""
    return Method(
        stages,
        reads="privately",
        schedule=schedule,
        settings=settings or {},
        defaults=defaults or {},
        head_q=head_q,
        meaning=meaning,
        carries=True,
    )


METHOD: Final = replace(replay_method("learnt from private releases"), chooses_head=True)


# -- arrays for the plots of a report --------------------------------------------------------------

BLOCK_NAMES: Final = ("weight", "offset", "second", "target", "tied")
"""Blocks of a release, in the order of ``blocks``."""


def picture_arrays(session: Session, replay: Replay) -> dict[str, FloatArray]:
    """Arrays for plots of Q_{1:t}.

    plane (d, 2) and origin (d,): an embedding z is drawn at (z − origin) @ plane. anchors,
    prototypes, means: (·, 2) positions in that plane; covariance (K, 2, 2). blocks (T, 5) and
    directions (T, r): signal-to-noise ratio of each block of a release, and of its means by
    direction; NaN if not sent, or sent without noise.
    """
    space, modes = session.agreement.space, session.agreement.modes
    prototypes = modes.prototypes.mean
    plane = _plane(prototypes, space)
    centre = prototypes.mean(axis=0)
    releases = [release.value for release in session.releases]
    return {
        "plane": space.basis[:, : space.dimension] @ plane,
        "origin": space.centre + space.basis[:, : space.dimension] @ centre,
        "anchors": (space.anchors - centre) @ plane,
        "prototypes": (prototypes - centre) @ plane,
        "means": (replay.mean - centre) @ plane,
        "covariance": _drawn_covariance(replay, space, plane),
        "labels": replay.labels.astype(np.float64),
        "known": replay.known.astype(np.float64),
        "tasks": replay.tasks.astype(np.float64),
        "blocks": np.array([_blocks(release) for release in releases]).reshape(-1, 5),
        "directions": _directions(releases, space.dimension),
    }


def _plane(prototypes: FloatArray, space: PublicSpace) -> FloatArray:
    """(r, 2) the two directions in which prototypes differ most, or the leading public ones."""
    apart = prototypes - prototypes.mean(axis=0)
    _, sizes, rows = np.linalg.svd(apart, full_matrices=False)
    rows = rows[sizes > 1e-9][:2]
    while len(rows) < min(2, space.dimension):
        rest = np.eye(space.dimension) - rows.T @ rows
        best = rest[np.argmax(np.linalg.norm(rest, axis=1))]
        rows = np.concatenate([rows, [best / np.linalg.norm(best)]])
    return np.pad(rows, ((0, 2 - len(rows)), (0, 0))).T


def _drawn_covariance(replay: Replay, space: PublicSpace, plane: FloatArray) -> FloatArray:
    """(K, 2, 2) the modes' covariances in the plane."""
    covariance = replay.gaussians(space).covariance
    whole = covariance if covariance.ndim == 3 else np.eye(len(plane)) * covariance[:, None]
    return plane.T @ whole @ plane


def _blocks(release: TaskRelease) -> list[float]:
    sums, noise = release.sums, release.noise
    pairs = [(getattr(sums, name), getattr(noise, name)) for name in BLOCK_NAMES]
    return [_ratio(np.asarray(block), deviation) for block, deviation in pairs]


def _ratio(values: FloatArray, deviation: float) -> float:
    """Root mean square of the values beyond noise, in standard deviations of the noise."""
    if not values.size or deviation == 0:
        return float("nan")
    power = float(np.square(values / deviation).mean())
    return float(np.sqrt(max(power - 1.0, 0.0)))


def _directions(releases: Sequence[TaskRelease], dimension: int) -> FloatArray:
    """(T, r) the ratio of each direction of the means; NaN if votes are sent instead."""
    rows = [
        [_ratio(release.sums.offset[:, j], release.noise.offset) for j in range(dimension)]
        if release.sums.offset.shape[-1] == dimension
        else [float("nan")] * dimension
        for release in releases
    ]
    return np.array(rows).reshape(-1, dimension)
