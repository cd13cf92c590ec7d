"""Parse a row of a file into a row of the data set, or report what is wrong with it."""
