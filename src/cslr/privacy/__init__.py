"""Clipping, sums, noise and privacy accounting. Loads without torch."""
