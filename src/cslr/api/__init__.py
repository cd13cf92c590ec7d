"""The Python entry: from texts or embeddings to a private head, in one call.

``learn`` trains a model and ``load`` reads one from disk; both return a ``Model``.
"""

from cslr.api.entry import learn
from cslr.api.model import Model, load

__all__ = ["Model", "learn", "load"]
