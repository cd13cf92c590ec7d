"""A client contributes to no more tasks than its cap, whatever rows arrive in between."""

from __future__ import annotations

import json

import pytest

from cslr.errors import PrivacyError
from cslr.privacy.ledger.cap_memory import CapMemory

CLIENTS = [70, 71, 72]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "federation" / "spoken.json"


def test_whoever_has_spent_the_cap_is_silent_and_may_repeat_what_it_said(path):
    spoken = CapMemory.at(path, begun=False)
    assert spoken.admit([70, 71], 0, cap=1) == [True, True]
    assert spoken.admit(CLIENTS, 1, cap=1) == [False, False, True]
    assert spoken.admit(CLIENTS, 0, cap=1) == [True, True, False]


def test_a_cap_of_two_is_two_tasks(path):
    spoken = CapMemory.at(path, begun=False)
    assert [spoken.admit([70], task, cap=2)[0] for task in (3, 1, 0, 3)] == [
        True,
        True,
        False,
        True,
    ]


def test_it_is_remembered_before_the_answer_is_known(path):
    CapMemory.at(path, begun=False).admit([70, 71], 0, cap=1)
    assert json.loads(path.read_text()) == {"70": [0], "71": [0], "asked": [0]}
    assert CapMemory.at(path, begun=True).admit(CLIENTS, 1, cap=1) == [False, False, True]


def test_an_older_copy_is_refused(path):
    """Otherwise clients that contributed since then could contribute again."""
    spoken = CapMemory.at(path, begun=False)
    spoken.admit([70], 0, cap=1)
    older = path.read_bytes()
    spoken.admit([71], 1, cap=1)
    CapMemory.at(path, begun=True, charged=[0, 1, None])
    path.write_bytes(older)
    with pytest.raises(PrivacyError, match=r"spoken\.json is older than the ledger"):
        CapMemory.at(path, begun=True, charged=[0, 1, None])


def test_a_task_that_nobody_speaks_about_is_known_too(path):
    CapMemory.at(path, begun=False).admit([], 2, cap=1)
    CapMemory.at(path, begun=True, charged=[2]).admit([70], 0, cap=1)


def test_a_file_of_an_earlier_version_is_read(path):
    path.parent.mkdir()
    path.write_text('{"70": [0]}')
    spoken = CapMemory.at(path, begun=True, charged=[0, 1])
    assert spoken.admit([70, 71], 2, cap=1) == [False, True]
    assert json.loads(path.read_text())["asked"] == [0, 1, 2]


def test_nobody_else_can_read_it(path):
    CapMemory.at(path, begun=False)
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"70": 3}', b"\xff"])
def test_without_its_memory_a_federation_that_has_begun_is_refused(path, content):
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    with pytest.raises(PrivacyError, match="it is unknown which clients have reached their cap"):
        CapMemory.at(path, begun=True)


def test_what_cannot_be_remembered_is_not_released(path, monkeypatch):
    spoken = CapMemory.at(path, begun=False)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cslr.privacy.ledger.cap_memory.write_atomic", full)
    with pytest.raises(PrivacyError, match="No space left on device"):
        spoken.admit([70], 0, cap=1)
