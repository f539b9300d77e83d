"""Which rows of stored blocks make up which rows of a wanted shard. Pure: NumPy.

A tensor is stored as its shards were: each in its own order of rows, cut into blocks. Whoever reads
it asks for the rows of a shard of its own, by the rule of its own.
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
    """Neighbouring rows of a stored shard, in the shard's order.

    Args:
        tensor: the tensor's name.
        shard: which shard of it.
        begin: the first row's place in the shard.
        rows: how many.
    """

    tensor: str
    shard: int
    begin: int
    rows: int

    @property
    def key(self) -> str:
        """What the block is called in its file."""
        return f"{self.tensor}@{self.shard}+{self.begin}"

    @property
    def places(self) -> range:
        return range(self.begin, self.begin + self.rows)


@dataclass(frozen=True)
class Move:
    """Rows of a block that become rows of a shard, one by one.

    Args:
        block: the stored one.
        source: rows of the block.
        target: rows of the shard, as many.
    """

    block: RowBlock
    source: Rows
    target: Rows

    @property
    def takes_all(self) -> bool:
        """Whether the whole block is taken, in its own order."""
        return isinstance(self.source, range) and self.source == range(self.block.rows)


def blocks_of(*, tensor: str, shard: int, rows: int, rows_per_block: int) -> list[RowBlock]:
    """The blocks of a shard; one without rows has a block without rows.

    Example:

    >>> [block.key for block in blocks_of(tensor="a", shard=1, rows=5, rows_per_block=2)]
    ['a@1+0', 'a@1+2', 'a@1+4']
    """
    step = max(1, rows_per_block)
    return [
        RowBlock(tensor, shard, begin, min(step, rows - begin))
        for begin in range(0, max(1, rows), step)
    ]


def together(items: Iterable[tuple[Item, int]], *, limit_bytes: int) -> list[list[Item]]:
    """Items in groups of so many bytes at most; one that is larger is alone.

    Args:
        items: each with its size in bytes.
        limit_bytes: of a group.

    Example:

    >>> together([("a", 3), ("b", 3), ("c", 9), ("d", 1)], limit_bytes=6)
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


def moves(
    blocks: Sequence[RowBlock], *, stored: RowRule, wanted: RowRule, shard: int
) -> Iterator[Move]:
    """What to read for one shard; blocks that have none of its rows are left out.

    Args:
        blocks: of the stored tensor, all of them.
        stored: the rule by which they lie.
        wanted: the rule of the tensor that is filled; of as many rows.
        shard: the shard of it.
    """
    for block in blocks:
        if stored == wanted:
            if block.shard == shard:
                yield Move(block, range(block.rows), block.places)
            continue
        rows = rows_at(stored, block.shard, block.places)
        source = np.flatnonzero(wanted.shard_of(rows) == shard)
        if len(source):
            target = np.asarray(wanted.place_of(rows[source]))
            yield Move(block, _regular(source), _regular(target))


def rows_at(rule: RowRule, shard: int, places: range) -> np.ndarray[Any, Any]:
    """The logical numbers of what a shard holds at some places."""
    return rule.row_at(shard, np.arange(places.start, places.stop))


def _regular(rows: np.ndarray[Any, Any]) -> Rows:
    """Rows at equal distances as a range, which costs nothing to keep and to send."""
    if len(rows) == 1:
        return range(int(rows[0]), int(rows[0]) + 1)
    steps = np.diff(rows)
    if steps[0] > 0 and (steps == steps[0]).all():
        return range(int(rows[0]), int(rows[-1]) + 1, int(steps[0]))
    return rows
