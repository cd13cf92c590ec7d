"""The entry of the program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cslr

SOURCE = str(Path(cslr.__file__).parent.parent)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=env)


def test_the_package_is_the_program():
    done = run("-m", "cslr", "--version")
    assert (done.returncode, done.stdout) == (0, f"cslr {cslr.__version__}\n")


def test_an_interruption_while_loading_is_no_traceback():
    program = (
        "import builtins, sys\n"
        "usual = builtins.__import__\n"
        "def interrupted(name, *rest):\n"
        "    if name == 'typer': raise KeyboardInterrupt\n"
        "    return usual(name, *rest)\n"
        "builtins.__import__ = interrupted\n"
        "from cslr.cli.start import main\n"
        "main()\n"
    )
    done = run("-c", program)
    assert done.returncode == 130
    assert done.stderr == "Interrupted.\n"
