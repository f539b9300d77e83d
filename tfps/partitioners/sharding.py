"""How one variable is divided: its shards, as a value that prints."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tfps.partitioners.row_rule import Contiguous, RowRule, rows_per_shard


@dataclass(frozen=True)
class Parameter:
    """A variable before it lies anywhere.

    Args:
        path: of Keras, such as ``"sequential/dense/kernel"``.
        shape: fully known.
        item_bytes: of one number.
        rows_per_step: how many rows a step asks for, where it asks for rows only; None: for all.
    """

    path: str
    shape: tuple[int, ...]
    item_bytes: int = 4
    rows_per_step: int | None = None

    @property
    def rows(self) -> int:
        """Length of the first axis; a scalar is one row."""
        return self.shape[0] if self.shape else 1

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.item_bytes

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.item_bytes


@dataclass(frozen=True)
class Sharding:
    """A rule, and what it makes of a parameter.

    Example:

    >>> sharding = Sharding(Parameter("table", (10, 8)), Contiguous(rows=10, shards=3))
    >>> sharding.shapes
    ((4, 8), (3, 8), (3, 8))
    >>> print(sharding)
    table (10, 8): 3 shards, contiguous
    """

    parameter: Parameter
    rule: RowRule

    @classmethod
    def whole(cls, parameter: Parameter) -> Sharding:
        """One shard: nothing is divided."""
        return cls(parameter, Contiguous(parameter.rows, 1))

    @property
    def shards(self) -> int:
        return self.rule.shards

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the shards."""
        if self.shards == 1:
            return (self.parameter.shape,)
        return tuple((rows, *self.parameter.shape[1:]) for rows in rows_per_shard(self.rule))

    def __str__(self) -> str:
        number = "1 shard" if self.shards == 1 else f"{self.shards} shards"
        return f"{self.parameter.path} {self.parameter.shape}: {number}, {self.rule}"


@runtime_checkable
class Partitioner(Protocol):
    """Decides how a variable is divided."""

    def divide(self, parameter: Parameter, *, servers: int) -> Sharding:
        """The shards of a variable for so many servers."""
