"""`cslr doctor`."""

from __future__ import annotations

import json
from importlib import metadata

from cslr.cli import doctor


def test_this_installation_is_healthy_and_says_what_it_is(cslr):
    code, out, _ = cslr("doctor", "--json")
    found = {each["name"]: each for each in json.loads(out)["findings"]}
    assert code == 0
    assert found["numpy"]["found"] == metadata.version("numpy")
    assert found["encoder"]["found"].startswith("minilm, sha256:")
    result = found["self-test"]["found"]
    assert result.startswith("trained on two labels with ε = 4 and predicted both")


def test_what_is_missing_comes_with_its_command(cslr, monkeypatch):
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    code, out, _ = cslr("doctor", "--no-self-test")
    assert code == 1
    assert "FAULT numpy: not installed." in out
    assert "--    torch: not installed. pip install 'cslr[text]'; encoders run on it" in out
    assert "--    pyarrow: not installed" in out


def test_the_network_is_off_as_the_hub_library_reads_it(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert doctor._network().found.startswith("only hub encoders")
    monkeypatch.setenv("HF_HUB_OFFLINE", "yes")
    assert doctor._network().found == "HF_HUB_OFFLINE=yes"


def test_a_self_test_that_fails_is_a_finding_and_no_traceback():
    def broken() -> str:
        raise OSError("no torch here")

    finding = doctor._tried("self-test", broken)
    assert not finding.ok
    assert finding.found == "OSError: no torch here"
