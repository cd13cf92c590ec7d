"""The rows of ``bench.py`` about whole things: commands, runs, secure sums, predictions, scale."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from measuring import (
    MISSING,
    ROOT,
    Measured,
    against,
    beside,
    command_seconds,
    left_out,
    printed_json,
    within,
)
from peers import rounds
from secure_sum import measure, secagg_plus

from cslr.protocol.head import HeadSettings, initial_head

__all__ = ["commands", "paper_run", "prediction", "scale", "secure_sums"]

Rows = Iterator[Measured]
CSLR = (sys.executable, "-m", "cslr.cli")


def commands(times: int) -> Rows:
    """The command line: the help, a plan, and a run whose embeddings are cached."""
    for name, arguments, limit in (("cslr --help", ["--help"], 0.3), ("cslr plan", ["plan"], 0.6)):
        figures = [command_seconds(*CSLR, *arguments) for _ in range(times)]
        yield within(name, "CPU s", figures, limit)
    figures = [run_seconds() for _ in range(3)]
    yield within("warm cslr run, embedded stream", "CPU s", figures[1:], 6.0)  # the first may embed


def run_seconds(*arguments: str) -> float:
    """CPU seconds of a run on the embedded stream."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        took = command_seconds(*CSLR, "run", "--run-dir", str(run), "--json", *arguments)
        shutil.rmtree(run)
    return took


def paper_run(times: int) -> Rows:
    """The paper's protocol as a whole, against its training rounds alone on other frameworks.

    Peers get no lists, signatures, noise or scores to compute: 4 tasks of 50 rounds, 12 of 40
    clients, five steps of 32 rows and 100 replayed ones, processes counted from their start.
    """
    name = "whole run, paper's protocol (peers: its training rounds alone)"
    own = [run_seconds("--method", "cslr-paper", "--no-yardsticks") for _ in range(3)][1:]
    for peer, target in (("pfl", 2.0), ("Flower on Ray", 5.0)):
        found = rounds(peer, clients=12, count=200, rows=132)
        if found is None:
            yield left_out(name, peer, target, MISSING)
        else:
            yield against(name, own, peer, found["whole"], target)


def secure_sums(times: int) -> Rows:
    """All members and the server of a first release, n = 20, against Flower's primitives."""
    for coordinates in (386, 49_796):
        name = f"secure sum, 20 members, D = {coordinates:,}"
        if find_spec("flwr") is None:
            yield left_out(name, "SecAgg+", 5.0, "flwr is not installed")
            continue
        own, theirs = [], []
        for _ in range(3):
            first, _, _ = measure(20, 14, 4, coordinates)
            own.append(first.seconds["client"] + first.seconds["server"])
            theirs.append(secagg_plus(20, 14, coordinates) or np.nan)
        yield against(name, own, "SecAgg+", float(np.median(theirs)), 5.0)


def prediction(times: int) -> Rows:
    """100,000 embeddings through a head, against the same layers in torch."""
    name = "predict, 100,000 embeddings × 384"
    if find_spec("torch") is None:
        yield left_out(name, "torch", 1.0, "torch is not installed")
        return
    import torch

    torch.set_num_threads(1)
    head = initial_head(384, 4, HeadSettings(), np.random.default_rng(1))
    z = np.random.default_rng(2).standard_normal((100_000, 384)).astype(np.float32)
    arrays = {part: torch.tensor(array) for part, array in vars(head).items()}

    def peer() -> None:
        with torch.inference_mode():
            hidden = torch.relu(torch.tensor(z) @ arrays["weights1"] + arrays["bias1"])
            (hidden @ arrays["weights2"] + arrays["bias2"]).argmax(dim=1).numpy()

    yield beside(name, partial(_answers, head, z), "torch", peer, 1.0, times)


def _answers(head: object, z: np.ndarray) -> np.ndarray:
    return head.scores(z).argmax(axis=1)  # type: ignore[attr-defined,no-any-return]


def scale(times: int) -> Rows:
    """One release over 10³ to 10⁶ clients of 5 rows on two cores: CPU seconds and peak memory."""
    peaks = []
    for clients in (10**3, 10**4, 10**5, 10**6):
        found = printed_json(str(ROOT / "benchmarks" / "scale.py"), "--clients", str(clients))
        peaks.append(found["peak_mb"])
        # Five minutes on two cores for 10⁶.
        name, limit = f"one release, {clients:,} clients × 5 rows", max(5.0, 600e-6 * clients)
        yield within(name, "CPU s", [found["cpu_seconds"]], limit)
        name = f"one release, {clients:,} clients: peak memory"
        yield within(name, "MB", [found["peak_mb"]], 1000.0)
        if clients == 10**6:
            yield within(
                f"one release, {clients:,} clients: elapsed", "s", [found["seconds"]], 300.0
            )
    growth = 100 * (peaks[-1] / peaks[1] - 1)
    yield within("memory from 10⁴ to 10⁶ clients: growth", "%", [growth], 5.0)
