"""The rows of ``bench.py`` about whole things: commands, runs, secure sums, predictions, scale."""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from measuring import (
    MISSING,
    ROOT,
    Measured,
    against,
    beside,
    children_seconds,
    command_seconds,
    left_out,
    printed_json,
    within,
    write_block,
)
from peers import paper_run as peers_paper_run
from peers import rounds
from secure_sum import measure, secagg_plus

from cslr.protocol.head import HeadSettings, initial_head

__all__ = ["commands", "paper_rounds", "paper_run", "prediction", "scale", "secure_sums"]

Rows = Iterator[Measured]
PHASES = (("alone", 32), ("replayed", 132))
"""Rounds of the paper's protocol, and the rows of a step in them."""
PAPER_PEERS = {"pfl": 2.0, "Flower on Ray": 5.0}
"""Peers of the paper's protocol, and the least ratio aimed at."""
PARTS_BEGIN = "<!-- parts:begin (written by `make bench`) -->"
PARTS_END = "<!-- parts:end -->"
CSLR = (sys.executable, "-m", "cslr.cli")


def commands(times: int) -> Rows:
    """The command line: the help, a plan, and a run whose embeddings are cached."""
    for name, arguments, limit in (("cslr --help", ["--help"], 0.3), ("cslr plan", ["plan"], 0.6)):
        figures = [command_seconds(*CSLR, *arguments) for _ in range(times)]
        yield within(name, "CPU s", figures, limit)
    figures = [run_seconds() for _ in range(3)]
    yield within("warm cslr run, embedded stream", "CPU s", figures[1:], 6.0)  # the first may embed


def run_seconds() -> float:
    """CPU seconds of a run on the embedded stream."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        took = command_seconds(*CSLR, "run", "--run-dir", str(run), "--json")
        shutil.rmtree(run)
    return took


def paper_rounds(times: int) -> Rows:
    """The training rounds of the paper's protocol, against as many rounds of peers.

    All sides train equally many clients in equally many rounds, five steps of 32 own rows and, from
    the second task on, 100 replayed ones. Our rounds include drawing the replay, the sum on the
    grid and the ledger. Repetitions of the sides alternate.
    """
    phases = _phases(_paper_parts())  # may embed
    own, theirs = [], []
    for _ in range(min(times, 3)):
        own.append(_paper_parts()["rounds"])
        theirs.append({peer: _of(rounds(peer, *phases), "rounds") for peer in PAPER_PEERS})
    count = sum(number for number, *_ in phases)
    yield from _against_peers(f"{count} training rounds, paper's protocol", own, theirs)


def paper_run(times: int) -> Rows:
    """A whole run of the paper's protocol, against the same protocol on peers.

    Peers run it on the same rows, with the same clients in each round (``peer_protocol.py``). Whole
    processes are measured from their start; repetitions of the sides alternate. Peers write no
    report and no plots, so there are rows with and without this part of ours.
    """
    own, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        world = Path(folder) / "world.npz"
        first = _paper_parts("--world", str(world))  # may embed
        for _ in range(min(times, 3)):
            own.append(_paper_parts())
            found = {peer: peers_paper_run(peer, world) for peer in PAPER_PEERS}
            theirs.append({peer: _of(figures, "whole") for peer, figures in found.items()})
    write_block(PARTS_BEGIN, _parts_table(own, _phases(first)), PARTS_END)
    whole = [run["whole"] for run in own]
    yield from _against_peers("whole run, paper's protocol", whole, theirs)
    alike = [run["whole"] - run["report"] for run in own]
    yield from _against_peers("the same, without report and pictures", alike, theirs)


def _against_peers(
    name: str, own: Sequence[float], theirs: Sequence[Mapping[str, float | None]]
) -> Rows:
    """A row for each peer of the paper's protocol; theirs: CPU seconds of each repetition."""
    for peer, target in PAPER_PEERS.items():
        found = [each[peer] for each in theirs if each[peer] is not None]
        if len(found) < len(theirs):
            yield left_out(name, peer, target, MISSING)
        else:
            yield against(name, own, peer, statistics.median(found), target)


def _of(figures: Mapping[str, Any] | None, part: str) -> float | None:
    return None if figures is None else float(figures[part])


def _phases(run: Mapping[str, Any]) -> list[tuple[int, int, int]]:
    """(rounds, mean number of clients, rows of a step), without replay and with it."""
    return [(len(run[kind]), round(statistics.mean(run[kind])), rows) for kind, rows in PHASES]


def _paper_parts(*arguments: str) -> dict[str, Any]:
    """CPU seconds of a run's parts, and of all of it."""
    before = children_seconds()
    found = printed_json(str(ROOT / "benchmarks" / "paper_parts.py"), *arguments)
    return {**found, "whole": children_seconds() - before}


def _parts_table(
    runs: Sequence[Mapping[str, Any]], phases: Sequence[tuple[int, int, int]]
) -> list[str]:
    """Where the median run's time goes."""
    run = sorted(runs, key=lambda each: each["whole"])[len(runs) // 2]
    told = " and ".join(f"{n} of {clients} clients × {rows} rows" for n, clients, rows in phases)
    rest = run["learning"] - run["rounds"] - run["lists and sums"]
    seconds = {
        f"training rounds ({told} a step)": run["rounds"],
        "of these, the ledger": run["ledger of the rounds"],
        "lists, signatures, sums and their noise": run["lists and sums"],
        "public space, replay, heads and scores": rest,
        "report and pictures": run["report"],
        "start, reading, result": run["whole"] - run["learning"] - run["report"],
        "whole run": run["whole"],
    }
    lines = ["| part of the paper's protocol | CPU s |", "|---|---|"]
    return [*lines, *[f"| {name} | {value:.2f} |" for name, value in seconds.items()]]


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
