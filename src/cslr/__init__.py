"""CSLR: private federated continual learning over text."""

__version__ = "0.1.0"
