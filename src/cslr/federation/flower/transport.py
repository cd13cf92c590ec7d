"""The coordinator's transport over a Flower grid.

Flower's own ``send_and_receive`` polls every three seconds; this one polls more often and stops at
the deadline of an exchange. Each node proves which member it is by signing a challenge.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from cslr.errors import CslrError
from cslr.federation.flower.apps import CODES_FROM, body_of, message_for
from cslr.federation.parties.coordinator import Reply
from cslr.federation.parties.proof import CHALLENGE_BYTES, proven
from cslr.federation.parties.refusals import FAILED
from cslr.privacy.secure_sum import SumTerms

__all__ = ["GridTransport"]


@dataclass
class GridTransport:
    """Members by their numbers, on the nodes of a grid."""

    grid: Grid
    terms: SumTerms
    pause: float = 0.1
    """Seconds between two polls for answers."""
    hello_seconds: float = 60.0
    _nodes: dict[int, int] = field(default_factory=dict, init=False)
    """Member -> node."""

    def present(self) -> frozenset[int]:
        """The members whose nodes are online and have proven who they are."""
        online = set(self.grid.get_node_ids())
        self._greet(sorted(online - set(self._nodes.values())))
        return frozenset(member for member, node in self._nodes.items() if node in online)

    def ask(self, route: str, bodies: Mapping[int, bytes], seconds: float) -> dict[int, Reply]:
        """The answers that came in time."""
        there = self.present() & bodies.keys()
        questions = {self._nodes[member]: (route, bodies[member]) for member in sorted(there)}
        replies = self._exchange(questions, seconds)
        found = {member: replies.get(self._nodes[member]) for member in there}
        return {member: reply for member, reply in found.items() if reply is not None}

    def _greet(self, nodes: list[int]) -> None:
        challenge = os.urandom(CHALLENGE_BYTES)
        questions = dict.fromkeys(nodes, ("hello", challenge))
        for node, reply in self._exchange(questions, self.hello_seconds).items():
            try:
                self._nodes[proven(self.terms, challenge, reply.body)] = node
            except CslrError:
                continue  # not a member, or not yet: it is asked again next time

    def _exchange(
        self, questions: Mapping[int, tuple[str, bytes]], seconds: float
    ) -> dict[int, Reply]:
        """Send questions and wait for the replies; both by node."""
        if not questions:
            return {}
        messages = [message_for(node, *question, seconds) for node, question in questions.items()]
        pushed = zip(self.grid.push_messages(messages), questions, strict=False)
        waiting = {name: node for name, node in pushed if name}
        replies: dict[int, Reply] = {}
        end = time.monotonic() + seconds
        while waiting and time.monotonic() < end:
            for message in self.grid.pull_messages(list(waiting)):
                node = waiting.pop(message.metadata.reply_to_message_id, None)
                reply = _reply_of(message)
                if node is not None and reply is not None:
                    replies[node] = reply
            if waiting:
                time.sleep(self.pause)
        return replies


def _reply_of(message: Message) -> Reply | None:
    """The reply in a message; None if the node is gone or its answer was lost."""
    if message.has_error():
        code = message.error.code - CODES_FROM
        return Reply(code=code) if code > 0 else None
    try:
        return Reply(body_of(message))
    except CslrError:
        return Reply(code=FAILED)
