"""Batches of fixed shapes, in which a row's result depends on that row alone, bit for bit.

A matrix product of another size is summed in another order, and padding changes what is summed: in
ordinary batches the last bits of a vector depend on the texts beside it. Here a batch has rows of
equally many tokens, their number follows from the number of tokens alone (``rows_of``), free rows
repeat the first, and nothing is padded. The arithmetic of a row is then the same wherever it stands
and whatever stands beside it. A library or a device could still treat rows differently by their
place, so a model is tried once when it is loaded (``rows_are_independent``), and encodes texts one
by one if it does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import numpy as np

from cslr.arrays import FloatArray

__all__ = ["ROWS", "filled_batches", "rows_are_independent", "rows_of"]

ROWS: Final = 8
"""Rows of a batch of short texts. More gain little: they keep a core's matrix products busy."""

_Item = TypeVar("_Item")


def rows_of(length: int) -> int:
    """Rows of a batch of texts with so many tokens.

    Long texts gain less from company, and few of them have equally many tokens.
    """
    return ROWS if length <= 32 else ROWS // 2 if length <= 64 else ROWS // 4


def filled_batches(
    items: Sequence[_Item], lengths: Sequence[int], batched: bool
) -> Iterator[tuple[list[int], list[_Item]]]:
    """Indices of items of equal length, and those items with the first repeated in free rows.

    Shortest first, every index once; not ``batched``: one by one.
    """
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for index, length in enumerate(lengths):
        by_length[length].append(index)
    for length, group in sorted(by_length.items()):
        rows = rows_of(length) if batched else 1
        for start in range(0, len(group), rows):
            batch = group[start : start + rows]
            free = [batch[0]] * (rows - len(batch))
            yield batch, [items[index] for index in batch + free]


def rows_are_independent(
    encode: Callable[[list[_Item]], FloatArray], one: _Item, other: _Item
) -> bool:
    """Whether a batch gives ``one`` the same bits at every place and beside ``other`` too.

    ``encode`` takes ``ROWS`` items of equal length and returns an array with one entry for each.
    """
    alike = encode([one] * ROWS)
    same = alike[0].tobytes()
    if any(row.tobytes() != same for row in alike):
        return False
    mixed = [one if place % 3 == 0 else other for place in range(ROWS)]
    rows = encode(mixed)
    return all(rows[place].tobytes() == same for place in np.arange(0, ROWS, 3))
