"""The partitioner that divides nothing: each variable lies on one server."""

from __future__ import annotations

from dataclasses import dataclass

from tfps.partitioners.sharding import Sharding
from tfps.partitioners.variable_spec import VariableSpec


@dataclass(frozen=True)
class Whole:
    """Leaves every variable whole, on one server; the default partitioner.

    Use it if the largest variable is small for a server, or in a `ByPath` for layers that must not
    be divided.

    Example:

    >>> print(Whole().divide(VariableSpec("kernel", (784, 128)), servers=4))
    kernel (784, 128): 1 shard, whole
    """

    def divide(self, variable: VariableSpec, *, servers: int) -> Sharding:
        return Sharding.whole(variable)
