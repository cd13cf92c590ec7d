"""Experiments, and diagnostics of the paper's theory."""
