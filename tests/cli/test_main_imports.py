"""Which modules a command imports: help and plan must start quickly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cslr
from cslr.cli.privacy import DIRECTIONS
from cslr.config import ReplayConfig

PROGRAM = """
import sys
from cslr.cli.main import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print("loaded:", *sorted(name for name in {names!r} if name in sys.modules))
"""
HEAVY = ("numpy", "scipy.special", "scipy.optimize", "scipy.stats", "pydantic", "dp_accounting")
HEAVY += ("matplotlib", "torch", "cryptography", "cslr.config", "cslr.runs.learn")


def loaded(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(names=HEAVY), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(cslr.__file__).parent.parent)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1].partition(":")[2].split()


def test_the_help_loads_no_arrays_and_no_settings():
    assert loaded("--help") == []
    assert loaded("run", "--help") == []


def test_a_plan_loads_special_functions_and_nothing_else_that_is_heavy():
    assert loaded("plan", "--json") == ["numpy", "scipy.special"]


def test_a_plan_is_about_as_many_directions_as_a_run_has():
    assert ReplayConfig().directions == DIRECTIONS
