"""The front door: from texts or embeddings to a private head, in one call.

``learn`` learns and ``load`` reads what was learnt; both give a ``Model``.
"""

from cslr.api.entry import learn
from cslr.api.model import Model, load

__all__ = ["Model", "learn", "load"]
