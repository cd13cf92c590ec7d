"""The rows of a file, one at a time, as they stand in it."""
