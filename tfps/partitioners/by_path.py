"""Chooses partitioners by the paths of variables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tfps.by_path import PathRules
from tfps.partitioners.sharding import Partitioner, Sharding
from tfps.partitioners.variable_spec import VariableSpec
from tfps.partitioners.whole import Whole


@dataclass(frozen=True)
class ByPath(PathRules[Partitioner]):
    """Chooses the partitioner by the first pattern that is found in a variable's path.

    Use it to divide some variables, such as embedding tables, and to leave the others whole.

    Args:
        rules: partitioners by regular expression.
        otherwise: the partitioner of variables whose path matches no pattern.

    Raises:
        ConfigError: a pattern or a partitioner is invalid.

    Example:

    >>> from tfps.partitioners.row_spread import RowShuffle
    >>> partitioner = ByPath({"embedding/": RowShuffle()})
    >>> print(partitioner.divide(VariableSpec("model/embedding/embeddings", (1000, 8)), servers=2))
    model/embedding/embeddings (1000, 8): 2 shards, shuffle
    """

    otherwise: Partitioner = field(default_factory=Whole)

    def describe_expected(self, choice: Any, *, is_rule: bool) -> str:
        is_partitioner = not isinstance(choice, type) and isinstance(choice, Partitioner)
        return "" if is_partitioner else "a partitioner, such as tfps.partitioners.RowShuffle()"

    def divide(self, variable: VariableSpec, *, servers: int) -> Sharding:
        return self.found_in(variable.path)[1].divide(variable, servers=servers)
