"""A trial before its processes start, and the wait for its server."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'cslr[flower]'")

from cslr.errors import ConfigError
from cslr.federation.flower.processes import Processes
from cslr.federation.parties.node_files import NodeFiles
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
