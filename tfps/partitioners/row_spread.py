"""Partitioners for tables: rows that are asked for often do not lie on one shard."""

from __future__ import annotations

from dataclasses import dataclass

from tfps.errors import ConfigError
from tfps.partitioners.counts import refuse_no_counts
from tfps.partitioners.row_rule import Modulo, Scattered
from tfps.partitioners.sharding import Sharding
from tfps.partitioners.variable_spec import VariableSpec

OPTIONAL = frozenset({"shards"})


@dataclass(frozen=True)
class RowModulo:
    """Row i goes to shard i mod n.

    For tables whose low numbers are asked for most, such as words by frequency: with neighbouring
    rows together they would all be on the first server.

    Args:
        shards: how many; None: as many as there are servers.

    Raises:
        ConfigError: no whole number from 1; when it divides, more shards than rows.

    Example:

    >>> print(RowModulo().divide(VariableSpec("table", (1000, 8)), servers=4))
    table (1000, 8): 4 shards, modulo
    """

    shards: int | None = None

    def __post_init__(self) -> None:
        refuse_no_counts(optional=OPTIONAL, shards=self.shards)

    def divide(self, variable: VariableSpec, *, servers: int) -> Sharding:
        shards = _shards(self.shards, variable, servers=servers)
        return Sharding(variable, Modulo(variable.rows, shards))


@dataclass(frozen=True)
class RowHash:
    """Rows are scattered over the shards by a fixed rule.

    As `RowModulo`, and also for tables in which the busy rows have regular distances, such as the
    first row of every country.

    Args:
        shards: how many; None: as many as there are servers.

    Raises:
        ConfigError: no whole number from 1; when it divides, more shards than rows.

    Example:

    >>> print(RowHash(2).divide(VariableSpec("table", (1000, 8)), servers=4))
    table (1000, 8): 2 shards, hash
    """

    shards: int | None = None

    def __post_init__(self) -> None:
        refuse_no_counts(optional=OPTIONAL, shards=self.shards)

    def divide(self, variable: VariableSpec, *, servers: int) -> Sharding:
        shards = _shards(self.shards, variable, servers=servers)
        return Sharding(variable, Scattered(variable.rows, shards))


def _shards(asked: int | None, variable: VariableSpec, *, servers: int) -> int:
    if asked is None:
        return max(1, min(servers, variable.rows))
    if asked > variable.rows:
        raise ConfigError(
            f"{variable.path}: received shards={asked} for a variable of shape "
            f"{variable.shape}, expected at most its {variable.rows} rows. Leave shards out, or "
            "take tfps.partitioners.ByPath to divide large tables only"
        )
    return asked
