"""How a command that computes for a while asks for memory."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_KEPT: Final = 1 << 30


def keep_freed_memory() -> None:
    """From now on glibc keeps up to a gigabyte that was freed, for the next array.

    Usually it returns large blocks to the kernel at once and gets new pages for the next array,
    each of which the kernel clears: a tenth of a run's time. The peak is hardly larger. Other
    systems than Linux with glibc are left as they are.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(_MMAP_THRESHOLD, _KEPT)
    mallopt(_TRIM_THRESHOLD, _KEPT)
