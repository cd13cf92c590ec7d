"""Damage to a file, and whether it was noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cslr.errors import CslrError


def truncations(content: bytes, most: int = 10**9) -> Iterator[tuple[str, bytes]]:
    """The file cut at every length, or at ``most`` of them."""
    for length in places(len(content), most):
        yield f"cut to {length} bytes", content[:length]


def flips(content: bytes, most: int = 10**9) -> Iterator[tuple[str, bytes]]:
    """One bit flipped in every byte, or in ``most`` of them; which bit is drawn."""
    rng = np.random.default_rng(len(content))
    for place in places(len(content), most):
        bit = int(rng.integers(8))
        damaged = bytearray(content)
        damaged[place] ^= 1 << bit
        yield f"bit {bit} of byte {place} flipped", bytes(damaged)


def places(count: int, most: int) -> list[int]:
    """All of ``count``, or ``most`` of them: the first, the last, and a seeded sample."""
    if count <= most:
        return list(range(count))
    drawn = np.random.default_rng(count).choice(count, size=most - 2, replace=False)
    return sorted({0, count - 1, *drawn.tolist()})


def unnoticed(
    path: Path,
    damages: Sequence[tuple[str, bytes]],
    read: Callable[[], Any],
    tolerated: Callable[[bytes, Any], bool] = lambda damaged, found: False,
) -> list[str]:
    """Damages after which ``read`` neither refuses nor says what it says of the sound file.

    tolerated: whether what was found is all right, though it differs from the sound answer.
    """
    content = path.read_bytes()
    sound = read()
    wrong = []
    for name, damaged in damages:
        path.write_bytes(damaged)
        try:
            found = read()
        except CslrError:
            continue
        except Exception as error:
            wrong.append(f"{path.name}, {name}: {type(error).__name__} {error}")
        else:
            if found != sound and not tolerated(damaged, found):
                wrong.append(f"{path.name}, {name}: another answer")
        finally:
            path.write_bytes(content)
    return wrong


def told(wrong: Sequence[str], of: int) -> str:
    """A figure for the card."""
    return f"{of - len(wrong):,} of {of:,} detected or harmless"


def by_file(wrong: Sequence[str]) -> dict[str, int]:
    """How many damages of each file went unnoticed."""
    return dict(Counter(text.split(",")[0] for text in wrong))
