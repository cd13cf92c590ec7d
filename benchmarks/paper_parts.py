"""What a run of the paper's protocol spends its time on, for ``bench.py``.

    python benchmarks/paper_parts.py

Runs ``cslr run --method cslr-paper --no-yardsticks`` on the embedded stream in this process, with
timers around its parts, and prints one JSON object: CPU seconds of the parts, and how many clients
trained in each round without replay and with it. Peers are asked for as many.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS: defaultdict[str, float] = defaultdict(float)
ROUNDS: dict[str, list[int]] = {"alone": [], "replayed": []}
"""Clients that trained in each round, without replay and with it."""


def timed(place: object, name: str, part: str) -> None:
    """Add the CPU seconds of a function to a part from now on."""
    function: Callable[..., Any] = getattr(place, name)

    @functools.wraps(function)
    def measured(*given: Any, **named: Any) -> Any:
        begun = time.process_time()
        try:
            return function(*given, **named)
        finally:
            SECONDS[part] += time.process_time() - begun

    setattr(place, name, measured)


def counted(place: Any) -> None:
    """Note how many clients train in each round from now on."""
    function = place.local_updates

    @functools.wraps(function)
    def measured(examples: Any, training: Any) -> Any:
        kind = "alone" if training.replay is None else "replayed"
        ROUNDS[kind].append(len(examples.clients))
        return function(examples, training)

    place.local_updates = measured


def main() -> None:
    """Run, and print the figures."""
    from cslr.cli import run as command
    from cslr.cli.main import main as cslr
    from cslr.methods import cslr as method
    from cslr.methods import federated_head
    from cslr.protocol import step5_federate
    from cslr.protocol.round import Session
    from cslr.runs import learn

    timed(method, "federated_stage", "rounds")
    timed(federated_head, "release", "ledger of the rounds")
    timed(Session, "release", "lists and sums")
    timed(learn, "learn", "learning")
    timed(command, "_store", "report")
    counted(step5_federate)
    with tempfile.TemporaryDirectory() as folder:
        run = ["--method", "cslr-paper", "--no-yardsticks", "--run-dir", str(Path(folder) / "run")]
        sys.argv = ["cslr", "run", "--json", *run]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            cslr()
    print(json.dumps({**SECONDS, **ROUNDS}))


if __name__ == "__main__":
    main()
