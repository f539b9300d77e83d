"""What a parameter server does for one plan over `direct`: functions, their order, their limits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property

from tfps.errors import ProtocolError
from tfps.transport.message import PROTOCOL, REQUEST_FIELDS, Kind, Request

# 128 MB of row numbers in one message; a batch has thousands.
MAX_IDS = 1 << 24
# Above this, the memory of the message before is worth a call of 20 us to have it back at once.
RECLAIMED_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Entry:
    """One function of a service: what asks for it, and how large its messages are."""

    kind: int
    call_number: int
    request_bytes: int  # of the payload, exactly
    reply_bytes: int
    row_bytes: int = 0  # of rows, and more, that may follow the payload of a request, at most


@dataclass(frozen=True)
class Service:
    """The functions that a server offers for one plan, without their code.

    Args:
        job_id: goes into every message.
        plan_id: of the layouts that both sides were traced with.
        slots: how many workers there can be.
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
        """Which function a request asks for.

        Raises:
            ProtocolError: the request is of another protocol, job, plan, worker or size.
        """
        if len(header) != REQUEST_FIELDS:
            raise ProtocolError(
                f"a request's header has {len(header)} fields, expected {REQUEST_FIELDS}"
            )
        for field, value in self._addressee:
            if header[field] != value:
                raise ProtocolError(
                    f"a request for {Request(field).name.lower()} {header[field]}, expected {value}"
                )
        if not 0 <= header[Request.WORKER] < self.workers:
            raise ProtocolError(
                f"a request from worker {header[Request.WORKER]}, expected 0 to {self.workers - 1}"
            )
        position = self._positions.get((header[Request.KIND], header[Request.CALL]))
        if position is None:
            raise ProtocolError(
                f"a request of kind {header[Request.KIND]}, call {header[Request.CALL]}, expected "
                f"one of {[(Kind(entry.kind).name, entry.call_number) for entry in self.entries]}"
            )
        entry = self.entries[position]
        if not 0 <= payload_bytes - entry.request_bytes <= entry.row_bytes:
            rows = f" and rows of at most {entry.row_bytes}" if entry.row_bytes else ""
            raise ProtocolError(
                f"a request of {payload_bytes} bytes, expected {entry.request_bytes}{rows}"
            )
        return position

    @cached_property
    def _addressee(self) -> tuple[tuple[int, int], ...]:
        """Of every request, as fields of its header."""
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
        """As text, for the way to the server."""
        entries = [list(astuple(entry)) for entry in self.entries]
        return json.dumps(
            {"job": self.job_id, "plan": self.plan_id, "slots": self.workers, "entries": entries}
        )

    @classmethod
    def from_json(cls, text: str) -> Service:
        """From text."""
        fields = json.loads(text)
        entries = tuple(Entry(*entry) for entry in fields["entries"])
        return cls(fields["job"], fields["plan"], fields["slots"], entries)
