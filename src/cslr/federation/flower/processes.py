"""SuperLink and SuperNodes as processes that end together with the process that started them.

On Linux the kernel ends a child when its parent is gone, so a parent that is killed leaves nothing
running. Children are in the process group of their parent unless ``groups`` is set.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from cslr.errors import ConfigError
from cslr.files import PRIVATE_FOLDER, make_directory

__all__ = ["Processes", "free_port", "superlink_command", "supernode_command", "wait_for_port"]

_QUIET: Final = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_GRACE: Final = 15.0
"""Seconds between SIGTERM and SIGKILL."""


@dataclass
class Processes:
    """Child processes; all are gone when the block is left."""

    folder: Path
    """For logs and for Flower's own files, which may be deleted afterwards."""
    groups: bool = False
    """Whether each process has a group of its own, which is ended with all its members."""
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        make_directory(self.folder, PRIVATE_FOLDER)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a process; what it prints goes to NAME.log."""
        environment = {**os.environ, **_QUIET, "FLWR_HOME": str(self.folder / "flower")}
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                list(command),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=self.groups,
                preexec_fn=_end_with_parent,
            )
        self.running[name] = process
        return process

    def kill(self, name: str) -> None:
        """End a process and its children at once."""
        process = self.running.pop(name)
        self._signal(process, signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        """End all of them: with SIGTERM, and after a grace period with SIGKILL."""
        for process in reversed(self.running.values()):
            self._signal(process, signal.SIGTERM)
        end = time.monotonic() + _GRACE
        for process in self.running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
            self._signal(process, signal.SIGKILL)
            process.wait()
        self.running.clear()

    def _signal(self, process: subprocess.Popen[bytes], number: int) -> None:
        send = os.killpg if self.groups else os.kill
        with contextlib.suppress(ProcessLookupError):
            send(process.pid, number)

    def check(self) -> None:
        """Refuse to go on if one of them has ended by itself."""
        for name, process in self.running.items():
            if process.poll() is not None:
                raise ConfigError(
                    f"{name} ended with code {process.returncode}; see {self.folder / name}.log"
                )


def _end_with_parent() -> None:
    """Called in the child before it starts: PR_SET_PDEATHSIG, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def superlink_command(host: str, port: int, keys: Path, database: Path) -> list[str]:
    """A SuperLink with TLS and node keys; the server's task is left to our own executor."""
    return [
        _installed("flower-superlink"),
        *("--host", host, "--port", str(port)),
        *("--ssl-ca-certfile", str(keys / "ca.crt")),
        *("--ssl-certfile", str(keys / "server.crt")),
        *("--ssl-keyfile", str(keys / "server.key")),
        *("--isolation", "process", "--enable-supernode-auth"),
        *("--disable-runtime-dependency-installation", "--database", str(database)),
    ]


def supernode_command(server: str, node: Path, port: int) -> list[str]:
    """A SuperNode that leaves its tasks to our own executor at a port of this machine."""
    return [
        *(sys.executable, "-m", "cslr.federation.flower.supernode"),
        *("--superlink", server, "--root-certificates", str(node / "ca.crt")),
        *("--auth-supernode-private-key", str(node / "flower.key")),
        *("--isolation", "process", "--host", "127.0.0.1", "--port", str(port)),
        *("--ssl-certfile", str(node / "runtime" / "runtime.crt")),
        *("--ssl-keyfile", str(node / "runtime" / "runtime.key")),
        *("--ssl-ca-certfile", str(node / "runtime" / "ca.crt")),
    ]


def _installed(command: str) -> str:
    """Flower's command beside this Python, or on the path."""
    beside = Path(sys.executable).with_name(command)
    found = str(beside) if beside.exists() else shutil.which(command)
    if found is None:
        raise ConfigError(f"{command} is not installed: pip install 'cslr[flower]'")
    return found


def free_port() -> int:
    """A port of this machine that is not in use now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for_port(address: str, processes: Processes, seconds: float) -> None:
    """Wait until a process listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        processes.check()
        try:
            socket.create_connection((host, int(port)), 0.5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise ConfigError(
        f"no process listens at {address} after {seconds:g} s; see {processes.folder}"
    )
