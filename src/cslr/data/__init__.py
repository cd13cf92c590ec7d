"""Streams, one's own rows, the hub, and which simulated client holds what."""
