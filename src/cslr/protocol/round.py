"""Algorithm 1: one communication round, top to bottom.

``contribute`` is what a device does, ``one_round`` what the server does, ``replay_of`` what anyone
can do with the result. In ``sum`` mode the device names its own candidates: the prototypes are
public, so the list is never released and costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cslr.numerics.mixture import Mixture
from cslr.privacy.grid import bound
from cslr.privacy.ledger import Ledger
from cslr.privacy.mechanism import recall, release, settle
from cslr.privacy.plan import Plan
from cslr.privacy.values import Bounded, Released, gather
from cslr.protocol.agreement import Agreement
from cslr.protocol.ports import Cohort, Examples, Keep, Request
from cslr.protocol.step1_list import clip_embeddings, learn_lists, steadied
from cslr.protocol.step3_match import match
from cslr.protocol.step4_aggregate.contribution import (
    Statistics,
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
from cslr.protocol.targets import candidate_targets
from cslr.seeding import Seeds
from cslr.types import FloatArray

__all__ = ["contribute", "one_round", "replay_of", "statistics_of"]


def statistics_of(examples: Examples, request: Request) -> Statistics:
    """Lines 1 to 7, on the device: what b clients have to say about each mode, still raw.

    No operation mixes two clients, so their order cannot matter.
    """
    space, learner = request.space, request.learner
    x = space.into(clip_embeddings(examples.z))
    parts: list[Statistics] = []
    for label in request.labels:
        mine = examples.mask & (examples.labels == label)
        counts = mine.sum(axis=1)
        rngs = [
            Seeds(request.seed).at("task", request.task, "label", label, "client", client)
            for client in examples.clients
        ]
        # Line 2: a list of exactly L candidates.
        lists = learn_lists(x, mine, space.spread, learner, rngs)
        # Line 3: each candidate's target, as far as its label does not settle it.
        targets = candidate_targets(examples.targets, x, mine, lists, label, request.family)
        # Line 4: signatures at the anchors; line 6: the canonical id of each candidate.
        seen = Mixture(lists.weights, steadied(lists, counts, space.spread, learner.pseudo_count))
        prototypes = request.prototypes_of(label)
        ids = match(seen, prototypes, space.anchors, request.matcher, rngs)
        # Line 8: sufficient statistics per mode, relative to its prototype.
        parts.append(
            mode_statistics(
                lists,
                ids,
                counts,
                prototypes,
                space.spread,
                request.layout.seconds,
                learner.weight_floor,
                targets,
            )
        )
    return joined(parts)


def contribute(examples: Examples, request: Request) -> Bounded:
    """Line 8, on the device: all modes and blocks are one vector, and that is clipped, once."""
    return bound(request.layout.pack(statistics_of(examples, request)), request.grid)


def one_round(
    task: int,
    labels: tuple[int, ...],
    cohort: Cohort,
    agreement: Agreement,
    plan: Plan,
    ledger: Ledger,
    keep: Keep,
    earlier: Sequence[Released[TaskRelease]] = (),
) -> Released[TaskRelease]:
    """Lines 1 to 8, at the server: ask for a sum, pay, add noise once, keep the result.

    What ``earlier`` releases taught moves the prototypes that clients compare themselves with.

    Guarantee: the result is one Gaussian release of multiplier ``plan.sigma``, charged before its
    noise is drawn, and released once however often the round is interrupted.
    """
    label = f"task {task}"
    request = gather(earlier).map(partial(_request, task, labels, agreement)).value
    kept = keep.load(label)
    if kept is None:
        # `list` mode enters here: the server asks each client for its released list, clusters the
        # signatures, and sends the canonical ids back before it asks for the sum.
        summed = cohort.total(request)
        noisy = release(summed, plan.charge(label, task), ledger)
        keep.save(label, noisy.value)
        settle(noisy, label, ledger)
    else:
        noisy = recall(kept, label, ledger)
    return noisy.map(partial(_read, request=request, agreement=agreement, plan=plan))


def _request(
    task: int, labels: tuple[int, ...], agreement: Agreement, earlier: Sequence[TaskRelease]
) -> Request:
    """What clients are told: prototypes where the modes of this task are expected by now."""
    modes = agreement.modes.of_labels(labels)
    expected = expected_means(earlier, agreement.modes, agreement.space, task, modes)
    return agreement.request(task, labels, expected)


def _read(vector: FloatArray, request: Request, agreement: Agreement, plan: Plan) -> TaskRelease:
    """A released vector beside the public facts that give it meaning."""
    return TaskRelease(
        task=request.task,
        modes=agreement.modes.of_labels(request.labels),
        prototypes=request.prototypes.mean,
        sums=request.layout.unpack(vector),
        noise=Noise.of(plan.sigma, request.grid.bound, request.layout),
        expected_weight=plan.q * plan.cap / plan.releases * agreement.expected_weight,
    )


def replay_of(releases: Sequence[Released[TaskRelease]], agreement: Agreement) -> Released[Replay]:
    """Lines 9 to 13, anywhere: Q_{1:t} from all releases so far; post-processing, so free."""
    return gather(releases).map(
        lambda known: estimate_replay(known, agreement.modes, agreement.space, agreement.family)
    )
