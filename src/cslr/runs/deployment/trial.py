"""A whole federation on this machine: every party is a process, and all end together."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cslr.errors import ConfigError
from cslr.federation.flower.processes import Processes
from cslr.federation.parties.membership import pin_roster
from cslr.runs.deployment.founding import Wanted, found
from cslr.runs.deployment.node_machine import join_machine
from cslr.runs.deployment.server_machine import admit, make_server_keys, run_server
from cslr.runs.deployment.serving import Served

__all__ = ["prepare_trial", "start_node", "try_federation", "wait_until_served"]


def prepare_trial(folder: Path, wanted: Wanted, port: int) -> Served:
    """Found a federation whose members, all on this machine, have joined and pinned the roster."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"--folder {folder} exists already and is not an empty folder; give another one"
        )
    served = Served(folder)
    found(wanted).save(folder / "offer")
    make_server_keys(served, "127.0.0.1", port)
    (folder / "members").mkdir()
    for part in range(wanted.members):
        name = f"node-{part}"
        join_machine(folder / "offer", folder / name, name, {"part": part})
        shutil.copyfile(folder / name / f"{name}.member.json", folder / "members" / f"{name}.json")
    roster = admit(served)
    for part in range(wanted.members):
        pin_roster(folder / f"node-{part}", roster)
    return served


def start_node(processes: Processes, folder: Path) -> None:
    """A node as a process of its own."""
    processes.start(folder.name, [*_PROGRAM, "node", str(folder)])


def try_federation(served: Served, seconds: float, on_line: Callable[[str], None]) -> None:
    """Start the server and all nodes, learn every task, end all processes."""
    members = [member.name for member in served.roster.members]
    with Processes(served.path / "logs", groups=True) as processes:
        processes.start("serve", [*_PROGRAM, "serve", str(served.path)])
        wait_until_served(served, processes)
        for name in members:
            start_node(processes, served.path / name)
        run_server(served, served.status(on_line), seconds)


def wait_until_served(served: Served, processes: Processes, seconds: float = 600.0) -> None:
    """Wait until the SuperLink listens and knows the nodes' keys."""
    end = time.monotonic() + seconds
    while not (served.path / "server" / "serving").exists():
        processes.check()
        if time.monotonic() > end:
            raise ConfigError(f"the SuperLink is not ready after {seconds:g} s; see {served.path}")
        time.sleep(0.2)


_PROGRAM = [sys.executable, "-m", "cslr.cli", "federation"]
