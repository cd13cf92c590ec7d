"""Environments of the peers that cannot be installed beside CSLR, under ``build/peers``.

    make bench-peers      creates them; ``make bench`` uses those it finds

pfl needs another dp-accounting than CSLR, and Flower's simulation needs Ray.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "build" / "peers"
SCRIPT: Final = ROOT / "benchmarks" / "peer_rounds.py"
INSTALLED: Final = {
    "pfl": ("pfl==0.6.0", "dp-accounting<0.6"),
    "Flower on Ray": ("flwr[simulation]==1.41.0",),
}


def python_of(peer: str) -> Path | None:
    """The interpreter of a peer's environment, if ``make bench-peers`` has finished it."""
    folder = FOLDER / peer.split()[0].lower()
    return folder / "bin" / "python" if (folder / "ready").exists() else None


def rounds(peer: str, *phases: tuple[int, int, int]) -> dict[str, float] | None:
    """CPU seconds of phases of so many rounds, clients and rows of a step.

    ``round``: of one without the first; ``rounds``: of all; ``whole``: of the whole process. None
    if the environment is missing or the peer failed, which is then printed.
    """
    python = python_of(peer)
    if python is None:
        return None
    name = peer.split()[0].lower()
    figures = [":".join(map(str, phase)) for phase in phases]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [str(python), str(SCRIPT), name, *figures],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **threads, "PYTHONPATH": ""},
    )
    if done.returncode:
        print(f"{peer} failed: {done.stderr[-500:]}", flush=True)
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def torch_of_ours() -> str:
    """The version that CSLR is measured with."""
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in pinned if line.startswith("torch=="))


def main() -> None:
    """Create what is missing."""
    for peer, packages in INSTALLED.items():
        folder = FOLDER / peer.split()[0].lower()
        if (folder / "ready").exists():
            print(f"{peer}: ready in {folder}")
            continue
        print(f"{peer}: installing into {folder} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(folder / "bin" / "pip"), "install", "--quiet"]
        subprocess.run([*install, torch_of_ours()], check=True)
        subprocess.run([*install, torch_of_ours(), *packages], check=True)
        (folder / "ready").touch()


if __name__ == "__main__":
    main()
