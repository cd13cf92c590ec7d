"""Arrays to a private head: 60 clients, four labels that arrive in two tasks, ε = 4.

python examples/arrays.py
"""

from __future__ import annotations

import tempfile

import numpy as np

import cslr

rng = cslr.Seeds(1).at("data")
axes = np.linalg.qr(rng.normal(size=(32, 32)))[0]  # every topic is a direction


def near(topics: np.ndarray) -> np.ndarray:
    """Embeddings (n, 32) of texts about topics (n,)."""
    return axes[topics] + 0.15 * rng.normal(size=(len(topics), 32))


def main() -> None:
    names, topics = np.array(["sport", "music", "food", "travel"]), rng.integers(4, size=1200)
    with tempfile.TemporaryDirectory() as folder:
        model = cslr.learn(
            near(topics),
            names[topics],
            clients=rng.integers(60, size=1200),
            tasks=np.where(topics < 2, "spring", "summer"),
            label_texts=dict(zip(names, axes, strict=False)),  # embedded descriptions of the labels
            public=near(rng.integers(32, size=1000)),  # embedded public texts
            task_labels={"spring": ["sport", "music"], "summer": ["food", "travel"]},
            registered=60,
            epsilon=4.0,
            ledger=f"{folder}/ledger",  # real data: one directory for all calls on these rows
        )
    tested = rng.integers(4, size=400)
    print(model)
    print(f"accuracy {model.score(near(tested), names[tested]):.3f}")
    print(f"ε = {model.epsilon('roster'):.3f} at δ = {model.delta:g}, privacy {model.privacy}")


if __name__ == "__main__":
    main()
