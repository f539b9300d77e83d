"""What the records of a job say that its servers hold, by the names that users know. Pure."""

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
    """A variable that is whole, or a shard.

    Args:
        server: where it lies.
        resource: what the server calls it.
        view: how it lies there.
    """

    server: int
    resource: str
    view: View


@dataclass(frozen=True)
class RecordedValue:
    """A variable with all that it consists of.

    Args:
        parts: one, or the shards in their order.
    """

    parts: tuple[RecordedPart, ...]

    def joined(self, arrays: Sequence[Array]) -> Array:
        """The whole value, of those of the parts."""
        rule = self.parts[0].view.rule
        if rule is None:
            return arrays[0]
        name, rows, shards = rule
        divided = RULES[name](rows, shards)
        whole: Array = np.empty((rows, *arrays[0].shape[1:]), arrays[0].dtype)
        for shard, array in enumerate(arrays):
            whole[rows_of(divided, shard)] = array
        return whole


def recorded_values(records: Sequence[JobRecord]) -> dict[str, RecordedValue]:
    """All variables of a job, by their paths; the second one of a path is called ``path>2``.

    Servers are told of new variables one after the other. One that is not recorded with all of its
    shards is left out.

    Args:
        records: of the servers, in their order.

    Example:

    >>> view = View("dense/kernel", 0, "slabs/adam", 0, (4, 3), "float32")
    >>> records = [JobRecord(chief="a:1", workers=1, servers=1, consistency="Asynchronous()",
    ...                      views={"variables/dense/kernel": view})]
    >>> list(recorded_values(records))
    ['dense/kernel']
    """
    found: dict[str, dict[int, RecordedPart]] = {}
    for server, record in enumerate(records):
        for resource, view in record.views.items():
            path, shard = view.variable, 0
            repetition = resource.removeprefix(ResourceNames().of(path))
            if view.rule is not None:
                path, _, number = path.rpartition("/")
                shard = int(number)
            found.setdefault(path + repetition, {})[shard] = RecordedPart(server, resource, view)
    values = {
        name: RecordedValue(tuple(part for _, part in sorted(parts.items())))
        for name, parts in found.items()
    }
    return {name: values[name] for name in sorted(values) if _is_complete(values[name])}


def _is_complete(value: RecordedValue) -> bool:
    rule = value.parts[0].view.rule
    return len(value.parts) == (1 if rule is None else rule[2])
