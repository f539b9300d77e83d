"""The division of a variable into shards, and the interface of partitioners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tfps.partitioners.row_rule import Contiguous, RowRule, rows_per_shard
from tfps.partitioners.variable_spec import VariableSpec


@dataclass(frozen=True)
class Sharding:
    """A variable and the rule that divides its rows into shards; partitioners return it.

    Args:
        variable: the variable that is divided.
        rule: the rule, with as many rows as the variable.

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
        """Return a division into a single shard, which is the whole variable.

        Args:
            variable: the path, shape and dtype of the variable.
        """
        return cls(variable, Contiguous(variable.rows, 1))

    @property
    def shards(self) -> int:
        """The number of shards."""
        return self.rule.shards

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each shard, by its index."""
        if self.shards == 1:
            return (self.variable.shape,)
        return tuple((rows, *self.variable.shape[1:]) for rows in rows_per_shard(self.rule))

    def __str__(self) -> str:
        number = "1 shard" if self.shards == 1 else f"{self.shards} shards"
        return f"{self.variable.path} {self.variable.shape}: {number}, {self.rule}"


@runtime_checkable
class Partitioner(Protocol):
    """Decides how variables are divided; implement it for a partitioner of your own.

    Pass it as ``variable_partitioner`` of a `tfps.ParameterServerStrategy`.

    Example:

    >>> class Halves:
    ...     def divide(self, variable, *, servers):
    ...         shards = min(2, servers, variable.rows)
    ...         return Sharding(variable, Contiguous(variable.rows, shards))
    >>> print(Halves().divide(VariableSpec("kernel", (784, 128)), servers=4))
    kernel (784, 128): 2 shards, contiguous
    """

    def divide(self, variable: VariableSpec, *, servers: int) -> Sharding:
        """Return the division of a variable into shards.

        Args:
            variable: the path, shape and dtype of the variable.
            servers: the number of parameter servers.
        """
