"""A disk that fails at any one call: nothing is released without a durable charge, and it goes on.

Every call that changes the disk is counted. Then the same two releases are made again and again,
with the first, the second, the third ... of these calls failing.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cslr.config import Config
from cslr.errors import CslrError
from cslr.privacy import mechanism
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Federation, Ledger
from cslr.privacy.ledger.records import EphemeralKeys
from cslr.privacy.mechanism import recall, release, settle
from cslr.privacy.plan import Budget, calibrate
from cslr.privacy.values import Grid, bound, plain_sum
from cslr.runs.directory import RunDirectory

CALLS = ("write", "pwrite", "fsync", "replace", "open", "mkdir", "unlink")
BUDGET = Budget(50.0)


class Disk:
    """Fails at one call and works at all others."""

    def __init__(self, patch: pytest.MonkeyPatch, fail_at: int | None, number: int) -> None:
        self.calls = 0
        self.fail_at = fail_at
        self.error = number
        for name in CALLS:
            patch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            self.calls += 1
            if self.calls - 1 == self.fail_at:
                if name == "write":  # a full disk takes what fits
                    real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                raise OSError(self.error, os.strerror(self.error))
            return real(*arguments, **more)

        return call


def two_releases(place: Path) -> list[list[float]]:
    """What a run does, at its smallest: plan, pay, release, keep, settle, note."""
    directory = RunDirectory(place / "run", Config())
    directory.begin()
    keys = EphemeralKeys(place / "federation" / "keys")
    federation = Federation("clinics", BUDGET, "enforced")
    found = []
    with Ledger.at(place / "federation" / "ledger.jsonl", federation, keys) as ledger:
        ledger.fix_plan(calibrate(BUDGET, 2), {})
        keep = directory.seed(13, ledger)
        for task in range(2):
            label = f"task {task}"
            kept = keep.load(label)
            if kept is None:
                summed = plain_sum([bound(np.full((3, 4), 0.1), Grid(2.0))])
                released = release(summed, Charge(label, task, "replay", 2.0), ledger)
                keep.save(label, released.value)
                settle(released, label, ledger)
            else:
                released = recall(kept, label, ledger)
            found.append(released.value.tolist())
        if directory.find(kind="finished") is None:
            directory.note(kind="finished", values=found)
    return found


def charged(place: Path) -> int:
    """What stands in the file by now, complete or not."""
    file = place / "federation" / "ledger.jsonl"
    return file.read_bytes().count(b'"kind":"charge"') if file.exists() else 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_whatever_call_fails_nothing_is_released_uncharged_and_the_run_goes_on(
    tmp_path, monkeypatch, number
):
    draw = mechanism.discrete_gaussian
    place, drawn = tmp_path / "whole", set()

    def watched(*arguments: Any) -> Any:
        noise = draw(*arguments)
        drawn.add(tuple(noise.tolist()))
        assert charged(place) >= len(drawn)  # not one noise without its charge in the file
        return noise

    monkeypatch.setattr(os, "fsync", lambda _: None)  # that they are called is another test's
    monkeypatch.setattr(mechanism, "discrete_gaussian", watched)
    with monkeypatch.context() as patch:
        disk = Disk(patch, None, number)
        two_releases(tmp_path / "whole")
    calls, refused = disk.calls, 0
    assert calls > 40
    for fail_at in range(calls):
        place = Path(tempfile.mkdtemp(dir=tmp_path))
        drawn.clear()
        with monkeypatch.context() as patch:
            Disk(patch, fail_at, number)
            try:
                two_releases(place)
            except CslrError as error:
                refused += 1
                told = str(error)
                assert os.strerror(number) in told, f"call {fail_at}: {told}"
        before = {file.name: file.read_bytes() for file in place.glob("run/seed-13/*.safetensors")}
        values = two_releases(place)  # the disk is mended: it goes on
        ledger = Ledger.read(place / "federation" / "ledger.jsonl")
        assert len(drawn) <= len(ledger.charges) <= 3  # one may have been paid for twice
        assert ledger.unsettled == []
        assert list((place / "federation" / "keys").iterdir()) == []
        assert two_releases(place) == values
        for name, content in before.items():
            assert (place / "run" / "seed-13" / name).read_bytes() == content
        assert not list(place.rglob("*.part"))
    assert refused > calls / 2
