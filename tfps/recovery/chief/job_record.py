"""The record of a named job on each of its servers, which the next chief reads. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tfps.json_text import parse_json
from tfps.placement.plan import View
from tfps.transport.message import PROTOCOL

# The name of the record's variable on a server.
RECORD = "record"
# Every Keras optimizer has a variable of this name, below its own.
ITERATION_SUFFIX = "/iteration"


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """Describes a job, as its chief has recorded it on a server.

    Args:
        chief: the chief's address.
        workers: the most workers that can take part (``max_workers``); the size of the ledger.
        present: the number of workers now.
        servers: the number of servers.
        consistency: the ``repr`` of the consistency mode.
        protocol: the version of the messages.
        bound_steps: the mode's bound, if it has one.
        views: where each variable lies on this server, by its resource's name.
        others: the names of other resources: copies of other servers' variables, and bookkeeping.

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
    bound_steps: int | None = None
    present: int = 0
    views: Mapping[str, View] = field(default_factory=dict)
    others: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the record as JSON, the text that the server keeps."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> JobRecord:
        """Parse `to_json`'s text; ignores the unknown fields of another version of tfps."""
        record: JobRecord = parse_json(cls, text)
        return record


def find_differences(held: JobRecord, wanted: JobRecord) -> list[str]:
    """Return the differences that prevent a chief from taking over a job, a line for each.

    Example:

    >>> held = JobRecord(chief="a:1", workers=2, servers=1, consistency="Asynchronous()")
    >>> find_differences(held, dataclasses.replace(held, workers=3, chief="b:1"))
    ['max_workers: received 3 from this strategy, expected 2']
    """
    return [
        f"{called}: received {getattr(wanted, name)} from this {whose}, expected "
        f"{getattr(held, name)}"
        for name, called, whose in (
            ("protocol", "protocol", "version of tfps"),
            ("workers", "max_workers", "strategy"),
            ("servers", "servers", "cluster"),
            ("consistency", "consistency", "strategy"),
        )
        if getattr(held, name) != getattr(wanted, name)
    ]


def replaced_optimizers(*, unopened: Iterable[str], created: Iterable[str]) -> list[str]:
    """Return a sentence for each optimizer of a job that a program replaces by another one.

    A program that opens all of the job's weights, and makes nothing but an optimizer's variables,
    would train these weights with an optimizer state that begins at zero.

    Args:
        unopened: the paths of variables that the job has and the program has not opened.
        created: the paths of variables that the program has and the job had not.

    Returns:
        A sentence for each optimizer; none if the program makes other variables too, or opens all
        variables of the job.

    Example:

    >>> replaced_optimizers(unopened=["adam/iteration"], created=["sgd/iteration"])
    ["optimizer: received 'sgd', expected 'adam', which trained the job"]
    """
    before, now = _optimizer_names(unopened), _optimizer_names(created := list(created))
    if not now or any(not path.startswith(tuple(f"{name}/" for name in now)) for path in created):
        return []
    others = " and ".join(map(repr, now))
    return [
        f"optimizer: received {others}, expected {name!r}, which trained the job" for name in before
    ]


def _optimizer_names(paths: Iterable[str]) -> list[str]:
    """Return the names of the optimizers that the variables at these paths belong to."""
    return sorted(
        {path.removesuffix(ITERATION_SUFFIX) for path in paths if path.endswith(ITERATION_SUFFIX)}
    )
