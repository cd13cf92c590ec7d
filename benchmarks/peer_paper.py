"""The paper's protocol on another framework, for ``bench.py``: CPU seconds of a whole run.

    python benchmarks/paper_parts.py --world world.npz
    build/peers/pfl/bin/python benchmarks/peer_paper.py pfl world.npz
    build/peers/flower/bin/python benchmarks/peer_paper.py flower world.npz

Run in the framework's own environment (``make bench-peers``). Heads are trained by the framework's
federated averaging; the rest of the protocol is ``peer_protocol.py``. On pfl, whose simulation is
one process, lists and sums are computed in a loop over the clients; on Flower, clients send them in
separate rounds. Prints one JSON object: CPU seconds of the process with its children, and the
accuracy on each task after the last.
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from peer_protocol import (
    Array,
    Entries,
    Head,
    Modes,
    Replayed,
    World,
    accuracies,
    batches,
    drawn,
    entries_of,
    hear,
    modes_of,
    names_of,
    noised_list,
    sums_of,
    world_at,
)


def spent() -> float:
    """CPU seconds of this process and of children that have ended."""
    each = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in each)


def on_pfl(path: str) -> list[list[float]]:
    """Accuracies (T + 1, T) with pfl's simulation."""
    from pfl.model.pytorch import PyTorchModel

    world, rng = world_at(path), np.random.default_rng(2)
    head = Head(world.sizes)
    model = PyTorchModel(head, torch.optim.Adam, torch.optim.SGD(head.parameters(), lr=1.0))
    known: list[Modes] = []
    scores = [accuracies(head, world)]
    for task, cohort in enumerate(world.sizes["cohorts"]):
        teacher = copy.deepcopy(head)  # answers for the labels of the tasks before
        hear(head, world, task + 1)
        _pfl_rounds(world, task, model, _replays(world, known, teacher, rng), rng)
        lists = [entries_of(world, task, client, head) for client in cohort]
        ids = names_of([noised_list(each, world.sizes, rng) for each in lists], world)
        sums = [sums_of(each, mine, world.sizes) for each, mine in zip(lists, ids, strict=True)]
        known.append(modes_of(sums, world, rng))
        scores.append(accuracies(head, world))
    return scores


def _replays(
    world: World, known: list[Modes], teacher: Head, rng: np.random.Generator
) -> Iterator[Replayed | None]:
    """The replay of each round of a task."""
    while True:
        yield drawn(known, world, teacher, rng) if known else None


def _pfl_rounds(
    world: World,
    task: int,
    model: Any,
    replays: Iterator[Replayed | None],
    rng: np.random.Generator,
) -> None:
    """The training rounds of a task."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.hyperparam.base import HyperParam, NNTrainHyperParams

    class Rounds(HyperParam, TrainingProcessCallback):  # type: ignore[misc]
        """The size of the current round's cohort, and what it replays."""

        def __init__(self) -> None:
            self.cohorts = iter(world.sizes["rounds"][task])
            self.begin()

        def begin(self) -> None:
            self.cohort, self.replayed = next(self.cohorts, []), next(replays)
            self.left = iter(self.cohort)

        def value(self) -> int:
            return len(self.cohort)

        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            self.begin()
            return super().after_central_iteration(*_, **__)

    now = Rounds()

    def dataset(client: int) -> Any:
        return PyTorchTensorDataset(batches(world, task, client, now.replayed, rng))

    data = FederatedDataset(dataset, lambda: next(now.left))
    count = len(world.sizes["rounds"][task])
    more = 0 if now.replayed is None else len(now.replayed.z) // world.sizes["steps"]
    FederatedAveraging().run(
        NNAlgorithmParams(
            count, evaluation_frequency=count + 1, train_cohort_size=now, val_cohort_size=0
        ),
        SimulatedBackend(data, data),
        model,
        NNTrainHyperParams(
            local_num_epochs=1,
            local_learning_rate=world.sizes["rate"],
            local_batch_size=world.sizes["rows"] + more,
            local_max_grad_norm=None,
        ),
        callbacks=[now],
        send_metrics_to_platform=False,
    )


# -- Flower ----------------------------------------------------------------------------------------


def arrays_of(head: Head) -> list[Array]:
    """The weights of a head."""
    return [value.numpy() for value in head.state_dict().values()]


def head_of(arrays: list[Array], world: World, tasks: int) -> Head:
    """A head with these weights, that answers for the labels of these tasks."""
    head = Head(world.sizes)
    state = zip(head.state_dict(), map(torch.tensor, arrays), strict=True)
    head.load_state_dict(dict(state))
    hear(head, world, tasks)
    return head


def trained(world: World, head: Head, task: int, client: int, replayed: Replayed | None) -> Head:
    """A client's head after its steps."""
    rng = np.random.default_rng()
    rows = batches(world, task, client, replayed, rng)
    optimizer = torch.optim.Adam(head.parameters(), lr=world.sizes["rate"])
    size = len(rows[0]) // world.sizes["steps"]
    for z, y, weight in zip(*(part.split(size) for part in rows), strict=True):
        optimizer.zero_grad()
        head.loss(z, y, weight).backward()
        optimizer.step()
    return head


def answered(path: str, given: list[Array], config: dict[str, Any]) -> list[Array]:
    """The answer of a client in a round of any kind."""
    world, task, client = world_at(path), config["task"], config["client"]
    head, more = head_of(given[:4], world, task + 1), given[4:]
    if config["kind"] == "train":
        return arrays_of(trained(world, head, task, client, Replayed(*more) if more else None))
    entries = entries_of(world, task, client, head)
    if config["kind"] == "list":
        return list(noised_list(entries, world.sizes, np.random.default_rng()))
    return list(sums_of(entries, more[0], world.sizes))


def on_flower(path: str) -> list[list[float]]:
    """Accuracies (T + 1, T) with Flower's simulation on Ray."""
    from flwr.client import ClientApp, NumPyClient
    from flwr.common import FitIns, ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    world, rng = world_at(path), np.random.default_rng(2)
    plan = [
        (task, kind, cohort)
        for task, cohorts in enumerate(world.sizes["rounds"])
        for kind, cohort in [
            *[("train", cohort) for cohort in cohorts],
            ("list", world.sizes["cohorts"][task]),
            ("sums", world.sizes["cohorts"][task]),
        ]
    ]
    most = max(len(cohort) for *_, cohort in plan)
    first = Head(world.sizes)
    scores = [accuracies(first, world)]

    class Answerer(NumPyClient):  # type: ignore[misc]
        def fit(self, parameters: list[Array], config: dict[str, Any]) -> Any:
            torch.set_num_threads(1)
            return answered(path, parameters, config), 1, {"client": config["client"]}

    class Server(FedAvg):  # type: ignore[misc]
        known: list[Modes]
        teacher: Head
        ids: dict[int, Array]

        def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
            task, kind, cohort = plan[server_round - 1]
            arrays = parameters_to_ndarrays(parameters)
            if server_round == 1:
                self.known, self.ids = [], {}
            if kind == "train" and (server_round == 1 or plan[server_round - 2][0] != task):
                self.teacher = head_of(arrays, world, task)
            shared = arrays
            if kind == "train" and self.known:
                shared = [*arrays, *drawn(self.known, world, self.teacher, rng)]
            sent = ndarrays_to_parameters(shared)
            orders = []
            for client, proxy in zip(cohort, client_manager.sample(len(cohort)), strict=True):
                if kind == "sums":
                    sent = ndarrays_to_parameters([*arrays, self.ids[client]])
                told = {"task": task, "kind": kind, "client": client}
                orders.append((proxy, FitIns(sent, told)))
            self.now = parameters
            return orders

        def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
            if failures:
                raise RuntimeError(f"round {server_round}: {failures[0]}")
            task, kind, _ = plan[server_round - 1]
            if kind == "train":
                return super().aggregate_fit(server_round, results, failures)
            answers = {
                result.metrics["client"]: Entries(*parameters_to_ndarrays(result.parameters))
                for _, result in results
            }
            if kind == "list":
                ids = names_of(list(answers.values()), world)
                self.ids = dict(zip(answers, ids, strict=True))
            else:
                self.known.append(modes_of(list(answers.values()), world, rng))
                head = head_of(parameters_to_ndarrays(self.now), world, task + 1)
                scores.append(accuracies(head, world))
            return self.now, {}

    def server_of(context: Any) -> Any:
        strategy = Server(
            fraction_evaluate=0.0,
            min_available_clients=most,
            initial_parameters=ndarrays_to_parameters(arrays_of(first)),
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=len(plan)))

    run_simulation(
        ServerApp(server_fn=server_of),
        ClientApp(client_fn=lambda context: Answerer().to_client()),
        num_supernodes=most,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    return scores


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("framework", choices=("pfl", "flower"))
    parser.add_argument("world", help="what paper_parts.py --world wrote")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    scores = (on_pfl if asked.framework == "pfl" else on_flower)(asked.world)
    if len(scores) != 1 + len(world_at(asked.world).sizes["tasks"]):
        raise SystemExit(f"only {len(scores) - 1} tasks were finished")
    print(json.dumps({"whole": spent(), "accuracies": scores[-1]}))


if __name__ == "__main__":
    main()
