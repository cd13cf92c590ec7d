"""A trial before its processes start, and the wait for its server."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'cslr[flower]'")

from cslr.errors import ConfigError
from cslr.federation.flower.processes import Processes
from cslr.federation.parties.node_files import NodeFiles
from cslr.runs.deployment import server_machine, trial
from cslr.runs.deployment.founding import Wanted
from cslr.runs.deployment.serving import Served
from cslr.runs.deployment.source import source_of_stream
from cslr.runs.deployment.trial import prepare_trial, wait_until_served

pytestmark = pytest.mark.xdist_group("cli")


def test_all_members_of_a_trial_have_joined_and_pinned_the_roster(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("CSLR_CACHE_DIR", str(cache))
    source = source_of_stream("clinic", 2, "minilm", 13)
    wanted = Wanted("clinic", source, 3, 3, 1, 2, 8.0, 1e-5, "person")
    served = prepare_trial(tmp_path / "federation", wanted, 9)
    names = [member.name for member in served.roster.members]
    assert names == ["node-0", "node-1", "node-2"]
    for name in names:
        assert NodeFiles(served.path / name).pinned().roster == served.roster


def test_a_server_that_does_not_come_up_is_waited_for_so_long(tmp_path):
    served = Served(tmp_path)
    with Processes(tmp_path / "logs") as processes:
        with pytest.raises(ConfigError, match=r"not ready after 0\.05 s"):
            wait_until_served(served, processes, seconds=0.05)
        (tmp_path / "server").mkdir()
        (tmp_path / "server" / "serving").write_bytes(b"")
        wait_until_served(served, processes, seconds=0.0)


def test_a_trial_starts_its_server_then_every_node_and_learns(tmp_path, monkeypatch):
    """All of them end with it; what they print is in the federation's logs."""
    begun: list[tuple] = []

    class Fake:
        def __init__(self, folder, groups=False) -> None:
            begun.append(("folder", folder, groups))

        def __enter__(self):
            return self

        def __exit__(self, *_: object) -> None:
            begun.append(("end",))

        def start(self, name, command) -> None:
            begun.append((name, command[1:]))

    roster = SimpleNamespace(members=[SimpleNamespace(name="ulm"), SimpleNamespace(name="bonn")])
    served = SimpleNamespace(
        path=tmp_path, roster=roster, status=lambda on_line: ("status", on_line)
    )
    monkeypatch.setattr(trial, "Processes", Fake)
    monkeypatch.setattr(trial, "wait_until_served", lambda *of: begun.append(("wait", of[0])))
    monkeypatch.setattr(trial, "run_server", lambda *of: begun.append(("learn", *of)))
    trial.try_federation(served, 60.0, print)
    program = ["-m", "cslr.cli", "federation"]
    assert begun == [
        ("folder", tmp_path / "logs", True),
        ("serve", [*program, "serve", str(tmp_path)]),
        ("wait", served),
        ("ulm", [*program, "node", str(tmp_path / "ulm")]),
        ("bonn", [*program, "node", str(tmp_path / "bonn")]),
        ("learn", served, ("status", print), 60.0),
        ("end",),
    ]


def test_a_trial_notices_a_server_that_ended(tmp_path):
    with Processes(tmp_path / "logs") as processes:
        processes.start("serve", [sys.executable, "-c", "raise SystemExit(3)"]).wait()
        with pytest.raises(ConfigError, match="serve ended with code 3"):
            wait_until_served(Served(tmp_path), processes, seconds=60.0)


def test_a_trial_looks_for_its_server_several_times_a_second(tmp_path, monkeypatch):
    """And gives it twice the time that the server gives its SuperLink."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            (tmp_path / "server").mkdir()
            (tmp_path / "server" / "serving").write_bytes(b"")

    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=sleep)
    monkeypatch.setattr(trial, "time", clock)
    with Processes(tmp_path / "logs") as processes:
        wait_until_served(Served(tmp_path), processes)
    assert len(slept) == 3
    assert max(slept) <= 0.5
    default = inspect.signature(wait_until_served).parameters["seconds"].default
    assert default == 2 * server_machine._START
