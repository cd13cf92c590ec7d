"""Gaussians, mixtures, projections, shrinkage and assignments in NumPy; no I/O, no privacy."""
