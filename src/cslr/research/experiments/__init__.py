"""Experiments: files that list cells, and the code that runs them.

grid         an experiment file becomes cells: configurations with one seed and a name each
first_names  the names that settings had when the first cells were named
places       paths of finished traces, unfinished work and failures
cell         runs one cell, or resumes it from its trace
fingerprint  which code and which embeddings a trace was made with
outdated     finished traces that were made with other defaults
pool         runs many cells on a few processes; failures are recorded separately
recheck      runs finished cells again and compares them with their traces

``grid``, ``places`` and ``pool`` do not import NumPy: a worker sets its number of threads first.
"""
