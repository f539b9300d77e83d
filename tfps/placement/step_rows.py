"""Sets how many rows of each table's shard a step looks up. Pure: no TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tfps.placement.forecast import PlannedVariable


def with_step_rows(
    variables: Sequence[PlannedVariable], rows_per_step: Mapping[str, int], *, least_bytes: int
) -> list[PlannedVariable]:
    """Return variables with ``rows_per_step`` set for tables; a shard gets its share.

    Call it after the division: partitioners must not use ``rows_per_step``.

    Args:
        variables: variables, or shards whose paths end with their number.
        rows_per_step: the number of rows, by the path of the whole table.
        least_bytes: smaller tables are pulled as a whole.

    Example:

    >>> shards = [PlannedVariable(f"table/{k}", (50, 4), "float32", is_pulled=True) for k in (0, 1)]
    >>> [shard.rows_per_step for shard in with_step_rows(shards, {"table": 7}, least_bytes=0)]
    [4, 4]
    """
    parts: dict[str, list[PlannedVariable]] = {}
    for variable in variables:
        if (path := _find_table_path(variable, rows_per_step)) is not None:
            parts.setdefault(path, []).append(variable)
    large = {
        path for path, shards in parts.items() if sum(s.size_bytes for s in shards) >= least_bytes
    }

    def with_share(variable: PlannedVariable) -> PlannedVariable:
        path = _find_table_path(variable, rows_per_step)
        if path not in large:
            return variable
        rows = sum(shard.shape[0] for shard in parts[path])
        asked = -(-rows_per_step[path] * variable.shape[0] // max(1, rows))
        return replace(variable, rows_per_step=asked)

    return [with_share(variable) for variable in variables]


def _find_table_path(variable: PlannedVariable, rows_per_step: Mapping[str, int]) -> str | None:
    """Return the path of the table that a variable is, or is a shard of; else None."""
    if not variable.is_pulled:
        return None
    paths = (variable.path, whole_path(variable.path))
    return next((path for path in paths if path in rows_per_step), None)


def whole_path(path: str) -> str:
    """Return the path of the variable that a shard belongs to, or of a whole variable.

    >>> whole_path("table/embeddings/1"), whole_path("table/embeddings")
    ('table/embeddings', 'table/embeddings')
    """
    whole, _, number = path.rpartition("/")
    return whole if number.isdigit() else path
