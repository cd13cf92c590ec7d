"""Three nodes over TLS with node keys, each party a process: what `make federation` shows.

Slow: several minutes. All processes are children of this one.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'cslr[flower]'")

from cslr.federation.flower.certificates import make_node_key
from cslr.federation.flower.control import empty_bundle
from cslr.federation.flower.processes import Processes, free_port, supernode_command
from cslr.privacy.ledger.book import Ledger
from cslr.runs.deployment.founding import Wanted
from cslr.runs.deployment.server_machine import address_of, run_server
from cslr.runs.deployment.source import source_of_stream
from cslr.runs.deployment.trial import (
    _PROGRAM,
    prepare_trial,
    start_node,
    try_federation,
    wait_until_served,
)
from cslr.runs.predict import load_predictor

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cli")]
HOSTILE = """
import os, pathlib
pathlib.Path({marker!r}).write_text("the server's code ran")
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
client, server = ClientApp(), ServerApp()
"""


def of_this_test(folder: Path) -> list[str]:
    """Command lines of running processes that name this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(folder) in line and int(process.name) != os.getpid():
            found.append(line)
    return found


def test_three_nodes_learn_two_tasks_and_one_is_killed_in_mid_release(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("CSLR_CACHE_DIR", str(cache))
    source = source_of_stream("clinic", 2, "minilm", 13)
    wanted = Wanted("clinic", source, 3, 3, 1, 2, 8.0, 1e-5, "person")
    served = prepare_trial(tmp_path / "federation", wanted, free_port())
    marker, killed = tmp_path / "marker", []
    stranger = tmp_path / "federation" / "stranger"
    shutil.copytree(served.path / "node-0", stranger)
    make_node_key(stranger / "flower.key")
    with Processes(served.path / "logs", groups=True) as processes:
        processes.start("serve", [*_PROGRAM, "serve", str(served.path)])
        wait_until_served(served, processes)
        for number in range(3):
            start_node(processes, served.path / f"node-{number}")
        address = address_of(served.path / "offer")
        unknown = supernode_command(address, stranger, free_port())
        refused = processes.start("stranger", [*unknown, "--max-retries", "1"])

        def kill_in_mid_release(line: str) -> None:
            if "task 1" in line and " mask " in line and not killed:
                processes.kill("node-1")
                killed.append(time.monotonic())
                start_node(processes, served.path / "node-1")

        bundle = empty_bundle(HOSTILE.format(marker=str(marker)))
        status = served.status(kill_in_mid_release)
        run_server(served, status, 20.0, bundle=bundle)
        assert refused.wait(60) != 0, "an unregistered key is refused"
        del processes.running["stranger"]
    assert killed
    assert not marker.exists(), "nobody runs what the server ships"
    end = time.monotonic() + 20
    while of_this_test(tmp_path) and time.monotonic() < end:
        time.sleep(0.2)
    assert of_this_test(tmp_path) == []
    # The server charged every release once, the nodes at least as often.
    server = [c.label for c in Ledger.read(served.path / "server" / "ledger.jsonl").charges]
    assert server == ["task 0", "task 1"]
    told = json.loads((served.path / "status.json").read_bytes())
    assert told["phase"] == "finished"
    assert told["epsilon"]["server"] == told["epsilon"]["roster"] < 8.0
    for number in range(3):
        own = Ledger.read(served.path / f"node-{number}" / "ledger.jsonl")
        labels = [charge.label for charge in own.charges]
        assert labels.count("task 0") == 1
        assert 1 <= labels.count("task 1") <= 3
        assert own.epsilon("end_to_end", "server") <= 8.0
    (answer,) = load_predictor(served.path / "node-1" / "model").answers(["My heart races."])
    assert answer.choices[0].label == "heart"
    print(json.dumps([[each["time"], each["what"]] for each in told["log"]]))


def test_gradient_rounds_run_over_flower_with_a_node_that_has_no_rows_of_a_task(
    cache, tmp_path, monkeypatch
):
    monkeypatch.setenv("CSLR_CACHE_DIR", str(cache))
    source = source_of_stream("ward", 1, "minilm", 13)
    wanted = Wanted("ward", source, 3, 3, 1, 1, 8.0, 1e-5, "person", rounds=2)
    served = prepare_trial(tmp_path / "federation", wanted, free_port())
    try_federation(served, 60.0, print)
    server = Ledger.read(served.path / "server" / "ledger.jsonl")
    assert [charge.label for charge in server.charges] == ["task 0 update 0", "task 0 update 1"]
    for number in range(3):
        node = Ledger.read(served.path / f"node-{number}" / "ledger.jsonl")
        assert [charge.label for charge in node.charges] == [c.label for c in server.charges]
    (answer,) = load_predictor(served.path / "node-1" / "model").answers(["Give aspirin to Anna."])
    assert answer.words == ("Give", "aspirin", "to", "Anna", ".")
