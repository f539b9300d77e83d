"""Find a job's variables in its servers' records, by the names that users know. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfps.partitioners.row_rule import RULES, rows_of
from tfps.placement.plan import View
from tfps.recovery.chief.job_record import JobRecord
from tfps.runtime.coordinator.resource_names import ResourceNames

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class RecordedPart:
    """A whole variable, or one shard of a variable.

    Args:
        server: the index of its server.
        resource: its resource's name on the server.
        view: where it lies on the server.
    """

    server: int
    resource: str
    view: View


@dataclass(frozen=True)
class RecordedValue:
    """A variable with all of its parts.

    Args:
        parts: the whole variable, or its shards in order.
    """

    parts: tuple[RecordedPart, ...]

    def join(self, arrays: Sequence[Array]) -> Array:
        """Return the whole value, joined from the values of the parts."""
        rule = self.parts[0].view.rule
        if rule is None:
            return arrays[0]
        name, rows, shards = rule
        divided = RULES[name](rows, shards)
        whole: Array = np.empty((rows, *arrays[0].shape[1:]), arrays[0].dtype)
        for shard, array in enumerate(arrays):
            whole[rows_of(divided, shard)] = array
        return whole


def find_recorded_values(records: Sequence[JobRecord]) -> dict[str, RecordedValue]:
    """Return all variables of a job by their paths; the second one of a path is ``path>2``.

    A variable whose shards are not all recorded yet is left out: servers record new variables one
    server after the other.

    Args:
        records: the record of each server, in the servers' order.

    Example:

    >>> view = View("dense/kernel", 0, "slabs/adam", 0, (4, 3), "float32")
    >>> records = [JobRecord(chief="a:1", workers=1, servers=1, consistency="Asynchronous()",
    ...                      views={"variables/dense/kernel": view})]
    >>> list(find_recorded_values(records))
    ['dense/kernel']
    """
    by_path: dict[str, dict[int, RecordedPart]] = {}
    for server, record in enumerate(records):
        for resource, view in record.views.items():
            path, shard = view.variable, 0
            repetition = resource.removeprefix(ResourceNames().unique_name(path))
            if view.rule is not None:
                path, _, number = path.rpartition("/")
                shard = int(number)
            by_path.setdefault(path + repetition, {})[shard] = RecordedPart(server, resource, view)
    values = {
        name: RecordedValue(tuple(part for _, part in sorted(parts.items())))
        for name, parts in by_path.items()
    }
    return {name: values[name] for name in sorted(values) if _is_complete(values[name])}


def _is_complete(value: RecordedValue) -> bool:
    rule = value.parts[0].view.rule
    return len(value.parts) == (1 if rule is None else rule[2])
