"""Algorithm 1: one communication round, top to bottom.

``contribute`` is what a device does, ``Session`` what the server does, ``replay_of`` what anyone
can do with the result. In ``sum`` mode the device matches its own candidates to public prototypes,
so no list is released. In ``list_mode`` clients release noised lists and the server assigns ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from cslr.arrays import FloatArray
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.plan import Plan
from cslr.privacy.values import Bounded, Released, bound, bound_with_matrix, gather
from cslr.protocol.agreement import Agreement
from cslr.protocol.head import Head
from cslr.protocol.list_mode import list_ask, with_names
from cslr.protocol.literal.device import written_lists, written_sums
from cslr.protocol.literal.replay import written_replay
from cslr.protocol.ports import Ask, Cohort, Examples, Keep, Request, release_lists, release_sum
from cslr.protocol.step1_list import coordinates_of, group_lists, group_targets
from cslr.protocol.step3_match import canonical_ids
from cslr.protocol.step4_aggregate.contribution import (
    BLOCKS,
    Statistics,
    group_statistics,
    joined,
    row_statistics,
    tied_factors,
)
from cslr.protocol.step4_aggregate.estimate import Replay, TaskRelease, estimate_replay
from cslr.protocol.step5_rehearse import Rehearsal, rehearse

__all__ = [
    "Session",
    "block_ask",
    "blocks_of",
    "contribute",
    "contribute_block",
    "replay_of",
    "statistics_of",
    "sum_ask",
]


def statistics_of(
    examples: Examples, request: Request, coordinates: FloatArray | None = None
) -> Statistics:
    """Lines 1 to 7, on the device: the raw statistics of b clients about each mode.

    coordinates: ``coordinates_of`` the examples, if they are computed already.
    """
    if request.paper is not None:
        return written_sums(examples, request, written_lists(examples, request, coordinates))
    if coordinates is not None and request.by_row(examples):
        return row_statistics(coordinates, examples, request)  # same result, faster
    parts: list[Statistics] = []
    # Line 2: a list of exactly L candidates, for each label or for all labels of the task.
    for x, group in group_lists(examples, request, coordinates):
        # Line 3: each candidate's target, if its label does not determine it.
        targets = group_targets(examples, x, group, request)
        # Line 4: signatures at the anchors; line 6: the canonical id of each candidate.
        ids = group.first_ids if request.one_mode else canonical_ids(examples, group, request)
        # Line 8: sufficient statistics per mode, relative to its prototype.
        parts.append(group_statistics(x, group, ids, targets, request))
    return joined(parts)


def sum_ask(request: Request) -> Ask[Request]:
    """The request for all statistics of a task as one vector."""
    return Ask(f"task {request.task}", "sum", request, request.grids[0])


def block_ask(request: Request, block: int) -> Ask[Request]:
    """The request for one of the four statistics of a task."""
    label = f"task {request.task} {BLOCKS[block]}"
    return Ask(label, "block", request, request.grids[block], block)


def contribute(examples: Examples, ask: Ask[Request]) -> Bounded:
    """Line 8, on the device: all modes and statistics as one vector, clipped once."""
    request, x = ask.request, coordinates_of(examples, ask.request)
    vectors = request.layout.pack(statistics_of(examples, request, x))
    if not request.layout.tied:
        return bound(vectors, ask.grid)
    return bound_with_matrix(vectors, tied_factors(x, examples, request), ask.grid)


def contribute_block(
    examples: Examples, ask: Ask[Request], blocks: list[FloatArray] | None = None
) -> Bounded:
    """Line 8 as in the paper: one of the four statistics, clipped separately.

    blocks: all four, if the device has computed them for an earlier request.
    """
    return bound((blocks or blocks_of(examples, ask.request))[ask.block], ask.grid)


def blocks_of(examples: Examples, request: Request) -> list[FloatArray]:
    """(b, ·) each of the four statistics, still raw."""
    return request.layout.blocks(statistics_of(examples, request))


@dataclass
class Session:
    """The server's side of a federation: one release per task, and what is learnt from them.

    ``release`` queries the clients and costs ε; ``learn`` is post-processing and costs nothing.
    """

    agreement: Agreement
    plan: Plan
    ledger: Ledger
    keep: Keep
    releases: tuple[Released[TaskRelease], ...] = ()
    """What was released so far, task by task."""
    request: Request | None = None  # of the last round; public

    def release(
        self, task: int, labels: tuple[int, ...], cohort: Cohort, head: Head | None = None
    ) -> Released[TaskRelease]:
        """Lines 1 to 8: ask the cohort for a sum, charge for it, add noise, save the result.

        Earlier releases move the prototypes. head: the one whose logits are the paper's targets.

        Guarantee: one Gaussian release of multiplier ``plan.sigma`` (one per list or separate
        clip), charged before its noise is drawn, and released once despite interruptions.
        """
        earlier = gather(self.releases)
        request = earlier.map(partial(self.agreement.request_after, task, labels, head)).value
        if self.agreement.release == "list":
            request = self._named(request, cohort)
        sums = self._sums(request, cohort)
        carried = self.ledger.carried(sum_ask(request).label)
        read = partial(self.agreement.read, request=request, plan=self.plan, carried=carried)
        released = sums.map(read)
        self.request, self.releases = request, (*self.releases, released)
        return released

    def replay(self) -> Replay:
        """Lines 9 to 13: Q_{1:t} from all releases so far."""
        return replay_of(self.releases, self.agreement).value

    def learn(self, rehearsal: Rehearsal) -> Head:
        """Step 5: a head from the replay alone; the initial head if the replay has no mode yet."""
        return rehearse(self.replay(), self.agreement.space, self.agreement.family, rehearsal)

    def snapshot(self) -> Session:
        """A copy of the session that later releases do not change."""
        return replace(self)

    def _named(self, request: Request, cohort: Cohort) -> Request:
        """Lines 1 to 6 in ``list`` mode: clients send noised lists, the server assigns ids."""
        ask = list_ask(request, self.agreement)
        charge = self.plan.list_charge(ask.label, request.task)
        lists = release_lists(ask, cohort, charge, self.ledger, self.keep)
        return lists.map(lambda rows: with_names(request, rows, ask.request.layout)).value

    def _sums(self, request: Request, cohort: Cohort) -> Released[Statistics]:
        """Line 8: the joint vector of a task, or its four statistics in separate releases."""
        if self.agreement.clipping == "joint":
            return self._released(sum_ask(request), cohort).map(request.layout.unpack)
        asks = [block_ask(request, block) for block in range(len(BLOCKS))]
        blocks = gather([self._released(ask, cohort) for ask in asks])
        return blocks.map(request.layout.from_blocks)

    def _released(self, ask: Ask[Request], cohort: Cohort) -> Released[FloatArray]:
        charge = self.plan.charge(ask.label, ask.request.task)
        return release_sum(ask, lambda: cohort, charge, self.ledger, self.keep)


def replay_of(releases: Sequence[Released[TaskRelease]], agreement: Agreement) -> Released[Replay]:
    """Lines 9 to 13, anywhere: Q_{1:t} from all releases so far; post-processing, at no cost."""
    modes, space, family = agreement.modes, agreement.space, agreement.family
    if agreement.paper is not None and releases:
        return gather(releases).map(lambda every: written_replay(every, modes, family))
    return gather(releases).map(lambda every: estimate_replay(every, modes, space, family))
