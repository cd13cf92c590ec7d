"""A Flower grid in one process: the same apps and messages as over a network, without one.

Messages are turned into bytes and back as on the wire. It sets two of Flower's private names, as
its own grids do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from cslr.errors import ConfigError

_RUN = 1
_UNAVAILABLE = 5
"""Flower's code for a node that is gone."""


class LocalGrid(Grid):
    """Nodes are ClientApps; one that is None is gone."""

    def __init__(self, apps: Mapping[int, ClientApp | None]) -> None:
        self.apps = apps
        self.lose: Callable[[Message], bool] = lambda message: False
        """Whether a question is lost on the way."""
        self._replies: dict[str, Message] = {}
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = _RUN, _RUN, _RUN

    def set_run(self, run: Run) -> None:
        """There is one run."""

    @property
    def run(self) -> Run:
        """There is nothing to be known about it."""
        raise ConfigError("a local grid has no run")

    def create_message(self, *arguments: Any, **more: Any) -> Message:
        """Flower's former way to make a message."""
        raise ConfigError("make messages with flwr.app.Message")

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are there."""
        return [node for node, app in self.apps.items() if app is not None]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Each node answers at once."""
        return [self._push(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The answers that came."""
        found = [self._replies.pop(name, None) for name in list(message_ids)]
        return [reply for reply in found if reply is not None]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Both at once."""
        return self.pull_messages(self.push_messages(messages))

    def _push(self, message: Message) -> str:
        name = f"{message.object_id}-{message.metadata.dst_node_id}"
        meta = message.metadata.__dict__
        meta["_message_id"], meta["_src_node_id"], meta["_run_id"] = name, _RUN, _RUN
        app = self.apps.get(message.metadata.dst_node_id)
        if app is None or self.lose(message):
            self._replies[name] = Message(Error(_UNAVAILABLE, ""), reply_to=message)
            return name
        node = message.metadata.dst_node_id
        context = Context(
            run_id=_RUN,
            node_id=node,
            node_config={},
            state=RecordDict(),
            run_config={},
            series_id=1,
        )
        self._replies[name] = app(message, context)
        return name
