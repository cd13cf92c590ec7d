"""Algorithm 1: one communication round, top to bottom.

``contribute`` is what a device does, ``one_round`` what the server does, ``replay_of`` what anyone
can do with the result. In ``sum`` mode the device names its own candidates: the prototypes are
public, so the list is never released and costs nothing; ``list_mode`` is the paper's other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from cslr.arrays import FloatArray, IntArray
from cslr.numerics.mixture import Mixture
from cslr.numerics.projection import onto_ball
from cslr.privacy.grid import bound
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.mechanism import release
from cslr.privacy.plan import Plan
from cslr.privacy.values import Bounded, Released, gather
from cslr.protocol.agreement import Agreement
from cslr.protocol.head import Head
from cslr.protocol.list_mode import named
from cslr.protocol.once import release_once
from cslr.protocol.ports import Cohort, Device, Examples, Keep, Request
from cslr.protocol.step1_list import GroupLists, group_lists, steadied
from cslr.protocol.step3_match import match
from cslr.protocol.step4_aggregate.contribution import (
    Statistics,
    full_second_moments,
    joined,
    mode_statistics,
)
from cslr.protocol.step4_aggregate.estimate import (
    Noise,
    Replay,
    TaskRelease,
    estimate_replay,
    expected_means,
)
from cslr.protocol.step4_aggregate.selection import elected, votes
from cslr.protocol.targets import candidate_targets

__all__ = [
    "canonical_ids",
    "contribute",
    "contribute_block",
    "one_round",
    "replay_of",
    "request_for",
    "statistics_of",
]

BLOCKS: Final = ("weights", "means", "seconds", "targets")


def statistics_of(examples: Examples, request: Request) -> Statistics:
    """Lines 1 to 7, on the device: what b clients have to say about each mode, still raw.

    No operation mixes two clients, so their order cannot matter.
    """
    space = request.space
    parts: list[Statistics] = []
    # Line 2: a list of exactly L candidates, for each label or for all labels of the task.
    for x, own in group_lists(examples, request):
        lists = own.lists
        # Line 3: each candidate's target, as far as its label does not settle it.
        y, usual = _targets(examples, own.group, request)
        targets = candidate_targets(y, x, own.mine, lists, usual, request.layout.targets)
        # Line 4: signatures at the anchors; line 6: the canonical id of each candidate.
        ids = canonical_ids(examples, own, request)
        # Line 8: sufficient statistics per mode, relative to its prototype.
        whole, offered = request.layout.seconds > space.dimension, request.candidates
        parts.append(
            mode_statistics(
                lists,
                ids,
                own.counts,
                request.prototypes_of(own.place),
                space.spread,
                request.layout.seconds,
                request.learner.weight_floor,
                targets,
                full_second_moments(x, own.mine, lists) if whole else None,
                None if offered is None else votes(lists.gaussians.mean, offered[own.place]),
            )
        )
    return joined(parts)


def canonical_ids(examples: Examples, own: GroupLists, request: Request) -> IntArray:
    """(b, L) the mode of each candidate: by the device itself, or as the server named it.

    One that sent no list was given no names: −1, and what it has goes nowhere.
    """
    if request.names is not None:
        nameless = np.full((len(request.groups), request.learner.size), -1)
        names = [request.names.get(client, nameless) for client in examples.clients]
        return np.stack([name[own.place] for name in names])
    space, learner = request.space, request.learner
    # Signatures compare densities, and one from five examples in hundreds of directions is none.
    steady = steadied(own.lists, own.counts, space.spread, learner.pseudo_count)
    seen = Mixture(own.lists.weights, steady)
    prototypes = request.prototypes_of(own.place)
    return match(seen, prototypes, space.anchors, request.matcher, own.rngs)


def _targets(
    examples: Examples, group: tuple[int, ...], request: Request
) -> tuple[FloatArray | None, FloatArray]:
    """y (b, n, outputs) of the examples, and what of it is usual for the group, (outputs,)."""
    if request.head is not None:
        logits = request.head.scores(examples.z)
        logits = logits - logits.mean(axis=-1, keepdims=True)
        return onto_ball(logits, 1.0), np.zeros(logits.shape[-1])
    return examples.targets, request.family.usual_of(group)


def contribute(examples: Examples, request: Request) -> Bounded:
    """Line 8, on the device: all modes and blocks are one vector, and that is clipped, once."""
    return bound(request.layout.pack(statistics_of(examples, request)), request.grids[0])


def contribute_block(
    examples: Examples,
    request: Request,
    block: int,
    remembered: dict[tuple[int, ...], list[FloatArray]] | None = None,
) -> Bounded:
    """Line 8 as the paper has it: one of the four statistics, clipped by itself.

    remembered: what a device keeps between the four questions, by its clients.
    """
    remembered = {} if remembered is None else remembered
    if examples.clients not in remembered:
        statistics = statistics_of(examples, request)
        remembered[examples.clients] = request.layout.blocks(statistics)
    return bound(remembered[examples.clients][block], request.grids[block])


def one_round(
    task: int,
    labels: tuple[int, ...],
    cohort: Cohort,
    agreement: Agreement,
    plan: Plan,
    ledger: Ledger,
    keep: Keep,
    earlier: Sequence[Released[TaskRelease]] = (),
    head: Head | None = None,
) -> Released[TaskRelease]:
    """Lines 1 to 8, at the server: ask for a sum, pay, add noise once, keep the result.

    What ``earlier`` releases taught moves the prototypes that clients compare themselves with.
    head: whose logits are the targets, in the paper's protocol.

    Guarantee: the result is one Gaussian release of multiplier ``plan.sigma`` (with lists or with
    separate clips: one for each of them), charged before its noise is drawn, and released once
    however often the round is interrupted.
    """
    request = request_for(task, labels, cohort, agreement, plan, ledger, keep, earlier, head)
    label = f"task {task}"
    if agreement.clipping == "joint":
        device = partial(contribute, request=request)
        noisy = _released(label, device, task, cohort, plan, ledger, keep)
        sums = noisy.map(request.layout.unpack)
    else:
        remembered: dict[tuple[int, ...], list[FloatArray]] = {}
        blocks = [
            _released(
                f"{label} {name}",
                partial(contribute_block, request=request, block=block, remembered=remembered),
                task,
                cohort,
                plan,
                ledger,
                keep,
            )
            for block, name in enumerate(BLOCKS)
        ]
        sums = gather(blocks).map(request.layout.from_blocks)
    return sums.map(partial(_read, request=request, agreement=agreement, plan=plan))


def _released(
    label: str,
    device: Device,
    task: int,
    cohort: Cohort,
    plan: Plan,
    ledger: Ledger,
    keep: Keep,
) -> Released[FloatArray]:
    """One sum: asked for, paid, noised and kept; or recalled if it was kept before."""
    charge = plan.charge(label, task)
    return release_once(charge, lambda: release(cohort.total(device), charge, ledger), ledger, keep)


def request_for(
    task: int,
    labels: tuple[int, ...],
    cohort: Cohort,
    agreement: Agreement,
    plan: Plan,
    ledger: Ledger,
    keep: Keep,
    earlier: Sequence[Released[TaskRelease]],
    head: Head | None,
) -> Request:
    """Lines 1 to 6: what the clients are told, in ``list`` mode after they sent their lists."""
    request = gather(earlier).map(partial(_request, task, labels, agreement, head)).value
    if agreement.release == "list":
        return named(request, cohort, agreement, plan, ledger, keep)
    return request


def _request(
    task: int,
    labels: tuple[int, ...],
    agreement: Agreement,
    head: Head | None,
    earlier: Sequence[TaskRelease],
) -> Request:
    """What clients are told: prototypes where the modes of this task are expected by now."""
    modes = agreement.modes.of_groups(agreement.modes.groups_of(labels))
    expected = expected_means(earlier, agreement.modes, agreement.space, task, modes)
    return agreement.request(task, labels, expected, head)


def _read(sums: Statistics, request: Request, agreement: Agreement, plan: Plan) -> TaskRelease:
    """Released sums beside the public facts that give them meaning."""
    share = plan.q * plan.cap / plan.releases / request.sub_modes
    modes, offered = agreement.modes.of_groups(request.groups), request.candidates
    winners = None
    if offered is not None:
        winners = elected(sums.offset, offered, np.arange(len(modes)) // request.sub_modes)
    return TaskRelease(
        task=request.task,
        modes=modes,
        prototypes=request.prototypes.mean,
        sums=sums,
        noise=Noise.of(plan.sigma, agreement.bounds, request.layout),
        expected_weight=share * agreement.expected_weight,
        logits=request.head is not None,
        elected=winners,
    )


def replay_of(releases: Sequence[Released[TaskRelease]], agreement: Agreement) -> Released[Replay]:
    """Lines 9 to 13, anywhere: Q_{1:t} from all releases so far; post-processing, so free."""
    return gather(releases).map(
        lambda known: estimate_replay(known, agreement.modes, agreement.space, agreement.family)
    )
