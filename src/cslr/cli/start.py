"""The program's entry point: Ctrl-C while modules are being loaded gives no traceback either."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Load the command line and run it."""
    try:
        from cslr.cli.main import main as run
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)
    run()
