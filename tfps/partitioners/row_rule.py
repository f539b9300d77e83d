"""Rules that map each row of a variable to a shard and a place in it.

They are pure arithmetic on int64, so that they work for NumPy's arrays and TensorFlow's tensors.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tfps.errors import ConfigError

# A row times the multiplier of `ShuffledRows` has to fit into 63 bits.
MAX_SHUFFLED_ROWS = 3_000_000_000
GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


@runtime_checkable
class RowRule(Protocol):
    """Maps each row of a variable to a shard and a place in it; the interface of row rules.

    Rows are given by their logical numbers: their positions along the first axis of the whole
    variable. The methods take and return integers, NumPy arrays or TensorFlow tensors of int64, of
    any shape. Every shard has nearly the same number of rows. `tfps.partitioners.Sharding` holds a
    rule; `Contiguous`, `Modulo` and `ShuffledRows` are the rules that exist.

    Example:

    >>> rule = Modulo(rows=10, shards=3)
    >>> int(rule.shard_of(7)), int(rule.place_of(7)), int(rule.row_at(1, 2))
    (1, 2, 7)
    """

    @property
    def rows(self) -> int:
        """The number of rows of the variable."""

    @property
    def shards(self) -> int:
        """The number of shards; each has at least one row."""

    def shard_of(self, rows: Any) -> Any:
        """Return the index of the shard that holds each row.

        Args:
            rows: logical numbers of rows.
        """

    def place_of(self, rows: Any) -> Any:
        """Return the position of each row within its shard.

        Args:
            rows: logical numbers of rows.
        """

    def row_at(self, shard: Any, places: Any) -> Any:
        """Return the logical number of a shard's row at each place; inverts the other methods.

        Args:
            shard: the index of a shard.
            places: positions within this shard.
        """


def rows_of(rule: RowRule, shard: int) -> np.ndarray[Any, Any]:
    """Return the numbers that a shard's rows have in the whole variable, in the shard's order.

    Example:

    >>> rows_of(Modulo(rows=10, shards=3), 1)
    array([1, 4, 7])
    """
    rows: np.ndarray[Any, Any] = rule.row_at(shard, np.arange(rows_per_shard(rule)[shard]))
    return rows


def rows_per_shard(rule: RowRule) -> tuple[int, ...]:
    """Return the number of rows of each shard; the first shards may have one more than the others.

    Example:

    >>> rows_per_shard(Contiguous(rows=10, shards=3))
    (4, 3, 3)
    """
    least, rest = divmod(rule.rows, rule.shards)
    return tuple(least + (shard < rest) for shard in range(rule.shards))


@dataclass(frozen=True)
class _Division:
    """The base class of row rules: a number of rows, divided into a number of shards."""

    rows: int
    shards: int

    def __post_init__(self) -> None:
        if self.shards < 1:
            raise ConfigError(f"shards: received {self.shards}, expected 1 or more")
        if self.shards > max(self.rows, 1):
            raise ConfigError(
                f"shards: received {self.shards} for a variable with {self.rows} rows, expected "
                "at most one shard for each row"
            )


@dataclass(frozen=True)
class Contiguous(_Division):
    """A rule that keeps neighbouring rows in one shard, as TensorFlow's partitioners do.

    Use it for variables whose rows all take part in each step, such as kernels. If a step looks up
    some rows, and the frequent ones are neighbours, `ShuffledRows` divides the load more evenly.

    Args:
        rows: the number of rows of the variable.
        shards: the number of shards, at most one per row.

    Raises:
        ConfigError: there are fewer rows than shards, or no shards.

    Example:

    >>> Contiguous(rows=10, shards=3).shard_of(np.arange(10))
    array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    """

    def __str__(self) -> str:
        return "contiguous" if self.shards > 1 else "whole"

    def begin_of(self, shards: Any) -> Any:
        """Return the first row of each shard.

        Args:
            shards: indices of shards, integers.
        """
        least, longer = divmod(self.rows, self.shards)
        return shards * least + _smaller(shards, longer) if longer else shards * least

    def shard_of(self, rows: Any) -> Any:
        least, longer = divmod(self.rows, self.shards)
        if not longer:
            return rows // max(1, least)
        # As if all shards were as long as the first ones, or as short as the others.
        return _larger(rows // (least + 1), (rows - longer) // max(1, least))

    def place_of(self, rows: Any) -> Any:
        return rows - self.begin_of(self.shard_of(rows))

    def row_at(self, shard: Any, places: Any) -> Any:
        return self.begin_of(shard) + places


@dataclass(frozen=True)
class Modulo(_Division):
    """A rule that maps row i to shard i mod n, so that the first rows are on different shards.

    Use it for tables whose low rows are looked up most, such as words by frequency.

    Args:
        rows: the number of rows of the variable.
        shards: the number of shards, at most one per row.

    Raises:
        ConfigError: there are fewer rows than shards, or no shards.

    Example:

    >>> Modulo(rows=10, shards=3).shard_of(np.arange(6))
    array([0, 1, 2, 0, 1, 2])
    """

    def __str__(self) -> str:
        return "modulo"

    def shard_of(self, rows: Any) -> Any:
        return rows % self.shards

    def place_of(self, rows: Any) -> Any:
        return rows // self.shards

    def row_at(self, shard: Any, places: Any) -> Any:
        return places * self.shards + shard


@dataclass(frozen=True)
class ShuffledRows(_Division):
    """A rule that permutes the rows, always in the same way, and divides them like `Contiguous`.

    Use it for tables whose busy rows have regular distances, which `Modulo` may put on one shard.
    The rule is row times m modulo the number of rows, with m near its golden section and without a
    common divisor. So it is one to one, shards are as equal as possible, neighbours and regular
    distances are spread evenly, and no table of rows is needed.

    Source: Fibonacci hashing, Knuth, "The Art of Computer Programming" 3, section 6.4.

    Args:
        rows: the number of rows of the variable.
        shards: the number of shards, at most one per row.

    Raises:
        ConfigError: there are fewer rows than shards, no shards, or more than 3 billion rows.

    Example:

    >>> ShuffledRows(rows=10, shards=3).shard_of(np.arange(10))
    array([0, 2, 1, 0, 2, 1, 0, 2, 1, 0])
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows > MAX_SHUFFLED_ROWS:
            raise ConfigError(
                f"rows: received {self.rows}, expected at most {MAX_SHUFFLED_ROWS} for shuffled "
                "rows; use tfps.partitioners.RowModulo"
            )

    def __str__(self) -> str:
        return "shuffle"

    @functools.cached_property
    def multiplier(self) -> int:
        """The multiplier of row numbers, coprime to the number of rows; 1 for one shard."""
        if self.shards == 1:
            return 1
        near = max(1, round(self.rows * GOLDEN_RATIO))
        return next(m for m in range(near, near + self.rows + 1) if math.gcd(m, self.rows) == 1)

    @functools.cached_property
    def _contiguous_rule(self) -> Contiguous:
        return Contiguous(self.rows, self.shards)

    def shard_of(self, rows: Any) -> Any:
        return self._contiguous_rule.shard_of(rows * self.multiplier % self.rows)

    def place_of(self, rows: Any) -> Any:
        return self._contiguous_rule.place_of(rows * self.multiplier % self.rows)

    def row_at(self, shard: Any, places: Any) -> Any:
        inverse = pow(self.multiplier, -1, self.rows) if self.rows > 1 else 0
        return self._contiguous_rule.row_at(shard, places) * inverse % max(1, self.rows)


# By the names in manifests and records, which stay as they are: older checkpoints have them.
RULES: dict[str, type[Any]] = {
    "contiguous": Contiguous,
    "modulo": Modulo,
    "scattered": ShuffledRows,
}


def rule_name(rule: RowRule) -> str:
    """Return the name of a rule in manifests and records.

    Raises:
        ValueError: it is another rule.
    """
    for name, kind in RULES.items():
        if type(rule) is kind:
            return name
    raise ValueError(f"row rule: received {rule!r}, expected one of {', '.join(RULES)}")


def _larger(one: Any, other: Any) -> Any:
    return (one + other + abs(one - other)) // 2


def _smaller(one: Any, other: Any) -> Any:
    return (one + other - abs(one - other)) // 2
