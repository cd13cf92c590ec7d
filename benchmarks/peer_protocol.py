"""The parts of the paper's protocol that frameworks lack, for ``peer_paper.py``.

Lists by scikit-learn, signatures and clusters by SciPy, clipping, noise, sums and replay by NumPy,
the head in torch. Imports nothing of CSLR: it runs in the environment of a framework. All sizes
come from the file that ``paper_parts.py --world`` wrote about a run of ours, so both sides have the
same rows, clients of each round, sizes and noise multipliers.
"""

from __future__ import annotations

import json
import warnings
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.stats import Covariance, multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch.nn import functional

SILENT = -1e4
"""Score of a label of which no task has been seen yet."""

warnings.simplefilter("ignore", ConvergenceWarning)  # iterations are as many as ours

Array = np.ndarray


class World:
    """Rows, cohorts and sizes of a run, and the public space."""

    def __init__(self, path: str) -> None:
        stored = np.load(path)
        self.sizes: dict[str, Any] = json.loads(str(stored["sizes"]))
        self.z, self.labels = stored["z"], stored["labels"]
        self.test_z, self.test_labels = stored["test_z"], stored["test_labels"]
        self.test_tasks = stored["test_tasks"]
        order = np.lexsort((stored["owner"], stored["task"]))
        keys = np.stack([stored["task"], stored["owner"]], axis=1)[order]
        found, first = np.unique(keys, axis=0, return_index=True)
        self.held = dict(
            zip(map(tuple, found.tolist()), np.split(stored["row"][order], first[1:]), strict=True)
        )
        """The rows of each (task, client)."""
        rng = np.random.default_rng(1)
        public = stored["public"].astype(np.float64)
        self.centre = public.mean(axis=0)
        _, _, directions = np.linalg.svd(public - self.centre, full_matrices=False)
        self.basis = directions[: self.sizes["dimension"]].T
        chosen = rng.choice(len(public), size=self.sizes["anchors"], replace=False)
        self.anchors = self.into(public[chosen])

    def into(self, z: Array) -> Array:
        """Coordinates (n, r) of embeddings (n, d)."""
        return (z - self.centre) @ self.basis

    def seen(self, tasks: int) -> list[int]:
        """The labels of the first tasks."""
        return sorted({label for task in self.sizes["tasks"][:tasks] for label in task})

    def rows(self, task: int, client: int) -> Array:
        """The rows of a client in a task."""
        return self.held.get((task, client), np.zeros(0, dtype=np.int64))


@cache
def world_at(path: str) -> World:
    """Read once in each process."""
    return World(path)


# -- the head --------------------------------------------------------------------------------------


class Head(torch.nn.Module):
    """The head, with the loss and metrics that pfl asks for."""

    def __init__(self, sizes: dict[str, Any]) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(sizes["width"], sizes["hidden"]),
            torch.nn.ReLU(),
            torch.nn.Linear(sizes["hidden"], sizes["labels"]),
        )
        self.silent: list[int] = []

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        scores = self.layers(z)
        if self.silent:
            scores = scores.index_fill(1, torch.tensor(self.silent), SILENT)
        return scores

    def loss(
        self, z: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, eval: bool = False
    ) -> torch.Tensor:
        return (functional.cross_entropy(self(z), y, reduction="none") * weight).sum()

    def metrics(self, *_: torch.Tensor, eval: bool = False) -> dict[str, Any]:
        return {}

    def scores(self, z: Array) -> Array:
        """(n, c) of embeddings."""
        with torch.inference_mode():
            return self(torch.from_numpy(z.astype(np.float32, copy=False))).numpy()


def hear(head: Head, world: World, tasks: int) -> None:
    """Let the head predict the labels of the first tasks from now on."""
    heard = world.seen(tasks)
    head.silent = [label for label in range(world.sizes["labels"]) if label not in heard]


class Replayed(NamedTuple):
    """What one round replays: embeddings and the earlier head's answers."""

    z: Array  # (n_r, d)
    wanted: Array  # (n_r, c)


def batches(
    world: World, task: int, client: int, replayed: Replayed | None, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The rows of all steps of a client, one step after the other: own ones, then replayed ones."""
    sizes = world.sizes
    steps, own = sizes["steps"], sizes["rows"]
    chosen = rng.choice(world.rows(task, client), size=(steps, own))
    z, y = world.z[chosen], np.eye(sizes["labels"], dtype=np.float32)[world.labels[chosen]]
    weight = np.full((steps, own), 1 / own, dtype=np.float32)
    if replayed is not None:
        more = len(replayed.z) // steps
        z = np.concatenate([z, replayed.z[: steps * more].reshape(steps, more, -1)], axis=1)
        wanted = replayed.wanted[: steps * more].reshape(steps, more, -1)
        y = np.concatenate([y, wanted], axis=1)
        factor = np.full((steps, more), sizes["replay_weight"] / more, dtype=np.float32)
        weight = np.concatenate([weight, factor], axis=1)
    z, y = (np.ascontiguousarray(part.reshape(-1, part.shape[-1])) for part in (z, y))
    return torch.from_numpy(z), torch.from_numpy(y), torch.from_numpy(weight.reshape(-1))


# -- the device: lists and what is summed ----------------------------------------------------------


class Entries(NamedTuple):
    """A client's list, each statistic clipped by itself."""

    weight: Array  # (L,)
    mean: Array  # (L, r)
    second: Array  # (L, r (r + 1) / 2)
    target: Array  # (L, c)


@cache
def triangle(r: int) -> tuple[tuple[Array, Array], Array]:
    """The upper triangle of a symmetric matrix, and factors that keep the matrix's norm."""
    places = np.triu_indices(r)
    return places, np.where(places[0] == places[1], 1.0, np.sqrt(2.0))


def clipped(rows: Array, bound: float) -> Array:
    """Rows (n, ·) no longer than the bound."""
    norm = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows * np.minimum(1.0, bound / np.maximum(norm, 1e-12))


def entries_of(world: World, task: int, client: int, head: Head) -> Entries:
    """The list of a client: EM on the leading directions, statistics of all directions."""
    sizes, rows = world.sizes, world.rows(task, client)
    size, r = sizes["list_size"], world.basis.shape[1]
    (above, factor), z = triangle(r), world.z[rows]
    x = world.into(clipped(z, sizes["b_z"]))
    share = np.zeros((len(rows), size))
    if len(rows) >= 2:
        leading, count = x[:, : sizes["leading"]], min(size, len(rows))
        mixture = GaussianMixture(
            count,
            covariance_type="diag",
            n_init=sizes["starts"],
            max_iter=sizes["iterations"],
            init_params="random_from_data",
            random_state=client,
        )
        share[:, :count] = mixture.fit(leading).predict_proba(leading)
    elif len(rows):
        share[:, 0] = 1.0
    mass = share.sum(axis=0)
    each = share / np.maximum(mass, 1e-12)
    second = np.stack([((each[:, [entry]] * x).T @ x)[above] * factor for entry in range(size)])
    target = each.T @ head.scores(z)
    return Entries(
        clipped((mass / max(len(rows), 1))[None], sizes["b_pi"])[0],
        clipped(each.T @ x, sizes["b_mu"]),
        clipped(second, sizes["b_m"]),
        clipped(clipped(target, sizes["b_g"]), sizes["b_y"]),
    )


def noised_list(entries: Entries, sizes: dict[str, Any], rng: np.random.Generator) -> Entries:
    """The list with noise, as it is sent."""
    scale = sizes["sigma"] * sizes["list_bound"]
    return Entries(*(part + scale * rng.standard_normal(part.shape) for part in entries))


def sums_of(entries: Entries, ids: Array, sizes: dict[str, Any]) -> Entries:
    """(K, ·) a client's contribution to each mode; ids: (L,) the modes of its entries."""
    weight = entries.weight * np.where(entries.weight < sizes["pi_min"], 0.5, 1.0)
    to_mode = weight * (ids == np.arange(sizes["modes"])[:, None])  # (K, L)
    total = to_mode.sum(axis=1)
    to_mode = to_mode / np.where(total > 0, total, 1.0)[:, None]
    return Entries(total, *(to_mode @ part for part in entries[1:]))


# -- the server ------------------------------------------------------------------------------------


def matrices(folded: Array, r: int) -> Array:
    """(n, r, r) of upper triangles (n, s)."""
    above, factor = triangle(r)
    whole = np.zeros((len(folded), r, r))
    whole[:, above[0], above[1]] = whole[:, above[1], above[0]] = folded / factor
    return whole


def eigen_of(mean: Array, second: Array, floor: float) -> tuple[Array, Array]:
    """Eigenvalues, at least the floor, and eigenvectors of M − μμᵀ."""
    values, vectors = np.linalg.eigh(second - np.outer(mean, mean))
    return np.maximum(values, floor), vectors


def names_of(lists: list[Entries], world: World) -> Array:
    """(b, L) clusters of the signatures of released lists: log densities at the anchors."""
    signatures = []
    for entries in lists:
        second = matrices(entries.second, world.basis.shape[1])
        for mean, moment in zip(entries.mean, second, strict=True):
            eigen = eigen_of(mean, moment, world.sizes["lambda_min"])
            covariance = Covariance.from_eigendecomposition(eigen)
            signatures.append(multivariate_normal.logpdf(world.anchors, mean, covariance))
    tree = linkage(np.stack(signatures), method="average")
    ids = fcluster(tree, world.sizes["modes"], criterion="maxclust") - 1
    return ids.reshape(len(lists), -1)


class Modes(NamedTuple):
    """The released modes of a task, from which replay is drawn."""

    weights: Array  # (K,)
    mean: Array  # (K, d) embeddings
    factor: Array  # (K, r, d) white noise -> embeddings about the mean


def modes_of(contributions: list[Entries], world: World, rng: np.random.Generator) -> Modes:
    """The modes of a task from its four sums, each with its own noise."""
    sizes = world.sizes
    sums = [np.sum(parts, axis=0) for parts in zip(*contributions, strict=True)]
    noised = [
        (part + sizes["sigma"] * bound * rng.standard_normal(part.shape)) / sizes["cohort"]
        for part, bound in zip(sums, sizes["bounds"], strict=True)
    ]
    weights, mean, folded, _ = noised  # targets are released, and distillation does not use them
    factors = []
    for mu, second in zip(mean, matrices(folded, mean.shape[1]), strict=True):
        values, vectors = eigen_of(mu, second, sizes["lambda_min"])
        factors.append((np.sqrt(values)[:, None] * vectors.T) @ world.basis.T)
    return Modes(
        simplex(weights),
        (mean @ world.basis.T + world.centre).astype(np.float32),
        np.stack(factors).astype(np.float32),
    )


def simplex(weights: Array) -> Array:
    """The nearest point of the simplex (Duchi et al. 2008)."""
    falling = np.sort(weights)[::-1]
    above = (np.cumsum(falling) - 1) / np.arange(1, len(weights) + 1)
    return np.maximum(weights - above[falling > above][-1], 0)


def drawn(known: list[Modes], world: World, teacher: Head, rng: np.random.Generator) -> Replayed:
    """The replay of a round: equally many samples of each earlier task, with teacher outputs."""
    samples = world.sizes["replayed"] // len(known)
    parts = []
    for modes in known:
        chosen = rng.choice(len(modes.weights), size=samples, p=modes.weights)
        white = rng.standard_normal((samples, modes.factor.shape[1]), dtype=np.float32)
        z = modes.mean[chosen]
        for mode in np.unique(chosen):
            z[chosen == mode] += white[chosen == mode] @ modes.factor[mode]
        parts.append(z)
    z = np.concatenate(parts)[rng.permutation(samples * len(known))]
    scores = torch.from_numpy(teacher.scores(z))
    return Replayed(z, functional.softmax(scores, dim=1).numpy())


def accuracies(head: Head, world: World) -> list[float]:
    """On the test rows of each task."""
    right = head.scores(world.test_z).argmax(axis=1) == world.test_labels
    tasks = range(len(world.sizes["tasks"]))
    return [float(right[world.test_tasks == task].mean()) for task in tasks]
