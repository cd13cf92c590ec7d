"""The paper's protocol exactly as written: full lists, ids by the server, sums read as written."""
