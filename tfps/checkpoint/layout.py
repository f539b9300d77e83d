"""Find the rows of stored blocks that make up a wanted shard. Pure: NumPy.

A tensor is stored by shards: each in its own order of rows, cut into blocks. A reader asks for the
rows of a shard by its own rule, which may differ from the stored one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tfps.partitioners.row_rule import RowRule

Rows = range | np.ndarray[Any, Any]
Item = TypeVar("Item")


@dataclass(frozen=True)
class RowBlock:
    """Describes neighbouring rows of a stored shard.

    Args:
        tensor: the tensor's name.
        shard: the index of the shard.
        begin: the first row's index in the shard.
        rows: the number of rows.
    """

    tensor: str
    shard: int
    begin: int
    rows: int

    @property
    def key(self) -> str:
        """The name of the block in its file."""
        return f"{self.tensor}@{self.shard}+{self.begin}"

    @property
    def places(self) -> range:
        return range(self.begin, self.begin + self.rows)


@dataclass(frozen=True)
class RowMapping:
    """Maps rows of a stored block to rows of a wanted shard, one by one.

    Args:
        block: the stored block.
        source: rows of the block.
        target: rows of the shard, of the same number.
    """

    block: RowBlock
    source: Rows
    target: Rows

    @property
    def takes_all(self) -> bool:
        """Whether the whole block is taken, in its own order."""
        return isinstance(self.source, range) and self.source == range(self.block.rows)


def divide_into_blocks(
    *, tensor: str, shard: int, rows: int, rows_per_block: int
) -> list[RowBlock]:
    """Return the blocks of a shard; a shard without rows has one block without rows.

    Example:

    >>> [block.key for block in divide_into_blocks(tensor="a", shard=1, rows=5, rows_per_block=2)]
    ['a@1+0', 'a@1+2', 'a@1+4']
    """
    step = max(1, rows_per_block)
    return [
        RowBlock(tensor, shard, begin, min(step, rows - begin))
        for begin in range(0, max(1, rows), step)
    ]


def group_by_bytes(items: Iterable[tuple[Item, int]], *, limit_bytes: int) -> list[list[Item]]:
    """Group items up to a number of bytes; a larger item is alone in its group.

    Args:
        items: each with its size in bytes.
        limit_bytes: the limit of a group.

    Example:

    >>> group_by_bytes([("a", 3), ("b", 3), ("c", 9), ("d", 1)], limit_bytes=6)
    [['a', 'b'], ['c'], ['d']]
    """
    groups: list[list[Item]] = []
    filled_bytes = 0
    for item, size_bytes in items:
        if not groups or filled_bytes + size_bytes > limit_bytes:
            groups.append([])
            filled_bytes = 0
        groups[-1].append(item)
        filled_bytes += size_bytes
    return groups


def find_moves(
    blocks: Sequence[RowBlock], *, stored: RowRule, wanted: RowRule, shard: int
) -> Iterator[RowMapping]:
    """Yield the mappings that fill one shard from blocks; blocks without any of its rows have none.

    Args:
        blocks: all blocks of the stored tensor.
        stored: the rule of the stored tensor.
        wanted: the rule of the tensor that is filled, with the same number of rows.
        shard: the index of the filled shard.
    """
    for block in blocks:
        if stored == wanted:
            if block.shard == shard:
                yield RowMapping(block, range(block.rows), block.places)
            continue
        rows = logical_rows_at(stored, block.shard, block.places)
        source = np.flatnonzero(wanted.shard_of(rows) == shard)
        if len(source):
            target = np.asarray(wanted.place_of(rows[source]))
            yield RowMapping(block, _to_range_if_regular(source), _to_range_if_regular(target))


def logical_rows_at(rule: RowRule, shard: int, places: range) -> np.ndarray[Any, Any]:
    """Return the numbers that a range of a shard's rows have in the whole variable."""
    return rule.row_at(shard, np.arange(places.start, places.stop))


def _to_range_if_regular(rows: np.ndarray[Any, Any]) -> Rows:
    """Return rows at equal distances as a range, which takes no memory and no bytes in messages."""
    if len(rows) == 1:
        return range(int(rows[0]), int(rows[0]) + 1)
    steps = np.diff(rows)
    if steps[0] > 0 and (steps == steps[0]).all():
        return range(int(rows[0]), int(rows[-1]) + 1, int(steps[0]))
    return rows
