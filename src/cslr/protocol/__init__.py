"""Algorithm 1 of the paper: ``round.py`` is the page, ``step1`` … ``step5`` its lines."""
