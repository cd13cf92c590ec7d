"""A node's machine: its keys, its SuperNode, and the executor that answers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Final

from cslr.errors import ConfigError
from cslr.federation.flower.apps import client_app
from cslr.federation.flower.certificates import make_authority, make_certificate, make_node_key
from cslr.federation.flower.executor import answer_tasks
from cslr.federation.flower.processes import (
    Processes,
    free_port,
    supernode_command,
    wait_for_port,
)
from cslr.federation.parties.charter import read_model
from cslr.federation.parties.membership import renew_identity, renewed
from cslr.federation.parties.node import Node
from cslr.federation.parties.node_files import NodeFiles
from cslr.files import write_atomic
from cslr.runs.deployment.joining import join, open_node, read_offer
from cslr.runs.deployment.node_figures import own_accuracy
from cslr.runs.deployment.server_machine import Application, address_of
from cslr.runs.deployment.source import Source

__all__ = ["join_machine", "renew_machine", "run_node"]

_START: Final = 300.0
"""Seconds until a SuperNode must listen."""
_PAUSE: Final = 5.0


def join_machine(
    offer: Path, folder: Path, name: str, rows: dict[str, str | int], sessions: int | None = None
) -> Application:
    """Join with all keys that a machine needs; private keys are made here and stay here."""
    member = join(read_offer(offer), folder, name, rows, sessions)
    for file in ("ca.crt", "address.json"):
        shutil.copyfile(offer / file, folder / file)
    public = make_node_key(folder / "flower.key")
    make_authority(folder / "runtime", f"{name} local")
    make_certificate(folder / "runtime", "runtime", ("127.0.0.1", "localhost"), folder / "runtime")
    return _applied(folder, Application(member=member, flower=public))


def renew_machine(folder: Path) -> Application:
    """New keys for a node, which uses them as soon as it has pinned a roster with them."""
    member = renew_identity(NodeFiles(folder))
    public = make_node_key(renewed(folder / "flower.key"))
    return _applied(folder, Application(member=member, flower=public))


def _applied(folder: Path, application: Application) -> Application:
    """Write the application that the operator sends to the server."""
    content = application.model_dump_json(indent=2).encode() + b"\n"
    write_atomic(folder / f"{application.member.name}.member.json", content)
    return application


def run_node(folder: Path, going_on: Callable[[], bool], on_line: Callable[[str], None]) -> None:
    """Answer the server's questions while ``going_on()``, with the ``cslr`` installed here."""
    node = open_node(folder)
    try:
        on_line(f"{node.pinned.name}: reading rows")
        source = read_model(folder / "source.json", Source)

        def measure(model: Path) -> None:
            on_line(
                f"{node.pinned.name}: {own_accuracy(source, node.charter, node.pinned.rows, model)}"
            )

        # In a thread, so that answers do not wait for a figure that is only shown here.
        node.on_result = lambda model: Thread(target=measure, args=(model,), daemon=True).start()
        node.population  # noqa: B018  read before the first question
        while going_on():
            try:
                _answer_for(node, going_on, on_line)
            except ConfigError as error:
                on_line(
                    f"{node.pinned.name}: {error}. The server is not there, or does not know this "
                    f"node's key yet; trying again in {_PAUSE:g} s"
                )
                time.sleep(_PAUSE)
    finally:
        node.close()


def _answer_for(node: Node, going_on: Callable[[], bool], on_line: Callable[[str], None]) -> None:
    """Run a SuperNode and answer its tasks, as long as it runs."""
    folder, port = node.files.path, free_port()
    with Processes(folder / "logs") as processes:
        processes.start("supernode", supernode_command(address_of(folder), folder, port))
        runtime = f"127.0.0.1:{port}"
        wait_for_port(runtime, processes, _START)
        on_line(f"{node.pinned.name}: ready")

        def still() -> bool:
            processes.check()
            return going_on()

        app = client_app(node.answer, node.files.log)
        answer_tasks(runtime, folder / "runtime" / "ca.crt", app, still)
