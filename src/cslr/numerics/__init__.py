"""Gaussians, mixtures, projections and assignments in NumPy and SciPy; no I/O, no privacy."""

from __future__ import annotations

__all__ = ["assignment", "gaussian", "mixture", "projection"]
