"""What stands beside every method: a constant, label texts alone, pooled training."""
