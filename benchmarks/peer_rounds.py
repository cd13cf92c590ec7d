"""Plain federated averaging on another framework, for ``bench.py``: CPU seconds of its rounds.

    build/peers/pfl/bin/python benchmarks/peer_rounds.py pfl 10:20:32
    build/peers/flower/bin/python benchmarks/peer_rounds.py flower 50:10:32 150:8:132

Run in the framework's own environment (``make bench-peers``), so it imports nothing of CSLR. A
phase ROUNDS:CLIENTS:ROWS has so many rounds of so many clients, each of which takes five steps of
Adam on so many rows, with the head that CSLR trains, 384 → 128 → labels. Rows are in memory before
the first round. Prints one JSON object: CPU seconds of the median round without the first, of all
rounds, and of the whole process with its children.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

STEPS, WIDTH, HIDDEN, LABELS = 5, 384, 128, 4
RATE = 1e-3


class Phase(NamedTuple):
    """Rounds of the same size."""

    rounds: int
    clients: int
    rows: int
    """Rows of one step."""


class Head(torch.nn.Module):
    """The head, with the loss and metrics that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, LABELS)
        )

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.layers(z)

    def loss(self, z: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        return functional.cross_entropy(self(z), y)

    def metrics(self, z: torch.Tensor, y: torch.Tensor, eval: bool = False) -> dict[str, Any]:
        return {}


@cache
def rows_of(client: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What a client holds: ``rows`` for each of its steps."""
    rng = np.random.default_rng(client)
    y = rng.integers(LABELS, size=STEPS * rows)
    z = rng.standard_normal((len(y), WIDTH)).astype(np.float32) / 20
    return torch.tensor(z), torch.tensor(y)


def spent() -> float:
    """CPU seconds of this process and of children that have ended."""
    each = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in each)


def on_pfl(phases: list[Phase]) -> list[float]:
    """CPU seconds of each round in pfl's simulation."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    head = Head()
    central = torch.optim.SGD(head.parameters(), lr=1.0)
    model = PyTorchModel(head, torch.optim.Adam, central)
    marks: list[float] = []

    class Clock(TrainingProcessCallback):  # type: ignore[misc]
        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            marks.append(time.process_time())
            return super().after_central_iteration(*_, **__)

    took: list[float] = []
    for phase in phases:
        people = list(range(phase.clients))
        held = {client: PyTorchTensorDataset(rows_of(client, phase.rows)) for client in people}
        data = FederatedDataset(held.__getitem__, get_user_sampler("minimize_reuse", people))
        marks[:] = [time.process_time()]
        FederatedAveraging().run(
            NNAlgorithmParams(
                phase.rounds,
                evaluation_frequency=phase.rounds + 1,
                train_cohort_size=phase.clients,
                val_cohort_size=0,
            ),
            SimulatedBackend(data, data),
            model,
            NNTrainHyperParams(
                local_num_epochs=1,
                local_learning_rate=RATE,
                local_batch_size=phase.rows,
                local_max_grad_norm=None,
            ),
            callbacks=[Clock()],
            send_metrics_to_platform=False,
        )
        took += [after - before for before, after in pairwise(marks)]
    return took


def on_flower(phases: list[Phase]) -> list[float]:
    """Flower's simulation on Ray; empty, since CPU time of its actors is known at the end only."""
    from flwr.client import ClientApp, NumPyClient
    from flwr.common import Context, ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    clients = max(phase.clients for phase in phases)
    every = [phase for phase in phases for _ in range(phase.rounds)]

    class Trainer(NumPyClient):  # type: ignore[misc]
        def __init__(self, client: int) -> None:
            self.client = client

        def fit(self, parameters: list[np.ndarray], config: Any) -> Any:
            torch.set_num_threads(1)
            head = Head()
            state = zip(head.state_dict(), map(torch.tensor, parameters), strict=True)
            head.load_state_dict(dict(state))
            optimizer = torch.optim.Adam(head.parameters(), lr=RATE)
            mine, rows = rows_of(self.client, config["rows"]), config["rows"]
            for z, y in zip(*(part.split(rows) for part in mine), strict=True):
                optimizer.zero_grad()
                head.loss(z, y).backward()
                optimizer.step()
            return [value.numpy() for value in head.state_dict().values()], len(mine[1]), {}

    def client_of(context: Context) -> Any:
        return Trainer(int(context.node_config["partition-id"])).to_client()

    class Average(FedAvg):  # type: ignore[misc]
        def configure_fit(self, server_round: int, **given: Any) -> Any:
            self.fraction_fit = every[server_round - 1].clients / clients
            return super().configure_fit(server_round, **given)

    def server_of(context: Context) -> ServerAppComponents:
        first = ndarrays_to_parameters([value.numpy() for value in Head().state_dict().values()])
        strategy = Average(
            fraction_evaluate=0.0,
            min_available_clients=clients,
            initial_parameters=first,
            on_fit_config_fn=lambda server_round: {"rows": every[server_round - 1].rows},
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=len(every)))

    run_simulation(
        ServerApp(server_fn=server_of),
        ClientApp(client_fn=client_of),
        num_supernodes=clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    return []


def phase_of(text: str) -> Phase:
    """``rounds:clients:rows``."""
    rounds, clients, rows = map(int, text.split(":"))
    return Phase(rounds, clients, rows)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("framework", choices=("pfl", "flower"))
    parser.add_argument("phases", nargs="+", type=phase_of, metavar="ROUNDS:CLIENTS:ROWS")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    run = on_pfl if asked.framework == "pfl" else on_flower
    before = spent()
    took = run(asked.phases)
    # Where single rounds cannot be measured: all rounds together, including workers.
    rounds = sum(took) if took else spent() - before
    count = sum(phase.rounds for phase in asked.phases)
    each = statistics.median(took[1:]) if took else rounds / count
    print(json.dumps({"round": each, "rounds": rounds, "whole": spent()}))


if __name__ == "__main__":
    main()
