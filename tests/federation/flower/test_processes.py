"""Processes that end together with whoever started them."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from cslr.errors import ConfigError
from cslr.federation.flower.processes import (
    Processes,
    free_port,
    superlink_command,
    supernode_command,
    wait_for_port,
)

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("groups", [False, True])
def test_nothing_is_left_when_the_block_is_left(tmp_path, groups):
    children = []

    def interrupted() -> None:
        with Processes(tmp_path / "logs", groups) as processes:
            children.extend(processes.start(name, SLEEP).pid for name in ("one", "two"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(children) == 2
    assert not any(map(alive, children))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends children on Linux alone")
def test_a_parent_that_is_killed_leaves_nothing_running(tmp_path):
    program = (
        "import sys, time; from pathlib import Path\n"
        "from cslr.federation.flower.processes import Processes\n"
        f"with Processes(Path({str(tmp_path)!r})) as p:\n"
        f"    print(p.start('child', {SLEEP!r}).pid, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 10
    while alive(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(child)


def test_one_that_has_ended_by_itself_is_named(tmp_path):
    with Processes(tmp_path) as processes:
        processes.start("broken", [sys.executable, "-c", "raise SystemExit(3)"]).wait()
        with pytest.raises(ConfigError, match="broken ended with code 3"):
            processes.check()
        with pytest.raises(ConfigError, match="broken ended"):
            wait_for_port(f"127.0.0.1:{free_port()}", processes, 1.0)
        processes.kill("broken")
        assert not processes.running


def test_flowers_commands_never_run_what_a_server_ships(tmp_path):
    pytest.importorskip("flwr", reason="needs the extra: pip install 'cslr[flower]'")
    for command in (
        superlink_command("127.0.0.1", 1, tmp_path, tmp_path / "db"),
        supernode_command("127.0.0.1:1", tmp_path, 2),
    ):
        assert command[command.index("--isolation") + 1] == "process"
        assert "--insecure" not in command
