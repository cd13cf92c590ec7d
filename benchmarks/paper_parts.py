"""CPU time of the parts of a run of the paper's protocol, for ``bench.py``.

    python benchmarks/paper_parts.py
    python benchmarks/paper_parts.py --world world.npz

Runs ``cslr run --method cslr-paper --no-yardsticks`` on the embedded stream in this process, with
timers around its parts, and prints one JSON object: CPU seconds of the parts, accuracies after the
last task, and how many clients trained in each round without replay and with it. ``--world`` writes
the rows, the clients of each round and all sizes into a file, from which peers do the same work.
"""

from __future__ import annotations

import argparse
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

import numpy as np

SECONDS: defaultdict[str, float] = defaultdict(float)
ROUNDS: dict[str, list[int]] = {"alone": [], "replayed": []}
"""Clients that trained in each round, without replay and with it."""


def timed(place: object, name: str, part: str) -> None:
    """Replace a function by one that adds its CPU seconds to a part."""
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
    """Record from now on how many clients train in each round."""
    function = place.local_updates

    @functools.wraps(function)
    def measured(examples: Any, training: Any) -> Any:
        kind = "alone" if training.replay is None else "replayed"
        ROUNDS[kind].append(len(examples.clients))
        return function(examples, training)

    place.local_updates = measured


class Seen:
    """Records what a run uses, while it runs: context, agreement, clients of each round."""

    def __init__(self) -> None:
        self.context: Any = None
        self.agreement: Any = None
        self.embedded: Any = None
        self.rounds: list[list[list[int]]] = []
        """The clients of each training round, task by task."""
        self.cohorts: list[list[int]] = []
        """The clients that were asked for a list and for sums, task by task."""

    def watch(self) -> None:
        """Record the arguments of a few functions from now on."""
        from cslr.methods import cslr as method
        from cslr.protocol import step5_federate
        from cslr.protocol.round import Session
        from cslr.runs import learn

        def before(place: Any, name: str, note: Callable[..., None]) -> None:
            function = getattr(place, name)

            @functools.wraps(function)
            def noted(*given: Any, **named: Any) -> Any:
                note(*given)
                return function(*given, **named)

            setattr(place, name, noted)

        before(method, "federated_stage", self._stage)
        before(step5_federate, "local_updates", self._round)
        before(Session, "release", self._release)
        before(learn, "learn", self._learn)

    def _stage(self, context: Any, *_: Any) -> None:
        self.context = context
        self.rounds.append([])

    def _round(self, examples: Any, _: Any) -> None:
        self.rounds[-1].append(list(map(int, examples.clients)))

    def _release(self, session: Any, task: int, labels: Any, cohort: Any, *_: Any) -> None:
        self.agreement = session.agreement
        taking_part = cohort.population.addresses[cohort.taking_part]
        self.cohorts.append(list(map(int, taking_part)))

    def _learn(self, settled: Any, embedded: Any, *_: Any) -> None:
        self.embedded = embedded

    def sizes(self) -> dict[str, Any]:
        """All sizes that determine the amount of work of a run."""
        from cslr.protocol.step1_list import LEADING
        from cslr.protocol.step5_federate import ROWS, STEPS

        context, agreement = self.context, self.agreement
        learner, paper, plan = agreement.learner, context.constants, context.plan
        chosen = ("b_z", "b_mu", "b_m", "b_pi", "b_y", "b_g", "pi_min", "lambda_min")
        return {
            **{name: getattr(paper, name) for name in chosen},
            "tasks": [list(map(int, labels)) for labels in context.tasks],
            "labels": context.labels,
            "width": context.public.shape[1],
            "hidden": context.head_settings.hidden,
            "rate": context.head_settings.learning_rate,
            "steps": STEPS,
            "rows": ROWS,
            "replayed": paper.n_r,
            "replay_weight": paper.replay_weight,
            "dimension": agreement.space.dimension,
            "anchors": len(agreement.space.anchors),
            "list_size": learner.size,
            "starts": learner.starts,
            "iterations": learner.iterations,
            "leading": LEADING,
            "modes": len(agreement.modes.group) // len(agreement.modes.groups),
            "sigma": plan.sigma,
            "bounds": list(agreement.bounds),
            "list_bound": agreement.list_bound,
            "cohort": agreement.clients * plan.q * plan.cap / plan.releases,
            "rounds": self.rounds,
            "cohorts": self.cohorts,
        }

    def write(self, path: Path) -> None:
        """Rows, cohorts and sizes, for peers."""
        people, test = self.context.clients, self.embedded.test
        tasks = {int(label): task for task, of in enumerate(self.context.tasks) for label in of}
        np.savez(
            path,
            sizes=np.array(json.dumps(self.sizes())),
            z=people.z.astype(np.float32),
            labels=people.labels,
            owner=people.addresses[people.clients],
            row=people.held,
            task=people.tasks[people.held],
            public=self.context.public,
            test_z=test.z.astype(np.float32),
            test_labels=test.labels,
            test_tasks=np.array([tasks[int(label)] for label in test.labels]),
        )


def main() -> None:
    """Run, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=Path, help="write what peers need to do the same")
    asked = parser.parse_args()
    seen = Seen()
    if asked.world:
        seen.watch()
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
        with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
            cslr()
    if asked.world:
        seen.write(asked.world)
    result = json.loads(shown.getvalue().splitlines()[-1])
    print(json.dumps({**SECONDS, **ROUNDS, "result": result}))


if __name__ == "__main__":
    main()
