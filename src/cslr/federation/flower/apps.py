"""A node's Flower app and its messages: bytes between ``Node.answer`` and a ``Transport``.

Nothing is read from a run's configuration, which the server sets. A node reports an error as a
fixed code without text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from cslr.errors import MalformedMessage
from cslr.federation.parties.node import ROUTES
from cslr.federation.parties.refusals import code_of

__all__ = ["CODES_FROM", "body_of", "client_app", "message_for"]

CODES_FROM: Final = 1000
"""Codes of refusals begin here; smaller ones are Flower's own."""


def body_of(message: Message) -> bytes:
    """The bytes that a message carries."""
    try:
        body = message.content["cslr"]["body"]
    except (KeyError, TypeError, ValueError):
        body = None
    if not isinstance(body, bytes):
        raise MalformedMessage("the message carries no bytes under cslr/body")
    return body


def message_for(node: int, route: str, body: bytes, seconds: float) -> Message:
    """A question to a node; its deadline is its time to live."""
    content = RecordDict({"cslr": ConfigRecord({"body": body})})
    return Message(content, dst_node_id=node, message_type=f"query.{route}", ttl=seconds)


def client_app(
    answer: Callable[[str, bytes], bytes], log: Callable[[str], None] = lambda line: None
) -> ClientApp:
    """A ClientApp that answers with ``answer(route, body)``."""
    app = ClientApp()

    def register(route: str) -> None:
        @app.query(route)
        def handle(message: Message, context: Context) -> Message:
            try:
                body = answer(route, body_of(message))
            except Exception as error:  # of any kind: its text stays on the node
                log(f"{route}: {type(error).__name__}: {error}")
                return Message(Error(CODES_FROM + code_of(error), ""), reply_to=message)
            log(f"{route}: answered with {len(body)} bytes")
            content = RecordDict({"cslr": ConfigRecord({"body": body})})
            return Message(content, reply_to=message)

    for route in ROUTES:
        register(route)
    return app
