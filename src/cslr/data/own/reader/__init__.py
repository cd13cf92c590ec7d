"""Reading the rows of a file, one at a time."""
