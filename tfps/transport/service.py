"""The functions that a parameter server offers for one plan over `direct`, and their limits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property

from tfps.errors import ProtocolError
from tfps.transport.message import PROTOCOL, REQUEST_FIELDS, Kind, Request

# The most ids per message: 128 MB of row numbers; a batch has thousands.
MAX_IDS = 1 << 24
# Above this size it pays to spend 20 us to free the memory of the previous message at once.
RECLAIMED_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Entry:
    """One function of a service: the requests that call it, and the sizes of its messages."""

    kind: int
    call_number: int
    request_bytes: int  # the exact size of the payload
    reply_bytes: int
    row_bytes: int = 0  # the largest size of rows and other data after a request's payload


@dataclass(frozen=True)
class Service:
    """The functions that a server offers for one plan, without their code.

    Args:
        job_id: the job, as in every message.
        plan_id: the plan with whose layouts both sides were traced.
        workers: the number of workers.
        entries: one per function, in the order of the service loop.

    Example:

    >>> service = Service(7, 9, 2, (Entry(Kind.PULL, 0, 0, 64),))
    >>> Service.from_json(service.to_json()) == service
    True
    """

    job_id: int
    plan_id: int
    workers: int
    entries: tuple[Entry, ...]

    def position(self, header: Sequence[int], *, payload_bytes: int) -> int:
        """Return the position of the function that a request calls.

        Raises:
            ProtocolError: the request is for another protocol, job or plan, calls no function of
                the service, or has a wrong worker or size.
        """
        if len(header) != REQUEST_FIELDS:
            raise ProtocolError(f"header: received {len(header)} fields, expected {REQUEST_FIELDS}")
        for field, value in self._addressee:
            if header[field] != value:
                raise ProtocolError(
                    f"{Request(field).name.lower()}: received {header[field]}, expected {value}"
                )
        if not 0 <= header[Request.WORKER] < self.workers:
            raise ProtocolError(
                f"worker: received {header[Request.WORKER]}, expected 0 to {self.workers - 1}"
            )
        position = self._positions.get((header[Request.KIND], header[Request.CALL]))
        if position is None:
            raise ProtocolError(
                f"kind, call: received {header[Request.KIND]}, {header[Request.CALL]}, expected "
                f"one of {[(Kind(entry.kind).name, entry.call_number) for entry in self.entries]}"
            )
        entry = self.entries[position]
        if not 0 <= payload_bytes - entry.request_bytes <= entry.row_bytes:
            rows = f" and rows of at most {entry.row_bytes}" if entry.row_bytes else ""
            raise ProtocolError(
                f"payload: received {payload_bytes} bytes, expected {entry.request_bytes}{rows}; "
                "run the same version of tfps on all tasks"
            )
        return position

    @cached_property
    def _addressee(self) -> tuple[tuple[int, int], ...]:
        """The header fields that are equal in all requests, and their values."""
        expected = (
            (Request.PROTOCOL, PROTOCOL),
            (Request.JOB, self.job_id),
            (Request.PLAN, self.plan_id),
        )
        return tuple((int(field), value) for field, value in expected)

    @cached_property
    def _positions(self) -> dict[tuple[int, int], int]:
        return {(e.kind, e.call_number): position for position, e in enumerate(self.entries)}

    @property
    def largest_request_bytes(self) -> int:
        return max(entry.request_bytes + entry.row_bytes for entry in self.entries)

    def to_json(self) -> str:
        """Encode the service as JSON, to send it to the server."""
        entries = [list(astuple(entry)) for entry in self.entries]
        return json.dumps(
            {"job": self.job_id, "plan": self.plan_id, "slots": self.workers, "entries": entries}
        )

    @classmethod
    def from_json(cls, text: str) -> Service:
        """Decode a service from JSON."""
        fields = json.loads(text)
        entries = tuple(Entry(*entry) for entry in fields["entries"])
        return cls(fields["job"], fields["plan"], fields["slots"], entries)
