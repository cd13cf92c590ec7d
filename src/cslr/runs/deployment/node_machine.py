"""A node's machine: its keys, its SuperNode, and the executor that answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from cslr.federation.flower.apps import client_app
from cslr.federation.flower.certificates import make_authority, make_certificate, make_node_key
from cslr.federation.flower.executor import answer_tasks
from cslr.federation.flower.processes import (
    Processes,
    free_port,
    supernode_command,
    wait_for_port,
)
from cslr.files import write_atomic
from cslr.runs.deployment.joining import join, open_node, read_offer
from cslr.runs.deployment.server_machine import Application, address_of

__all__ = ["join_machine", "run_node"]

_START: float = 120.0


def join_machine(
    offer: Path, folder: Path, name: str, rows: dict[str, str | int], sessions: int | None = None
) -> Application:
    """Join with the keys that a machine needs; they are made here and stay here."""
    member = join(read_offer(offer), folder, name, rows, sessions)
    for file in ("ca.crt", "address.json"):
        shutil.copyfile(offer / file, folder / file)
    public = make_node_key(folder / "flower.key")
    make_authority(folder / "runtime", f"{name} local")
    make_certificate(folder / "runtime", "runtime", ("127.0.0.1", "localhost"), folder / "runtime")
    application = Application(member=member, flower=public)
    content = application.model_dump_json(indent=2).encode() + b"\n"
    write_atomic(folder / f"{name}.member.json", content)
    return application


def run_node(folder: Path, going_on: Callable[[], bool], on_line: Callable[[str], None]) -> None:
    """Answer the server's questions while ``going_on()``, with the ``cslr`` installed here."""
    node = open_node(folder)
    try:
        on_line(f"{node.pinned.name}: reading rows")
        node.population  # noqa: B018  read before anybody asks
        port = free_port()
        with Processes(folder / "logs") as processes:
            command = supernode_command(address_of(folder), folder, port)
            processes.start("supernode", command)
            runtime = f"127.0.0.1:{port}"
            wait_for_port(runtime, processes, _START)
            on_line(f"{node.pinned.name}: ready")

            def still() -> bool:
                processes.check()
                return going_on()

            app = client_app(node.answer, node.files.log)
            answer_tasks(runtime, folder / "runtime" / "ca.crt", app, still)
    finally:
        node.close()
