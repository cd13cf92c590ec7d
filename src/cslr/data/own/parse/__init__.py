"""From a row of a file to a row of the data set, or to what is wrong with it."""
