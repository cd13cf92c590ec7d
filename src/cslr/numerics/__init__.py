"""Gaussians, mixtures, projections, shrinkage and assignments in NumPy; no I/O, no privacy."""

from __future__ import annotations

__all__ = ["assignment", "gaussian", "mixture", "projection", "shrinkage"]
