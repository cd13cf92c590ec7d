"""Gradients of the losses a head is trained by, over any number of heads at once.

Leading dimensions are heads and stay apart; n are rows, o outputs, h hidden units.
"""

from __future__ import annotations

import numpy as np

from cslr.arrays import FloatArray, IntArray

__all__ = ["contrast_slope", "cross_entropy_slope", "sigmoid", "softmax"]


def softmax(scores: FloatArray) -> FloatArray:
    """(..., o) shares of scores (..., o)."""
    shares: FloatArray = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return shares


def sigmoid(scores: FloatArray) -> FloatArray:
    """1 / (1 + exp(−s)) without overflow, to full relative precision in both tails."""
    small = np.exp(-np.abs(scores))
    answer: FloatArray = np.where(scores >= 0, 1.0, small) / (1.0 + small)
    return answer


def cross_entropy_slope(scores: FloatArray, targets: FloatArray, one_by_one: bool) -> FloatArray:
    """∂/∂scores (..., n, o) of the mean over rows of the cross-entropy against targets (..., n, o).

    one_by_one: binary cross-entropy, averaged over outputs too; otherwise that of the softmax,
    whose targets need not sum to one.
    """
    n, outputs = scores.shape[-2:]
    if one_by_one:
        residual = sigmoid(scores) - targets
        residual /= np.float32(n * outputs)
        return residual
    slope = softmax(scores)
    slope *= targets.sum(axis=-1, keepdims=True)
    slope -= targets
    slope /= np.float32(n)
    return slope


def contrast_slope(hidden: FloatArray, labels: IntArray, temperature: float) -> FloatArray:
    """∂/∂hidden (..., n, h) of the mean supervised contrastive loss (Khosla et al. 2020).

    labels: (n,). Samples of one label are drawn together, of others pushed apart.
    """
    n = len(labels)
    norm = np.maximum(np.linalg.norm(hidden, axis=-1, keepdims=True), np.float32(1e-12))
    unit = hidden / norm
    alike = unit @ np.swapaxes(unit, -1, -2) / np.float32(temperature)  # (..., n, n)
    itself = np.eye(n, dtype=np.bool_)
    same = ((labels[:, None] == labels) & ~itself).astype(np.float32)
    count = np.maximum(same.sum(axis=-1, keepdims=True), 1)
    slope = softmax(np.where(itself, np.float32(-1e9), alike))
    slope *= same.sum(axis=-1, keepdims=True) / count
    slope -= same / count
    slope /= np.float32(n * temperature)
    pull: FloatArray = (slope + np.swapaxes(slope, -1, -2)) @ unit
    pull -= unit * (pull * unit).sum(axis=-1, keepdims=True)
    pull /= norm
    return pull
