"""The paper's protocol to the letter: full lists, names by the server, sums read as written."""
