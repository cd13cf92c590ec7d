"""A disk that fails at a chosen moment."""

from __future__ import annotations


class Crash(Exception):
    pass


class BreaksAt:
    """A disk that fails when this result should be made safe."""

    def __init__(self, drawer, label):
        self.drawer, self.label = drawer, label

    def load(self, label):
        return self.drawer.load(label)

    def save(self, label, vector):
        if label == self.label:
            raise Crash
        self.drawer.save(label, vector)
