"""Results one can look at."""
