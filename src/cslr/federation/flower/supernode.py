"""Flower's SuperNode, polling for messages twice a second instead of every three seconds.

    python -m cslr.federation.flower.supernode OPTIONS     # those of flower-supernode

A release takes three exchanges, and each of them waits for one or two polls on every node.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final

__all__ = ["PAUSE", "main"]

PAUSE: Final = 0.5
"""The most seconds between two polls."""


def main() -> None:
    """Run it in this process; Flower reads its options from the command line."""
    loop: Any = import_module("flwr.supernode.start_client_internal")
    loop.time = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, PAUSE)))
    sys.exit(import_module("flwr.supernode.cli").flower_supernode())


if __name__ == "__main__":
    main()
