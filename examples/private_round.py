"""One private round by hand: 30 clients, two labels, one release.

python examples/private_round.py
"""

from __future__ import annotations

import numpy as np

import cslr


class Nowhere:
    """Stores no releases: this example makes one and ends."""

    def load(self, label: str) -> None:
        return None

    def save(self, label: str, vector: object) -> None:
        pass


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def main() -> None:
    seeds = cslr.Seeds(1)
    rng = seeds.at("data")
    # Public: a corpus, two label texts, and the space that is built from them.
    topics = unit(rng.normal(size=(40, 32)))
    corpus = unit(topics[rng.integers(40, size=2000)] + 0.6 * rng.normal(size=(2000, 32)) / 6)
    space = cslr.build_space(corpus, "toy", dimension=8, anchors=50, rng=seeds.at("anchors"))
    modes = cslr.declare_modes(space, corpus, topics[:2], 1, "labels", seeds.at("prototypes"))
    family = cslr.Family("classification", labels=2)
    agreement = cslr.Agreement(
        space, modes, cslr.ListLearner(), "signature", "shared", 1, clients=30, family=family
    )
    agreement = cslr.with_bound(agreement, corpus, labels_per_task=2)

    # Private: each client's examples.
    labels = rng.integers(2, size=900)
    z = unit(topics[labels] + 0.5 * rng.normal(size=(900, 32)) / 6)
    clients = rng.integers(30, size=900)
    population = cslr.Population(z, labels, np.zeros(900, dtype=np.int64), clients, 30)

    # The privacy budget, the noise that it requires, and the ledger.
    budget = cslr.Budget(epsilon=4.0)
    plan = cslr.calibrate(budget, releases=1)
    federation = cslr.Federation("example", budget, "simulated")
    ledger = cslr.Ledger.in_memory(federation, cslr.SeededKeys(seeds))

    cohort = population.cohort(0, np.ones(30, dtype=bool), cap=1)
    session = cslr.Session(agreement, plan, ledger, Nowhere())
    session.release(0, (0, 1), cohort)
    replay = session.replay()
    truth = np.stack([space.into(z[labels == label]).mean(axis=0) for label in (0, 1)])
    error = np.linalg.norm(replay.mean - truth, axis=1)
    print(f"σ = {plan.sigma:.3f}, ε = {ledger.epsilon('end_to_end', 'roster'):.3f} (roster)")
    print(f"distance of the private class means from the true ones: {np.round(error, 3)}")
    print(
        f"distance of the public prototypes from them: "
        f"{np.round(np.linalg.norm(modes.prototypes.mean - truth, axis=1), 3)}"
    )


if __name__ == "__main__":
    main()
