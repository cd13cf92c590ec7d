"""Replay targets: what a head should say about a sample of a mode (paper, Section 4.2)."""

from __future__ import annotations

import numpy as np

from cslr.types import FloatArray, IntArray

__all__ = ["label_targets"]


def label_targets(labels: IntArray, count: int) -> FloatArray:
    """Labels (n,) -> one-hot distributions (n, c)."""
    return np.eye(count, dtype=np.float32)[labels]
