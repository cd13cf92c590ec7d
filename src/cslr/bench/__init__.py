"""Encoders, streams, methods and the runner that puts them together."""
