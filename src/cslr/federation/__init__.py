"""Where clients live: in this process, or at the other end of a wire."""
