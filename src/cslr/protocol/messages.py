"""All kinds of messages that leave a client, and how each is charged.

One entry for each kind of message: where it goes, what bounds one client's part in it, who adds the
noise, and how it is charged. ``messages_of`` finds the entries of a charge and refuses undeclared
ones. A test records all messages of every method to show that the list is complete.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from cslr.errors import PrivacyError
from cslr.privacy.accounting import Charge
from cslr.protocol.round import BLOCKS

__all__ = ["MESSAGES", "MessageKind", "messages_of"]


@dataclass(frozen=True)
class MessageKind:
    """One kind of message; everything here is public."""

    name: str
    leaves: Literal["sum", "server"]
    """Where a client sends it: into a sum that alone is seen, or to the server under its name."""
    made_by: str
    """The function on the device that bounds it, by its dotted name."""
    clipped_by: str
    """What bounds the part of one client."""
    noised_by: Literal["aggregator", "device", "nobody"]
    """Who adds the discrete Gaussian; nobody: it costs ε = ∞ end to end."""
    charged_as: str
    """How its price is made."""
    seen_by: str
    """Who sees it before its noise, if anybody but the client."""
    part: Literal["replay", "head", "evaluation"]
    label: str
    """Regular expression of the labels under which it stands in a ledger."""
    full_rate: bool = False
    """Whether it may claim no amplification: it comes with its sender's name, without noise, or
    from everybody."""

    def pays(self, charge: Charge) -> bool:
        """Whether this charge is for a message of this kind, at a price that its kind allows."""
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
    """The kinds of message that a charge may be for: more than one where labels are alike.

    Refused if none is declared, or if the charge claims what its kind does not allow.
    """
    matching = tuple(message for message in MESSAGES if message.pays(charge))
    if not matching:
        raise PrivacyError(
            f"{charge.label!r} (part {charge.part}, sigma {charge.sigma}, q {charge.q:g}) "
            "does not match any declared message of a client; declare it in "
            "cslr/protocol/messages.py"
        )
    return matching
