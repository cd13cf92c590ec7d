"""From a cost matrix to ids: nearest, Hungarian, entropic transport; and stable clustering.

``cost`` (..., L, K) is the cost of assigning list entry l to mode k. The result is (..., L).
Parts of SciPy are imported where they are used: most runs use one of them, or none.
"""

from __future__ import annotations

import numpy as np

from cslr.arrays import FloatArray, IntArray

__all__ = ["entropic_transport", "hungarian", "nearest", "stable_clusters"]


def _checked(cost: FloatArray) -> FloatArray:
    matrix = np.asarray(cost, dtype=np.float64)
    if matrix.ndim < 2 or matrix.shape[-1] == 0:
        raise ValueError(f"cost must have shape (..., L, K) with K >= 1, got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError("cost must be finite")
    return matrix


def nearest(cost: FloatArray) -> IntArray:
    """The cheapest mode of each row, ties to the lower mode: (..., L, K) -> (..., L)."""
    ids: IntArray = np.argmin(_checked(cost), axis=-1).astype(np.int64)
    return ids


def hungarian(cost: FloatArray) -> IntArray:
    """The ids of least total cost among those that use each mode at most ⌈L/K⌉ times.

    With L <= K this is a matching: no two rows share a mode. With L > K every mode is offered
    ⌈L/K⌉ times. Deterministic.
    """
    from scipy.optimize import linear_sum_assignment

    matrix = _checked(cost)
    rows, modes = matrix.shape[-2:]
    offered = np.tile(matrix, max(1, -(-rows // modes)))
    ids = np.zeros(matrix.shape[:-1], dtype=np.int64)
    for index in np.ndindex(matrix.shape[:-2]):
        ids[index] = linear_sum_assignment(offered[index])[1] % modes
    return ids


def entropic_transport(
    cost: FloatArray, row_weights: FloatArray, column_weights: FloatArray, regularisation: float
) -> IntArray:
    """The largest entry of each row of the entropic coupling, ties to the lower mode.

    The coupling P minimises ``⟨P, cost⟩ + regularisation · Σ P (log P − 1)`` with row sums
    ``row_weights`` (..., L) and column sums ``column_weights`` (..., K), each scaled to sum 1
    (Cuturi 2013, by POT in the log domain). Rows of weight 0 are assigned to the nearest mode.
    Columns of weight 0 receive nothing. A coupling that has not converged after 1 000 iterations
    is used as it is.
    """
    matrix = _checked(cost)
    if not (0 < regularisation < np.inf):
        raise ValueError(f"regularisation must be finite and positive, got {regularisation}")
    row = _weights("row_weights", row_weights, matrix.shape[:-1])
    column = _weights("column_weights", column_weights, (*matrix.shape[:-2], matrix.shape[-1]))
    if not np.all(np.sum(column, axis=-1) > 0):
        raise ValueError("column_weights must have a positive sum")
    ids = nearest(matrix)
    for index in np.ndindex(matrix.shape[:-2]):
        rows, columns = np.flatnonzero(row[index]), np.flatnonzero(column[index])
        if rows.size:
            part = matrix[index][np.ix_(rows, columns)]
            coupling = _coupling(part, row[index][rows], column[index][columns], regularisation)
            ids[(*index, rows)] = columns[np.argmax(coupling, axis=-1)]
    return ids


def _weights(name: str, values: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    weights = np.asarray(values, dtype=np.float64)
    if not np.all((weights >= 0) & np.isfinite(weights)):
        raise ValueError(f"{name} must be finite and not negative")
    try:
        return np.broadcast_to(weights, shape)
    except ValueError:
        raise ValueError(f"{name} must have shape {shape}, got {weights.shape}") from None


def _coupling(
    cost: FloatArray, row: FloatArray, column: FloatArray, regularisation: float
) -> FloatArray:
    """The coupling of one (L, K) problem with positive weights."""
    import ot  # here, because POT loads every backend it finds

    coupling: FloatArray = ot.sinkhorn(
        row / np.sum(row),
        column / np.sum(column),
        cost,
        regularisation,
        method="sinkhorn_log",
        numItermax=1_000,
        warn=False,
    )
    return coupling


def stable_clusters(distance: FloatArray, clusters: int) -> IntArray:
    """Average-linkage clusters of N points given their distances (N, N): ids (N,).

    The tree is cut into exactly ``clusters`` parts, or N if there are fewer points. Parts are
    numbered by properties that do not depend on the order of points: larger first, then smaller
    mean distance within, then smaller mean distance to all points; ties by the first member.

    Guarantee: deterministic; permuting the points permutes the ids, unless two distances of the
    tree tie or the first three rules do not separate two parts. That happens if two parts mirror
    each other (two single points, say); they are numbered in the order of the input.
    """
    from scipy.cluster.hierarchy import cut_tree, linkage
    from scipy.spatial.distance import squareform

    matrix = np.asarray(distance, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"distance must have shape (N, N), got {matrix.shape}")
    if not (np.isfinite(matrix).all() and np.allclose(matrix, matrix.T)):
        raise ValueError("distance must be finite and symmetric")
    if clusters < 1:
        raise ValueError(f"clusters must be at least 1, got {clusters}")
    points = matrix.shape[0]
    if points < 2:
        return np.zeros(points, dtype=np.int64)
    matrix = 0.5 * (matrix + matrix.T)
    np.fill_diagonal(matrix, 0.0)
    tree = linkage(squareform(matrix, checks=False), method="average")
    return _numbered(cut_tree(tree, n_clusters=min(clusters, points))[:, 0], matrix)


def _numbered(labels: IntArray, distance: FloatArray) -> IntArray:
    """The same parts, numbered by the rules of ``stable_clusters``."""
    parts = [np.flatnonzero(labels == label) for label in np.unique(labels)]

    def place(members: IntArray) -> tuple[int, float, float, int]:
        size = len(members)
        within = _total(distance[np.ix_(members, members)]) / max(size * (size - 1), 1)
        return -size, within, _total(distance[members]) / size, int(members[0])

    ids = np.zeros(len(labels), dtype=np.int64)
    for number, members in enumerate(sorted(parts, key=place)):
        ids[members] = number
    return ids


def _total(values: FloatArray) -> float:
    """A sum that does not depend on the order of its terms, to the last bit."""
    return float(np.sum(np.sort(values, axis=None)))
