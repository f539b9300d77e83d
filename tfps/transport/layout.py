"""Compute the positions of tensors in a packed payload. Pure: no TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tfps.partitioners.variable_spec import ITEM_BYTES
from tfps.placement.slab import padded_items


@dataclass(frozen=True)
class Segment:
    """The position of one tensor in a payload."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset_items: int  # the index of its first item in the block of its dtype

    @property
    def items(self) -> int:
        return math.prod(self.shape)

    @property
    def padded_items(self) -> int:
        return padded_items(self.items, self.dtype)


@dataclass(frozen=True)
class Block:
    """All segments of one dtype, one after the other."""

    dtype: str
    offset_bytes: int  # where the block begins in the payload
    segments: tuple[Segment, ...]

    @property
    def items(self) -> int:
        return sum(segment.padded_items for segment in self.segments)

    @property
    def size_bytes(self) -> int:
        return self.items * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Layout:
    """The layout of a payload: one block per dtype, in which each tensor is aligned to 64 bytes.

    Example:

    >>> layout = Layout.from_entries([("kernel", "float32", (3, 2)), ("count", "int64", ())])
    >>> layout.size_bytes
    128
    >>> [segment.name for block in layout.blocks for segment in block.segments]
    ['kernel', 'count']
    """

    blocks: tuple[Block, ...]
    names: tuple[str, ...]

    @classmethod
    def from_entries(cls, entries: Iterable[tuple[str, str, tuple[int, ...]]]) -> Layout:
        """Return the layout of (name, dtype, shape) entries; keeps their order within each dtype.

        Raises:
            ValueError: a dtype cannot be packed, or a name appears twice.
        """
        entries = [(name, dtype, tuple(shape)) for name, dtype, shape in entries]
        names = tuple(name for name, _, _ in entries)
        if len(set(names)) != len(names):
            repeated = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"names: received {repeated} twice, expected unique names")
        blocks: list[Block] = []
        offset_bytes = 0
        for dtype in dict.fromkeys(dtype for _, dtype, _ in entries):
            if dtype not in ITEM_BYTES:
                raise ValueError(f"dtype: received {dtype!r}, expected one of {sorted(ITEM_BYTES)}")
            segments: list[Segment] = []
            offset_items = 0
            for name, entry_dtype, shape in entries:
                if entry_dtype == dtype:
                    segment = Segment(name, dtype, shape, offset_items)
                    segments.append(segment)
                    offset_items += segment.padded_items
            block = Block(dtype, offset_bytes, tuple(segments))
            blocks.append(block)
            offset_bytes += block.size_bytes
        return cls(tuple(blocks), names)

    @property
    def size_bytes(self) -> int:
        return sum(block.size_bytes for block in self.blocks)

    def __len__(self) -> int:
        return len(self.names)
