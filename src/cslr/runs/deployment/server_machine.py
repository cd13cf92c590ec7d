"""The server's machine: keys, the roster, the SuperLink, and a run over it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from cslr.errors import ConfigError
from cslr.federation.flower.certificates import make_authority, make_certificate
from cslr.federation.flower.control import empty_bundle, register_node, start_run
from cslr.federation.flower.executor import serve_task
from cslr.federation.flower.processes import Processes, superlink_command, wait_for_port
from cslr.federation.flower.transport import GridTransport
from cslr.federation.parties.charter import Member, Roster, read_model
from cslr.files import PRIVATE_FOLDER, make_directory, write_atomic
from cslr.runs.deployment.serving import Served, Status, learn_remotely

__all__ = [
    "Application",
    "address_of",
    "admit",
    "applications",
    "make_server_certificate",
    "make_server_keys",
    "run_server",
    "serve",
]

_START: float = 300.0
"""Seconds until a SuperLink must listen."""


class Application(BaseModel):
    """What a node's operator sends to the server: public keys, and nothing else."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    member: Member
    flower: str
    """The P-384 key by which Flower knows the node, a line in SSH format."""


def make_server_keys(served: Served, host: str, port: int) -> None:
    """Make the federation's certificate authority, and the server's certificate and address."""
    keys = served.path / "server" / "tls"
    make_directory(served.path / "server", PRIVATE_FOLDER)
    make_authority(keys, served.charter.name)
    write_atomic(served.path / "offer" / "ca.crt", (keys / "ca.crt").read_bytes())
    make_server_certificate(served, host)
    address = {"address": f"{host}:{port}"}
    write_atomic(served.path / "offer" / "address.json", json.dumps(address).encode())


def make_server_certificate(served: Served, host: str) -> None:
    """A new key and certificate for the server, signed by the authority that nodes have."""
    keys = served.path / "server" / "tls"
    make_certificate(keys, "server", tuple({host, "127.0.0.1", "localhost"}), keys)


def applications(served: Served) -> list[Application]:
    """The applications of nodes, from the files in members/."""
    found = sorted((served.path / "members").glob("*.json"))
    return [read_model(path, Application) for path in found]


def admit(served: Served, members: int | None = None) -> Roster:
    """The roster of all nodes that applied, written into the offer unless it is there already.

    members: the number of members. It is required if they are fewer than the charter allows or not
    the same as before, so that a misplaced file does not add or remove a member.
    """
    applied = tuple(each.member for each in applications(served))
    path = served.path / "offer" / "roster.json"
    old = served.roster if path.exists() else None
    roster = Roster.of(served.charter, applied, 1 if old is None else old.number)
    if roster == old:
        return roster
    if old is not None:
        roster = Roster.of(served.charter, applied, old.number + 1)
    if len(applied) != (members or (served.charter.members if old is None else None)):
        what = "" if old is None else f" ({roster.changes_since(old)})"
        raise ConfigError(
            f"{served.path / 'members'} has {len(applied)} members{what}, and the charter has room "
            f"for {served.charter.members}. If that is right, repeat the command with --members "
            f"{len(applied)}"
        )
    # Flower's database would keep the keys of former members registered.
    for file in (served.path / "server" / "logs").glob("flower.db*"):
        file.unlink()
    roster.save(path)
    return roster


def serve(served: Served, going_on: Callable[[], bool], on_line: Callable[[str], None]) -> None:
    """Run the SuperLink while ``going_on()``; nodes can connect from then on."""
    address = address_of(served.path / "offer")
    host, _, port = address.rpartition(":")
    folder = served.path / "server"
    with Processes(folder / "logs") as processes:
        database = folder / "logs" / "flower.db"
        processes.start("superlink", superlink_command(host, int(port), folder / "tls", database))
        write_atomic(folder / "serve.pid", str(os.getpid()).encode())
        try:
            wait_for_port(address, processes, _START)
            for each in applications(served):
                register_node(address, folder / "tls" / "ca.crt", each.flower)
            write_atomic(folder / "serving", b"")
            on_line(f"serving {served.charter.name} at {address}")
            while going_on():
                processes.check()
                time.sleep(0.5)
        finally:
            (folder / "serve.pid").unlink(missing_ok=True)
            (folder / "serving").unlink(missing_ok=True)


def run_server(
    served: Served,
    status: Status,
    seconds: float,
    present: int | None = None,
    wait: float = 300.0,
    bundle: bytes | None = None,
) -> None:
    """Learn every task over the SuperLink that ``serve`` runs, in this process.

    seconds: the deadline of an exchange. present: how many nodes to wait for; None: all members.
    bundle: the app that Flower ships to nodes, which they do not run; None: an empty one.
    """
    charter, roster = served.charter, served.roster
    address, authority = address_of(served.path / "offer"), served.path / "offer" / "ca.crt"
    status.write(phase="starting", address=address)
    start_run(address, authority, bundle or empty_bundle())
    needed = present or len(roster.members)

    def main(transport: GridTransport) -> None:
        _wait_for(transport, needed, status, wait)
        learn_remotely(served, transport, status, seconds)

    terms = roster.terms(charter)
    serve_task(address, authority, lambda grid: main(GridTransport(grid, terms)), wait)


def _wait_for(transport: GridTransport, needed: int, status: Status, wait: float) -> None:
    """Wait until so many members can be reached."""
    end, known = time.monotonic() + wait, -1
    while len(there := transport.present()) < needed:
        if len(there) != known:
            known = len(there)
            names = [status.members[number] for number in sorted(there)]
            status.write(phase="waiting", members=names)
            status.on_line(f"waiting for nodes: {known} of {needed} are there")
        if time.monotonic() > end:
            raise ConfigError(
                f"only {known} of {needed} nodes came within {wait:g} s; see their logs"
            )
        time.sleep(0.5)


def address_of(offer: Path) -> str:
    """HOST:PORT at which the server listens."""
    try:
        return str(json.loads((offer / "address.json").read_bytes())["address"])
    except (OSError, ValueError, KeyError):
        raise ConfigError(f"{offer} has no address of the server") from None
