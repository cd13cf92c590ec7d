"""A configuration becomes a run directory: prepare, learn, score, resume, predict."""
