"""Flower's SuperNode with shorter pauses."""

from __future__ import annotations

import time
from importlib import import_module
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'cslr[flower]'")

from cslr.federation.flower import supernode


def test_it_is_flowers_own_loop_and_looks_twice_a_second(monkeypatch):
    loop = import_module("flwr.supernode.start_client_internal")
    monkeypatch.setattr(loop, "time", time)  # restored after the test
    asked: list[float] = []
    monkeypatch.setattr(supernode, "time", SimpleNamespace(sleep=asked.append))
    monkeypatch.setattr(import_module("flwr.supernode.cli"), "flower_supernode", lambda: 7)
    with pytest.raises(SystemExit) as ended:
        supernode.main()
    assert ended.value.code == 7
    loop.time.sleep(3)
    loop.time.sleep(0.1)
    assert asked == [supernode.PAUSE, 0.1]
