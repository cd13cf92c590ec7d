"""Batches of fixed shapes, in which a row's result depends on that row alone, bit for bit.

A matrix product of another size is summed in another order, and padding changes what is summed: in
ordinary batches the last bits of a vector depend on the other texts. Here all rows of a batch have
equally many tokens, the number of rows follows from the number of tokens alone (``rows_of``),
unused rows repeat the first, and nothing is padded. The arithmetic of a row is then the same at any
position and with any other rows. A library or a device could still treat rows differently by their
position, so a model is tested once when it is loaded (``rows_are_independent``); if it fails, texts
are encoded one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from cslr.arrays import FloatArray

__all__ = ["ROWS", "filled_batches", "rows_are_independent", "rows_of"]

ROWS: Final = 8
"""Rows of a batch of short texts; larger batches are hardly faster."""

_Item = TypeVar("_Item")


def rows_of(length: int) -> int:
    """Rows of a batch of texts with so many tokens.

    Long texts gain less from batching, and few of them have equally many tokens.
    """
    return ROWS if length <= 32 else ROWS // 2 if length <= 64 else ROWS // 4


def filled_batches(
    items: Sequence[_Item], lengths: Sequence[int], batched: bool
) -> Iterator[tuple[list[int], list[_Item]]]:
    """Batches of items of equal length: their indices, and the items, filled up with the first.

    Shortest first, every index once. If not ``batched``, each batch is one item.
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
    """Whether ``one`` gets the same bits at every position of a batch, also next to ``other``.

    ``encode`` takes ``ROWS`` items of equal length and returns an array with one entry for each.
    """
    alike = encode([one] * ROWS)
    same = alike[0].tobytes()
    if any(row.tobytes() != same for row in alike):
        return False
    mixed = [one if place % 3 == 0 else other for place in range(ROWS)]
    rows = encode(mixed)
    return all(rows[place].tobytes() == same for place in range(0, ROWS, 3))
