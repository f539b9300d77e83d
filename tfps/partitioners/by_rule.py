"""Another partitioner for some of the variables, by their paths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfps.errors import ConfigError
from tfps.partitioners.sharding import Parameter, Partitioner, Sharding
from tfps.partitioners.whole import Whole


@dataclass(frozen=True)
class ByRule:
    """The first pattern that is found in a variable's path decides.

    Args:
        rules: a regular expression to a partitioner.
        otherwise: for variables in whose path no pattern is found.

    Raises:
        ConfigError: no regular expressions, or no partitioners.

    Example:

    >>> from tfps.partitioners.row_spread import RowHash
    >>> partitioner = ByRule({"embedding/": RowHash()})
    >>> print(partitioner.divide(Parameter("model/embedding/embeddings", (1000, 8)), servers=2))
    model/embedding/embeddings (1000, 8): 2 shards, hash
    """

    rules: Mapping[str, Partitioner]
    otherwise: Partitioner = field(default_factory=Whole)

    def __post_init__(self) -> None:
        problems = [p for rule in self.rules.items() for p in _problems(*rule)]
        problems += _problems("", self.otherwise, name="otherwise")
        if problems:
            raise ConfigError(problems, source="ByRule")

    def divide(self, parameter: Parameter, *, servers: int) -> Sharding:
        chosen = next(
            (each for rule, each in self.rules.items() if re.search(rule, parameter.path)),
            self.otherwise,
        )
        return chosen.divide(parameter, servers=servers)


def _problems(rule: str, partitioner: Any, *, name: str | None = None) -> list[str]:
    name, problems = name or repr(rule), []
    try:
        re.compile(rule)
    except re.error as error:
        problems.append(f"{name}: received no regular expression ({error}), expected one")
    if isinstance(partitioner, type) or not isinstance(partitioner, Partitioner):
        problems.append(
            f"{name}: received {partitioner!r}, expected a partitioner, such as "
            "tfps.partitioners.RowHash()"
        )
    return problems
