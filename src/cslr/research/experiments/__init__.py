"""Experiments: files that list cells, and the program that runs them.

grid     an experiment file becomes cells: configurations with one seed and a name each
places   paths of finished traces, unfinished work and failures
cell     runs one cell, or resumes it from its trace
outdated finished traces that were made with other defaults
pool     runs many cells on a few processes; failures are recorded separately

Importing these loads no NumPy: a worker sets its number of threads before NumPy is imported.
"""
