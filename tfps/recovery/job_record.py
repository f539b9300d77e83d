"""What a named job keeps on each of its servers, so that another chief finds its way. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfps.placement.plan import View
from tfps.transport.message import PROTOCOL


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """A job as its chief has left it.

    Args:
        chief: its address.
        workers: how many can take part; the ledger has as many places.
        servers: how many there are.
        consistency: the mode, as it prints.
        protocol: of the messages.
        views: where each variable lies on this server, by its resource's name.

    Example:

    >>> record = JobRecord(chief="a:1", workers=2, servers=1, consistency="Asynchronous()")
    >>> JobRecord.from_json(record.to_json()) == record
    True
    """

    chief: str
    workers: int
    servers: int
    consistency: str
    protocol: int = PROTOCOL
    views: Mapping[str, View] = field(default_factory=dict)

    def to_json(self) -> str:
        """As text, for the server."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> JobRecord:
        """From text; a record of another version may have other fields, and the same protocol."""
        fields = json.loads(text)
        views = {
            name: View(**{**view, "shape": tuple(view["shape"])})
            for name, view in fields.pop("views").items()
        }
        return cls(**fields, views=views)


def differences(held: JobRecord, wanted: JobRecord) -> list[str]:
    """What makes it impossible to go on with a job: a line for each.

    Example:

    >>> held = JobRecord(chief="a:1", workers=2, servers=1, consistency="Asynchronous()")
    >>> differences(held, dataclasses.replace(held, workers=3, chief="b:1"))
    ['workers: the job has 2, this cluster has 3']
    """
    return [
        f"{name}: the job has {getattr(held, name)}, this {whose} has {getattr(wanted, name)}"
        for name, whose in (
            ("protocol", "version of tfps"),
            ("workers", "cluster"),
            ("servers", "cluster"),
            ("consistency", "strategy"),
        )
        if getattr(held, name) != getattr(wanted, name)
    ]
