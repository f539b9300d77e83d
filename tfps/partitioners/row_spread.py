"""Partitioners for tables, which spread the rows that are looked up most over all shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tfps.errors import ConfigError
from tfps.partitioners.counts import Counts
from tfps.partitioners.row_rule import Modulo, ShuffledRows
from tfps.partitioners.sharding import Sharding
from tfps.partitioners.variable_spec import VariableSpec


@dataclass(frozen=True)
class _RowSpread(Counts):
    """Divides every variable by one rule."""

    shards: int | None = None
    rule: ClassVar[type[Modulo | ShuffledRows]]

    def divide(self, variable: VariableSpec, *, servers: int) -> Sharding:
        shards = self.shards
        if shards is None:
            shards = max(1, min(servers, variable.rows))
        elif shards > variable.rows:
            raise ConfigError(
                f"{variable.path}: received shards={shards} for a variable of shape "
                f"{variable.shape}, expected at most its {variable.rows} rows; leave shards out, "
                "or divide only large tables with tfps.partitioners.ByPath"
            )
        return Sharding(variable, self.rule(variable.rows, shards))


@dataclass(frozen=True)
class RowModulo(_RowSpread):
    """Divides a table by rows: row i goes to shard i mod n.

    Use it for tables whose low rows are looked up most, such as words by frequency: with
    neighbouring rows together they would all be on the first server.

    Args:
        shards: the number of shards; None: the number of servers.

    Raises:
        ConfigError: ``shards`` is not a whole number from 1; or, when it divides, is larger than
            the number of rows.

    Example:

    >>> print(RowModulo().divide(VariableSpec("table", (1000, 8)), servers=4))
    table (1000, 8): 4 shards, modulo
    """

    rule = Modulo


@dataclass(frozen=True)
class RowShuffle(_RowSpread):
    """Divides a table by rows, which a fixed rule shuffles over the shards.

    Use it as `RowModulo`, and for tables whose busy rows have regular distances, such as the first
    row of every country.

    Args:
        shards: the number of shards; None: the number of servers.

    Raises:
        ConfigError: ``shards`` is not a whole number from 1; or, when it divides, is larger than
            the number of rows.

    Example:

    >>> print(RowShuffle(2).divide(VariableSpec("table", (1000, 8)), servers=4))
    table (1000, 8): 2 shards, shuffle
    """

    rule = ShuffledRows
