"""Streams, the user's own rows, the hub, and the assignment of rows to simulated clients."""
