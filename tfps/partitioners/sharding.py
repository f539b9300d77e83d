"""How one variable is divided: its shards, as a value that prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tfps.partitioners.row_rule import Contiguous, RowRule, rows_per_shard
from tfps.partitioners.variable_spec import VariableSpec


@dataclass(frozen=True)
class Sharding:
    """A rule, and what it makes of a variable.

    Example:

    >>> sharding = Sharding(VariableSpec("table", (10, 8)), Contiguous(rows=10, shards=3))
    >>> sharding.shapes
    ((4, 8), (3, 8), (3, 8))
    >>> print(sharding)
    table (10, 8): 3 shards, contiguous
    """

    variable: VariableSpec
    rule: RowRule

    @classmethod
    def whole(cls, variable: VariableSpec) -> Sharding:
        """One shard: nothing is divided."""
        return cls(variable, Contiguous(variable.rows, 1))

    @property
    def shards(self) -> int:
        return self.rule.shards

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the shards."""
        if self.shards == 1:
            return (self.variable.shape,)
        return tuple((rows, *self.variable.shape[1:]) for rows in rows_per_shard(self.rule))

    def __str__(self) -> str:
        number = "1 shard" if self.shards == 1 else f"{self.shards} shards"
        return f"{self.variable.path} {self.variable.shape}: {number}, {self.rule}"


@runtime_checkable
class Partitioner(Protocol):
    """Decides how a variable is divided."""

    def divide(self, variable: VariableSpec, *, servers: int) -> Sharding:
        """The shards of a variable for so many servers."""
