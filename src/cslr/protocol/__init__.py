"""Algorithm 1 of the paper: ``round.py`` combines the steps ``step1`` … ``step5``."""
