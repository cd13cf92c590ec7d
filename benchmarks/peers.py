"""Environments of the peers that cannot be installed together with CSLR, under ``build/peers``.

    make bench-peers      creates them; ``make bench`` uses those it finds

pfl needs another version of dp-accounting than CSLR, and Flower's simulation needs Ray.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "build" / "peers"
SCRIPTS: Final = ROOT / "benchmarks"
INSTALLED: Final = {
    "pfl": ("pfl==0.6.0", "dp-accounting<0.6"),
    "Flower on Ray": ("flwr[simulation]==1.41.0",),
}
AS_OURS: Final = ("torch", "scikit-learn", "scipy")
"""Installed in the versions that CSLR is measured with."""


def folder_of(peer: str) -> Path:
    """Where a peer's environment is."""
    return FOLDER / peer.split()[0].lower()


def packages_of(peer: str) -> list[str]:
    """The packages of a peer's environment."""
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    alike = [line for line in pinned if line.split("==")[0] in AS_OURS]
    return [*sorted(alike), *INSTALLED[peer]]


def is_ready(peer: str) -> bool:
    """Whether ``make bench-peers`` has finished the environment, with today's packages."""
    note = folder_of(peer) / "ready"
    return note.exists() and note.read_text(encoding="utf-8").split() == packages_of(peer)


def rounds(peer: str, *phases: tuple[int, int, int]) -> dict[str, Any] | None:
    """CPU seconds of phases (rounds, clients, rows of a step).

    ``round``: of the median round without the first; ``rounds``: of all rounds; ``whole``: of the
    process. None if the environment is missing or the peer failed, which is then printed.
    """
    return _figures(peer, "peer_rounds.py", *[":".join(map(str, phase)) for phase in phases])


def paper_run(peer: str, world: Path) -> dict[str, Any] | None:
    """CPU seconds of the paper's protocol on what ``paper_parts.py --world`` wrote: ``whole``."""
    return _figures(peer, "peer_paper.py", str(world))


def _figures(peer: str, script: str, *arguments: str) -> dict[str, Any] | None:
    """The JSON object that a script prints in a peer's environment, on one thread."""
    if not is_ready(peer):
        return None
    python, name = folder_of(peer) / "bin" / "python", peer.split()[0].lower()
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    # By default Ray lowers the priority of its workers; CPU seconds are the same.
    settings = {**threads, "RAY_worker_niceness": "0", "PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run(
        [str(python), str(SCRIPTS / script), name, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **settings},
    )
    if done.returncode:
        print(f"{peer} failed: {done.stderr[-500:]}", flush=True)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Create what is missing."""
    for peer in INSTALLED:
        folder, packages = folder_of(peer), packages_of(peer)
        if is_ready(peer):
            print(f"{peer}: ready in {folder}")
            continue
        print(f"{peer}: installing into {folder} ...", flush=True)
        if not (folder / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(folder / "bin" / "pip"), "install", "--quiet"]
        subprocess.run([*install, *[each for each in packages if "torch" in each]], check=True)
        subprocess.run([*install, *packages], check=True)
        (folder / "ready").write_text("\n".join(packages) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
