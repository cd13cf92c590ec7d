"""The rows of ``bench.py`` about single parts, each next to a peer that computes the same."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from measuring import Measured, beside, elsewhere, left_out

from cslr.numerics.mixture import Gaussians
from cslr.privacy.mechanism import KeyStream, discrete_gaussian
from cslr.privacy.plan import Budget, calibrate
from cslr.protocol.head import Family, Head, HeadSettings, initial_head, train_head
from cslr.protocol.ports import Examples
from cslr.protocol.step1_list import LEADING, ListLearner, learn_lists
from cslr.protocol.step2_sign import signatures
from cslr.protocol.step5_federate import LocalTraining, local_updates
from cslr.seeding import Seeds

__all__ = ["accounting", "encoding", "federated_round", "head", "lists", "noise", "signed"]

Rows = Iterator[Measured]


def lists(times: int) -> Rows:
    """EM with four candidates, against scikit-learn client by client.

    Ours finds groups in the 64 leading directions and then computes statistics of all directions.
    So a second peer uses these 64 directions alone.
    """
    from sklearn.mixture import GaussianMixture

    for clients, rows, target in ((20, 200, 1.0), (1000, 50, 10.0)):
        rng = np.random.default_rng(2)
        x = rng.standard_normal((clients, rows, 384))
        mask = np.ones((clients, rows), dtype=np.bool_)
        learner = ListLearner(size=4)

        def ours(x: Any = x, mask: Any = mask, learner: Any = learner) -> None:
            streams = [Seeds(1).at(client) for client in range(len(x))]
            learn_lists(x, mask, np.ones(384), learner, streams)

        def peer(directions: int, x: Any = x, learner: Any = learner) -> None:
            for client in x[..., :directions]:
                model = GaussianMixture(
                    4,
                    covariance_type="diag",
                    n_init=learner.starts,
                    max_iter=learner.iterations,
                    tol=0.0,
                    init_params="random_from_data",
                )
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model.fit(client)

        name = f"lists {clients:,} × {rows} × 384, L = 4"
        repeated = max(1, times // 2)
        yield beside(name, ours, "scikit-learn", partial(peer, 384), target, repeated)
        few = "scikit-learn, 64 directions"
        yield beside(name, ours, few, partial(peer, LEADING), 1.0, repeated)


def signed(times: int) -> Rows:
    """Signatures, against SciPy candidate by candidate."""
    from scipy.stats import norm

    rng = np.random.default_rng(3)
    mean, variance = rng.standard_normal((400, 384)), rng.uniform(0.5, 2.0, (400, 384))
    anchors = rng.standard_normal((100, 384))

    def peer() -> None:
        for k in range(400):
            norm.logpdf(anchors, mean[k], np.sqrt(variance[k])).sum(axis=1)

    ours = partial(signatures, Gaussians(mean, variance), anchors)
    yield beside("signatures 400 × 100 × 384", ours, "SciPy", peer, 1.0, times)


def noise(times: int) -> Rows:
    """10⁶ draws, against a non-cryptographic generator and against OpenDP."""
    ours = partial(discrete_gaussian, 2.0**21, 10**6, KeyStream(bytes(32)))
    rng = np.random.default_rng(1)
    peer = partial(rng.standard_normal, 10**6)
    yield beside("noise, 10⁶ draws", ours, "NumPy (not private)", peer, 1.0, times)
    if find_spec("opendp") is None:
        yield left_out("noise, 10⁶ draws", "OpenDP", 100.0, "opendp is not installed")
        return
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    draw = dp.m.make_gaussian(*space, scale=2.0**21)
    some = [0] * 10_000

    def theirs() -> None:
        for _ in range(100):
            draw(some)

    yield beside("noise, 10⁶ draws", ours, "OpenDP", theirs, 100.0, 1)


def rows_of_labels(count: int, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings (count, 384) and one-hot targets."""
    rng = np.random.default_rng(0)
    y = np.eye(labels, dtype=np.float32)[rng.integers(labels, size=count)]
    z = rng.standard_normal((count, 384)).astype(np.float32) / 20
    z[:, :labels] += 0.3 * y
    return z, y


def head(times: int) -> Rows:
    """80 steps of 256 rows, against the same steps in a torch loop."""
    if find_spec("torch") is None:
        yield left_out("head, 80 steps × 256", "torch loop", 1.4, "torch is not installed")
        return
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    z, y = rows_of_labels(80 * 256, 4)
    settings = HeadSettings()
    start = initial_head(384, 4, settings, np.random.default_rng(1))

    def peer() -> None:
        model = torch.nn.Sequential(
            torch.nn.Linear(384, 128), torch.nn.ReLU(), torch.nn.Linear(128, 4)
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
        for begin in range(0, len(z), 256):
            batch = slice(begin, begin + 256)
            loss = functional.cross_entropy(model(torch.tensor(z[batch])), torch.tensor(y[batch]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def ours() -> Head:
        return train_head(start, [(z, y)], settings, np.random.default_rng(2))

    yield beside("head, 80 steps × 256", ours, "torch loop", peer, 1.4, times)


def federated_round(times: int) -> Rows:
    """20 clients × 5 steps of 32 rows, against torch client by client."""
    if find_spec("torch") is None:
        yield left_out("federated round 20 × 5", "torch vmap", 2.0, "torch is not installed")
        return
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    z, y = rows_of_labels(20 * 60, 4)
    examples = Examples(
        z.reshape(20, 60, 384),
        y.argmax(axis=1).reshape(20, 60),
        np.ones((20, 60), dtype=np.bool_),
        tuple(range(20)),
    )
    start = initial_head(384, 4, HeadSettings(), np.random.default_rng(1))
    training = LocalTraining(
        head=start,
        family=Family("classification", 4),
        heard=np.ones(4, dtype=np.bool_),
        replay=None,
        teacher=None,
        taught=np.zeros(4, dtype=np.bool_),
        loss="targets",
        weight=0.0,
        learning_rate=1e-3,
        last_layer=False,
        seeds=Seeds(1),
    )

    def peer() -> None:
        for client in range(20):
            model = torch.nn.Sequential(
                torch.nn.Linear(384, 128), torch.nn.ReLU(), torch.nn.Linear(128, 4)
            )
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            for step in range(5):
                chosen = (np.arange(32) + 7 * step) % 60
                scores = model(torch.tensor(examples.z[client, chosen]))
                loss = functional.cross_entropy(
                    scores, torch.tensor(examples.labels[client, chosen])
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    ours = partial(local_updates, examples, training)
    yield beside("federated round 20 × 5", ours, "torch loop", peer, 1.0, times)

    def loss_of(head: dict[str, torch.Tensor], z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(z @ head["weights1"] + head["bias1"])
        return functional.cross_entropy(hidden @ head["weights2"] + head["bias2"], y)

    slopes = torch.func.vmap(torch.func.grad(loss_of))

    def vmapped() -> np.ndarray:
        heads = {
            name: torch.tensor(array).expand(20, *array.shape).clone().requires_grad_()
            for name, array in vars(start).items()
        }
        optimizer = torch.optim.Adam(heads.values(), lr=1e-3)
        for step in range(5):
            chosen = (np.arange(32) + 7 * step) % 60
            rows, wanted = torch.tensor(examples.z[:, chosen]), examples.labels[:, chosen]
            plain = {name: value.detach() for name, value in heads.items()}
            for name, slope in slopes(plain, rows, torch.tensor(wanted)).items():
                heads[name].grad = slope
            optimizer.step()
        apart = [
            (heads[name].detach() - torch.tensor(first)).reshape(20, -1)
            for name, first in vars(start).items()
        ]
        return torch.cat(apart, dim=1).numpy().astype(np.float64)  # what is sent, as ours

    yield beside("federated round 20 × 5", ours, "torch vmap", vmapped, 2.0, times)
    for peer_name, target in (("pfl", 2.0), ("Flower on Ray", 5.0)):
        yield elsewhere("federated round 20 × 5", ours, peer_name, target, times)


def accounting(times: int) -> Rows:
    """σ for ten releases at q = 0.1, against dp-accounting's own search."""
    from dp_accounting import (
        GaussianDpEvent,
        PoissonSampledDpEvent,
        SelfComposedDpEvent,
        calibrate_dp_mechanism,
    )
    from dp_accounting.pld import PLDAccountant

    def event(sigma: float) -> Any:
        return SelfComposedDpEvent(PoissonSampledDpEvent(0.1, GaussianDpEvent(sigma)), 10)

    def ours() -> object:
        return calibrate(Budget(4.0, 1e-5, "public"), 10, 0.1)

    peer = partial(calibrate_dp_mechanism, PLDAccountant, event, 4.0, 1e-5)
    yield beside("calibrate, 10 releases, q = 0.1", ours, "dp-accounting", peer, 1.0, 1)


def encoding(times: int) -> Rows:
    """Packed texts, against batches of 32, in which vectors depend on the other texts."""
    if find_spec("sentence_transformers") is None:
        reason = "sentence-transformers is not installed"
        yield left_out("encoding, 192 texts", "sentence-transformers", 1.2, reason)
        return
    import torch
    from embedding import own_texts

    from cslr.text.encoders import SentenceEncoder, load_encoder

    torch.set_num_threads(1)
    encoder, texts = load_encoder("minilm"), own_texts()
    assert isinstance(encoder, SentenceEncoder)
    model = encoder._model
    peer = partial(model.encode, texts, batch_size=32, show_progress_bar=False)
    ours = partial(encoder.encode, texts)
    yield beside("encoding, 192 texts", ours, "sentence-transformers", peer, 1.2, times)
    if find_spec("onnxruntime") is None:
        reason = "onnxruntime is not installed"
        yield left_out("encoding with ONNX, 192 texts", "sentence-transformers", 1.35, reason)
        return
    exported = partial(load_encoder("minilm+onnx").encode, texts)
    name = "encoding with ONNX, 192 texts"
    yield beside(name, exported, "sentence-transformers", peer, 1.35, times)
