"""The description of a variable that has no server yet."""

from __future__ import annotations

import math
from dataclasses import dataclass

ITEM_BYTES = {
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "bool": 1,
    "int8": 1, "uint8": 1, "int16": 2, "uint16": 2,
    "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
}  # fmt: skip


@dataclass(frozen=True)
class VariableSpec:
    """The path, shape and dtype of a variable, or of a shard, that has no server yet.

    Partitioners and placement policies get it as their argument. Its properties ``size_bytes``,
    ``row_bytes`` and ``item_bytes`` are sizes in bytes.

    Args:
        path: the Keras path, such as ``"mlp/dense/kernel"``.
        shape: the shape, fully known.
        dtype: the name of the dtype, such as ``"float32"``.
        rows_per_step: the number of rows that a step looks up; None: it reads all.

    Example:

    >>> VariableSpec("dense/kernel", (784, 128), "float16").size_bytes
    200704
    """

    path: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    rows_per_step: int | None = None

    @property
    def rows(self) -> int:
        """The length of the first axis; a scalar is one row."""
        return self.shape[0] if self.shape else 1

    @property
    def item_bytes(self) -> int:
        """The size of one item in bytes."""
        return ITEM_BYTES.get(self.dtype, 1)

    @property
    def size_bytes(self) -> int:
        """The size of the whole variable in bytes."""
        return math.prod(self.shape) * self.item_bytes

    @property
    def row_bytes(self) -> int:
        """The size of one row in bytes."""
        return math.prod(self.shape[1:]) * self.item_bytes
