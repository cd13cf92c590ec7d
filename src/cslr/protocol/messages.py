"""All kinds of messages that leave a client: how each is made, bounded, and charged.

``MESSAGES`` has one entry for each kind of message: where it goes, what bounds the contribution of
one client, who adds the noise, and how it is charged. ``messages_of`` finds the entries of a charge
and refuses undeclared ones. A test records all messages of every method to show that the list is
complete. ``ANSWERS`` has the device's function for each kind of request, and ``with_bound`` finds
the clipping bound, from simulated clients on the public corpus.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np

from cslr.arrays import FloatArray
from cslr.errors import PrivacyError
from cslr.numerics.mixture import Gaussians
from cslr.privacy.accounting import Charge
from cslr.privacy.values import Bounded, joint_norms
from cslr.protocol.agreement import BOUND_QUANTILE, Agreement, simulated_clients
from cslr.protocol.evaluation import answers_of
from cslr.protocol.list_mode import list_of
from cslr.protocol.literal.device import (
    WrittenLists,
    bounds,
    list_bound,
    written_lists,
    written_sums,
)
from cslr.protocol.ports import Ask, AskKind, Examples, Request
from cslr.protocol.round import blocks_of, contribute, contribute_block, statistics_of
from cslr.protocol.step1_list import coordinates_of, group_lists
from cslr.protocol.step4_aggregate.contribution import (
    BLOCKS,
    entry_statistics,
    joined,
    tied_factors,
)
from cslr.protocol.updates import update_of
from cslr.seeding import Seeds

__all__ = ["ANSWERS", "MESSAGES", "Device", "MessageKind", "answer", "messages_of", "with_bound"]


@dataclass(frozen=True)
class MessageKind:
    """One kind of message; everything here is public."""

    name: str
    leaves: Literal["sum", "server"]
    """Where a client sends it: into a sum, of which only the total is seen, or to the server."""
    made_by: str
    """Dotted name of the function that makes and bounds it on the device."""
    clipped_by: str
    """What bounds the contribution of one client."""
    noised_by: Literal["aggregator", "device", "nobody"]
    """Who adds the discrete Gaussian noise; nobody: it costs ε = ∞ end to end."""
    charged_as: str
    """How it is charged."""
    seen_by: str
    """Who besides the client sees it before noise is added."""
    part: Literal["replay", "head", "evaluation"]
    label: str
    """Regular expression of its labels in a ledger."""
    full_rate: bool = False
    """Whether it may not claim amplification by sampling (q < 1): its sender is known, it has no
    noise, or every client sends it."""

    def pays(self, charge: Charge) -> bool:
        """Whether this charge may be for a message of this kind, with the σ and q it claims."""
        return (
            re.fullmatch(self.label, charge.label) is not None
            and charge.part == self.part
            and (charge.sigma is None or self.noised_by != "nobody")
            and (charge.q == 1.0 or not self.full_rate)
        )


_AGGREGATOR: Final = "the aggregator, as a sum over clients"


def _block(name: str) -> MessageKind:
    return MessageKind(
        name=f"{name} of a task",
        leaves="sum",
        made_by="cslr.protocol.round.contribute_block",
        clipped_by="a separate ℓ2 clip, over all modes",
        noised_by="aggregator",
        charged_as="Plan.charge; all four share one participation coin",
        seen_by=_AGGREGATOR,
        part="replay",
        label=rf"task \d+ {name}",
    )


MESSAGES: Final[tuple[MessageKind, ...]] = (
    MessageKind(
        name="statistics of a task",
        leaves="sum",
        made_by="cslr.protocol.round.contribute",
        clipped_by="one ℓ2 clip over all modes and statistics",
        noised_by="aggregator",
        charged_as="Plan.charge",
        seen_by=_AGGREGATOR,
        part="replay",
        label=r"task \d+",
    ),
    *map(_block, BLOCKS),
    MessageKind(
        name="list of a task",
        leaves="server",
        made_by="cslr.protocol.list_mode.list_of",
        clipped_by="one ℓ2 clip over all candidates",
        noised_by="device",
        charged_as="Plan.list_charge, with q = 1",
        seen_by="nobody",
        part="replay",
        label=r"task \d+ list",
        full_rate=True,
    ),
    MessageKind(
        name="update of a head",
        leaves="sum",
        made_by="cslr.protocol.updates.update_of",
        clipped_by="one ℓ2 clip over all trained parameters",
        noised_by="aggregator",
        charged_as="Plan.head_charge; without noise, a charge without σ",
        seen_by=_AGGREGATOR,
        part="head",
        label=r"task \d+ update \d+",
    ),
    MessageKind(
        name="update of other networks",
        leaves="sum",
        made_by="cslr.protocol.updates.update_of",
        clipped_by="one ℓ2 clip over all networks together",
        noised_by="aggregator",
        charged_as="Plan.head_charge",
        seen_by=_AGGREGATOR,
        part="head",
        label=r"task \d+ update \d+",
    ),
    MessageKind(
        name="right answers",
        leaves="sum",
        made_by="cslr.protocol.evaluation.answers_of",
        clipped_by="one ℓ2 clip over the shares of right and wrong answers of all tasks",
        noised_by="aggregator",
        charged_as="Plan.evaluation_charge, with q = 1",
        seen_by=_AGGREGATOR,
        part="evaluation",
        label="evaluation",
        full_rate=True,
    ),
    MessageKind(
        name="adapters and class means",
        leaves="server",
        made_by="cslr.methods.fedta.server.candidates_of",
        clipped_by="nothing",
        noised_by="nobody",
        charged_as="a charge without σ",
        seen_by="the server, client by client",
        part="head",
        label="local training",
        full_rate=True,
    ),
    MessageKind(
        name="rows of clients",
        leaves="server",
        made_by="cslr.methods.method.head_on_rows",
        clipped_by="nothing",
        noised_by="nobody",
        charged_as="a charge without σ",
        seen_by="whoever trains on them",
        part="head",
        label="pooled training",
        full_rate=True,
    ),
)


def messages_of(charge: Charge) -> tuple[MessageKind, ...]:
    """The kinds of message that a charge may be for: more than one if they share a label.

    A charge that matches no declared kind, or claims what its kind does not allow, is refused.
    """
    matching = tuple(message for message in MESSAGES if message.pays(charge))
    if not matching:
        raise PrivacyError(
            f"{charge.label!r} (part {charge.part}, sigma {charge.sigma}, q {charge.q:g}) "
            "does not match any declared message of a client; declare it in "
            "cslr/protocol/messages.py"
        )
    return matching


# -- how a device makes them -----------------------------------------------------------------------

ANSWERS: Final[Mapping[AskKind, Callable[[Any, Ask[Any]], Bounded]]] = {
    "sum": contribute,
    "block": contribute_block,
    "list": list_of,
    "update": update_of,
    "evaluation": answers_of,
}
"""Rows of b clients and a request -> (b, D) their clipped answers."""


def answer(rows: Any, ask: Ask[Any]) -> Bounded:
    """The answers of b clients with these rows; each depends on the client's own rows only."""
    return ANSWERS[ask.kind](rows, ask)


@dataclass(eq=False)
class Device:
    """Answers requests for the clients of one round, and caches work between requests.

    The four statistics of a task share one request: what clients compute for the first statistic is
    cached, per client, until another request arrives. The lists of the paper's protocol are cached
    too: clients send them first and compute their sums from them afterwards.
    """

    _request: Request | None = field(default=None, init=False)
    _blocks: dict[tuple[int, ...], list[FloatArray]] = field(default_factory=dict, init=False)
    _listed: Request | None = field(default=None, init=False)
    _lists: dict[tuple[int, ...], list[WrittenLists]] = field(default_factory=dict, init=False)

    def answer(self, examples: Examples, ask: Ask[Any]) -> Bounded:
        """As the function ``answer``; the examples of the same clients must not change."""
        if ask.kind == "list" and ask.request.paper is not None:
            return list_of(examples, ask, self._kept_lists(examples, ask.request))
        if ask.kind != "block":
            return answer(examples, ask)
        if ask.request is not self._request:
            self._request, self._blocks = ask.request, {}
        if examples.clients not in self._blocks:
            self._blocks[examples.clients] = self._new_blocks(examples, ask.request)
        return contribute_block(examples, ask, self._blocks[examples.clients])

    def _kept_lists(self, examples: Examples, request: Request) -> list[WrittenLists]:
        """The lists for a request, cached until sums are computed from them."""
        if request is not self._listed:
            self._listed, self._lists = request, {}
        self._lists[examples.clients] = written_lists(examples, request)
        return self._lists[examples.clients]

    def _new_blocks(self, examples: Examples, request: Request) -> list[FloatArray]:
        """The four statistics, from the lists that were sent if the request is about those."""
        lists = self._lists.pop(examples.clients, None)
        if lists is None or self._listed is None or not _same_lists(self._listed, request):
            return blocks_of(examples, request)
        return request.layout.blocks(written_sums(examples, request, lists))


def _same_lists(first: Request, second: Request) -> bool:
    """Whether clients have the same lists for two requests, bit for bit.

    With one candidate per list they may differ: the layout decides which rows a group reads.
    """
    public = ("task", "groups", "space", "family", "learner", "seed", "head", "paper")
    same = all(getattr(first, name) is getattr(second, name) for name in public)
    return same and first.learner.size > 1


# -- the bound they are clipped to -----------------------------------------------------------------

TARGET_BOUND: Final = 1.0
"""B_y of targets that are clipped separately: public sentences have no targets to learn it from."""


def with_bound(agreement: Agreement, public: FloatArray, labels_per_task: int) -> Agreement:
    """The agreement with its clipping bound S and the share of weight that survives the clip.

    public: (n, d) the embedded public corpus. The simulated clients are compared with prototypes
    at the public centre, not with those of the labels.
    """
    if agreement.paper is not None:
        return _written_bounds(agreement)
    resolution = agreement.resolution
    labels_per_task = resolution.simulated_labels or labels_per_task
    examples = simulated_clients(
        public, labels_per_task, Seeds(agreement.seed), resolution.simulated_rows
    )
    sub_modes = len(agreement.modes.group) // len(agreement.modes.groups)
    labels = tuple(range(labels_per_task))
    groups = (labels,) if agreement.modes.pooled else tuple((label,) for label in labels)
    count, r = len(groups) * sub_modes, agreement.space.dimension
    offered = agreement.modes.candidates
    request = replace(
        agreement.request(0, ()),
        groups=groups,
        prototypes=Gaussians(
            np.zeros((count, r)), np.broadcast_to(agreement.space.spread, (count, r))
        ),
        layout=agreement.layout(count),
        candidates=None if offered is None else offered[: len(groups)],
    )
    x = coordinates_of(examples, request)
    statistics = statistics_of(examples, request, x)
    spread = request.space.spread
    lists = joined([entry_statistics(group, spread) for _, group in group_lists(examples, request)])
    list_norms = np.linalg.norm(agreement.list_layout(len(groups)).pack(lists), axis=1)
    list_bound = float(np.quantile(list_norms, BOUND_QUANTILE))
    agreement = replace(agreement, list_bound=list_bound)
    if agreement.clipping == "separate":
        *norms, _ = (np.linalg.norm(each, axis=1) for each in request.layout.blocks(statistics))
        bounds = [float(np.quantile(norm, BOUND_QUANTILE)) for norm in norms]
        kept = float(np.minimum(1.0, bounds[0] / norms[0]).mean())
        return replace(agreement, bounds=(*bounds, TARGET_BOUND), kept=kept)
    factors = tied_factors(x, examples, request)  # no column where there is no matrix
    joint = joint_norms(request.layout.pack(statistics), factors)
    bound = float(np.quantile(joint, BOUND_QUANTILE))
    kept = float(np.minimum(1.0, bound / joint).mean())
    # Several clients may hold rows of one unit; together they may move a sum by at most S.
    return replace(agreement, bounds=(bound * agreement.clients_per_person,), kept=kept)


def _written_bounds(agreement: Agreement) -> Agreement:
    """The bounds of the paper's protocol: of each of the four sums, and of a list."""
    paper = agreement.paper
    assert paper is not None
    modes = len(agreement.modes.group) // len(agreement.modes.groups)  # a task is one group
    entries = agreement.learner.size
    return replace(
        agreement,
        bounds=bounds(paper, entries, modes),
        list_bound=list_bound(paper, entries),
    )
