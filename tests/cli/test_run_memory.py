"""Freed memory that the C library keeps, if it supports that."""

from __future__ import annotations

import ctypes

import pytest

from cslr.cli import run


class _Library:
    """A C library that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: dict[int, int] = {}

    def mallopt(self, name: int, value: int) -> int:
        self.asked[name] = value
        return 1


def test_freed_memory_is_kept_for_the_next_array(monkeypatch):
    library = _Library()
    monkeypatch.setattr(run.sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    run.keep_freed_memory()
    assert library.asked == {-1: 1 << 30, -3: 1 << 30}  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_library_without_this_setting_is_left_as_it_is(monkeypatch, platform):
    monkeypatch.setattr(run.sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    run.keep_freed_memory()
