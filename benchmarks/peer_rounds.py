"""Federated averaging plainly on another framework, for ``bench.py``: CPU seconds of its rounds.

    build/peers/pfl/bin/python benchmarks/peer_rounds.py pfl --clients 20 --rounds 10
    build/peers/flower/bin/python benchmarks/peer_rounds.py flower --rows 132 --rounds 200

Run in an environment of the framework's own (``make bench-peers``), so it imports nothing of CSLR.
Every client takes five steps of Adam on ``--rows`` rows each, with the head that CSLR trains, 384
→ 128 → labels. Prints one JSON object: CPU seconds a round without the first, and of the whole
process with its children.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.nn import functional

STEPS, WIDTH, HIDDEN, LABELS = 5, 384, 128, 4
RATE = 1e-3


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


def on_pfl(clients: int, rounds: int, rows: int) -> list[float]:
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
    people = list(range(clients))
    held = {client: PyTorchTensorDataset(rows_of(client, rows)) for client in people}
    data = FederatedDataset(held.__getitem__, get_user_sampler("minimize_reuse", people))
    marks = [time.process_time()]

    class Clock(TrainingProcessCallback):  # type: ignore[misc]
        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            marks.append(time.process_time())
            return super().after_central_iteration(*_, **__)

    FederatedAveraging().run(
        NNAlgorithmParams(
            rounds, evaluation_frequency=rounds + 1, train_cohort_size=clients, val_cohort_size=0
        ),
        SimulatedBackend(data, data),
        model,
        NNTrainHyperParams(
            local_num_epochs=1,
            local_learning_rate=RATE,
            local_batch_size=rows,
            local_max_grad_norm=None,
        ),
        callbacks=[Clock()],
        send_metrics_to_platform=False,
    )
    return [after - before for before, after in pairwise(marks)]


def on_flower(clients: int, rounds: int, rows: int) -> list[float]:
    """CPU seconds of each round in Flower's simulation on Ray; actors count when they end."""
    from flwr.client import ClientApp, NumPyClient
    from flwr.common import Context, ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    class Trainer(NumPyClient):  # type: ignore[misc]
        def __init__(self, client: int) -> None:
            self.rows = rows_of(client, rows)

        def fit(self, parameters: list[np.ndarray], config: Any) -> Any:
            torch.set_num_threads(1)
            head = Head()
            state = zip(head.state_dict(), map(torch.tensor, parameters), strict=True)
            head.load_state_dict(dict(state))
            optimizer = torch.optim.Adam(head.parameters(), lr=RATE)
            for z, y in zip(*(part.split(rows) for part in self.rows), strict=True):
                optimizer.zero_grad()
                head.loss(z, y).backward()
                optimizer.step()
            return [value.numpy() for value in head.state_dict().values()], len(self.rows[1]), {}

    def client_of(context: Context) -> Any:
        return Trainer(int(context.node_config["partition-id"])).to_client()

    def server_of(context: Context) -> ServerAppComponents:
        first = ndarrays_to_parameters([value.numpy() for value in Head().state_dict().values()])
        strategy = FedAvg(
            fraction_fit=1.0,
            fraction_evaluate=0.0,
            min_available_clients=clients,
            initial_parameters=first,
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds))

    run_simulation(
        ServerApp(server_fn=server_of),
        ClientApp(client_fn=client_of),
        num_supernodes=clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    return []


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("framework", choices=("pfl", "flower"))
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=32, help="rows of a step")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    run = on_pfl if asked.framework == "pfl" else on_flower
    before = spent()
    took = run(asked.clients, asked.rounds, asked.rows)
    # Where rounds cannot be told apart, workers included: all of them together.
    each = statistics.median(took[1:]) if took else (spent() - before) / asked.rounds
    print(json.dumps({"round": each, "whole": spent()}))


if __name__ == "__main__":
    main()
