"""Experiments: files that say which cells to run, and the program that runs them.

grid     an experiment file becomes cells: configurations with one seed and a name each
places   where finished traces, unfinished work and failures lie
cell     one cell, from its own trace where it was begun before
outdated finished traces that were made with other defaults
pool     many cells on a few processes; what fails is kept apart

Importing these loads no NumPy: a worker settles its number of threads before NumPy is there.
"""
