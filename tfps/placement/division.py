"""Divides the variables of a program into shards. Pure: no TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tfps.partitioners.row_rule import rows_per_shard
from tfps.partitioners.sharding import Partitioner, Sharding
from tfps.placement.forecast import PlannedVariable


def divide_variables(
    variables: Sequence[PlannedVariable], partitioner: Partitioner, *, servers: int
) -> list[PlannedVariable]:
    """Return the shards of all variables; slots of the same shape are divided like their weight.

    Only trainable weights are divided, those of frozen layers included: other variables are small,
    or of another shape.

    Args:
        variables: the variables of a program.
        partitioner: divides each variable.
        servers: the number of servers.

    Example:

    >>> from tfps.partitioners import RowModulo
    >>> kernel = PlannedVariable("table", (5, 2), "float32", is_pulled=True, is_trained=True)
    >>> slot = PlannedVariable("table_momentum", (5, 2), "float32", owner=0)
    >>> shards = divide_variables([kernel, slot], RowModulo(), servers=2)
    >>> [(shard.path, shard.shape, shard.owner) for shard in shards]
    [('table/0', (3, 2), None), ('table/1', (2, 2), None), ('table_momentum/0', (3, 2), 0), \
('table_momentum/1', (2, 2), 1)]
    """
    shards: list[PlannedVariable] = []
    first: list[int] = []  # the position of each variable's first shard
    shardings: list[Sharding] = []
    for variable in variables:
        sharding = _choose_sharding(variable, variables, shardings, partitioner, servers=servers)
        begin = None if variable.owner is None else first[variable.owner]
        alike = variable.owner is not None and sharding.shards > 1
        first.append(len(shards))
        shardings.append(sharding)
        for number, shape in enumerate(sharding.shapes):
            shards.append(
                replace(
                    variable,
                    path=f"{variable.path}/{number}" if sharding.shards > 1 else variable.path,
                    shape=shape,
                    owner=begin + number if alike and begin is not None else begin,
                    rows_per_step=_rows_of_shard(variable, sharding, number),
                )
            )
    # The variable that a shard follows may come after it.
    return [
        shard
        if shard.moved_beside is None
        else replace(shard, moved_beside=first[shard.moved_beside])
        for shard in shards
    ]


def _choose_sharding(
    variable: PlannedVariable,
    variables: Sequence[PlannedVariable],
    shardings: Sequence[Sharding],
    partitioner: Partitioner,
    *,
    servers: int,
) -> Sharding:
    if variable.is_trained or variable.is_frozen:
        return partitioner.divide(variable, servers=servers)
    owner = variable.owner
    if owner is not None and variables[owner].shape == variable.shape:
        return replace(shardings[owner], variable=variable)
    return Sharding.whole(variable)


def _rows_of_shard(variable: PlannedVariable, sharding: Sharding, number: int) -> int | None:
    """Return how many rows of a shard a step looks up, if it looks up all rows alike."""
    if variable.rows_per_step is None:
        return None
    rows = rows_per_shard(sharding.rule)[number]
    return -(-variable.rows_per_step * rows // max(1, sharding.variable.rows))
