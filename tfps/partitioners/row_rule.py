"""Which shard has a row of a variable, and where in it.

Pure arithmetic on int64, so that NumPy's arrays and TensorFlow's tensors go through the same lines.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tfps.errors import ConfigError

# A row times the multiplier of `Scattered` has to fit into 63 bits.
MOST_SCATTERED_ROWS = 3_000_000_000
GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


@runtime_checkable
class RowRule(Protocol):
    """Puts each row of a variable, known by its logical number, into one place of one shard."""

    @property
    def rows(self) -> int:
        """Of the variable."""

    @property
    def shards(self) -> int:
        """How many there are; each has one row at least."""

    def shard_of(self, rows: Any) -> Any:
        """The shard of each row."""

    def place_of(self, rows: Any) -> Any:
        """Which row of its shard each row is."""

    def row_at(self, shard: Any, places: Any) -> Any:
        """The logical number of what a shard holds at each place."""


def rows_of(rule: RowRule, shard: int) -> np.ndarray[Any, Any]:
    """The logical numbers of a shard's rows, in the order in which it holds them.

    Example:

    >>> rows_of(Modulo(rows=10, shards=3), 1)
    array([1, 4, 7])
    """
    rows: np.ndarray[Any, Any] = rule.row_at(shard, np.arange(rows_per_shard(rule)[shard]))
    return rows


def rows_per_shard(rule: RowRule) -> tuple[int, ...]:
    """How many rows each shard holds: as equal as can be, the first ones one more.

    Example:

    >>> rows_per_shard(Contiguous(rows=10, shards=3))
    (4, 3, 3)
    """
    least, rest = divmod(rule.rows, rule.shards)
    return tuple(least + (shard < rest) for shard in range(rule.shards))


@dataclass(frozen=True)
class _Division:
    """The rows of a variable among shards."""

    rows: int
    shards: int

    def __post_init__(self) -> None:
        if self.shards < 1:
            raise ConfigError(f"received {self.shards} shards, expected 1 at least")
        if self.shards > max(self.rows, 1):
            raise ConfigError(
                f"received {self.shards} shards of a variable with {self.rows} rows; expected at "
                "most as many shards as rows"
            )


@dataclass(frozen=True)
class Contiguous(_Division):
    """Neighbouring rows lie together, as in TensorFlow's partitioners.

    Example:

    >>> Contiguous(rows=10, shards=3).shard_of(np.arange(10))
    array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    """

    def __str__(self) -> str:
        return "contiguous" if self.shards > 1 else "whole"

    def begin_of(self, shards: Any) -> Any:
        """The first row of each shard."""
        least, longer = divmod(self.rows, self.shards)
        return shards * least + _smaller(shards, longer) if longer else shards * least

    def shard_of(self, rows: Any) -> Any:
        least, longer = divmod(self.rows, self.shards)
        if not longer:
            return rows // max(1, least)
        # As if all were as long as the first ones, or as if those were as short as the others.
        return _larger(rows // (least + 1), (rows - longer) // max(1, least))

    def place_of(self, rows: Any) -> Any:
        return rows - self.begin_of(self.shard_of(rows))

    def row_at(self, shard: Any, places: Any) -> Any:
        return self.begin_of(shard) + places


@dataclass(frozen=True)
class Modulo(_Division):
    """Row i lies on shard i mod n: the first rows are on all shards.

    For tables whose low numbers are asked for most, such as words by frequency.

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
class Scattered(_Division):
    """Rows are exchanged among each other by a fixed rule, then divided like `Contiguous`.

    Also evens out tables whose busy rows come in regular distances, which `Modulo` may put on one
    shard. The rule is row times m modulo the number of rows, with m near to its golden section and
    without a common divisor. So it is one to one, shards are as equal as can be, neighbours and
    regular distances are spread evenly, and no row has to be looked up in a table.

    Source: Fibonacci hashing, Knuth, "The Art of Computer Programming" 3, section 6.4.

    Example:

    >>> Scattered(rows=10, shards=3).shard_of(np.arange(10))
    array([0, 2, 1, 0, 2, 1, 0, 2, 1, 0])
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows > MOST_SCATTERED_ROWS:
            raise ConfigError(
                f"a variable of {self.rows} rows is to be scattered; expected at most "
                f"{MOST_SCATTERED_ROWS}. Take tfps.partitioners.RowModulo for it."
            )

    def __str__(self) -> str:
        return "hash"

    @functools.cached_property
    def multiplier(self) -> int:
        """Without a common divisor with the number of rows; one shard holds them in order."""
        if self.shards == 1:
            return 1
        near = max(1, round(self.rows * GOLDEN_RATIO))
        return next(m for m in range(near, near + self.rows + 1) if math.gcd(m, self.rows) == 1)

    @functools.cached_property
    def _divided(self) -> Contiguous:
        return Contiguous(self.rows, self.shards)

    def shard_of(self, rows: Any) -> Any:
        return self._divided.shard_of(rows * self.multiplier % self.rows)

    def place_of(self, rows: Any) -> Any:
        return self._divided.place_of(rows * self.multiplier % self.rows)

    def row_at(self, shard: Any, places: Any) -> Any:
        inverse = pow(self.multiplier, -1, self.rows) if self.rows > 1 else 0
        return self._divided.row_at(shard, places) * inverse % max(1, self.rows)


RULES: dict[str, type[Any]] = {
    "contiguous": Contiguous,
    "modulo": Modulo,
    "scattered": Scattered,
}


def rule_name(rule: RowRule) -> str:
    """What manifests and records call a rule.

    Raises:
        ValueError: it is none of these.
    """
    for name, kind in RULES.items():
        if type(rule) is kind:
            return name
    raise ValueError(f"received the row rule {rule!r}, expected one of {', '.join(RULES)}")


def _larger(one: Any, other: Any) -> Any:
    return (one + other + abs(one - other)) // 2


def _smaller(one: Any, other: Any) -> Any:
    return (one + other - abs(one - other)) // 2
