"""The request by which `tfps.attach` reads a server over its data port, and the reply. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfps.errors import ProtocolError
from tfps.json_text import parse_json
from tfps.placement.slab import padded_items

Array = np.ndarray[Any, Any]

READER = "reader"  # the role in the connection's handshake
HEADER_FIELDS = 1  # in both messages: the size of the payload's text in bytes
MAX_REQUEST_BYTES = 1 << 26  # names of a million variables
MAX_READ_REPLY_BYTES = 1 << 32  # more than a pull may read of a server
REMEDY = "run the same version of tfps on all tasks"


@dataclass(frozen=True, kw_only=True)
class ReadRequest:
    """A request for variables by their resources' names; without names, for the job's record.

    Example:

    >>> request = ReadRequest(resources=("slab_0",))
    >>> ReadRequest.from_text(request.to_text()) == request
    True
    """

    resources: tuple[str, ...] = ()

    def to_text(self) -> bytes:
        """Encode the request as JSON."""
        return json.dumps(list(self.resources)).encode()

    @classmethod
    def from_text(cls, text: bytes) -> ReadRequest:
        """Decode what `to_text` wrote.

        Raises:
            ProtocolError: the text is not an encoded request.
        """
        try:
            return cls(resources=parse_json(tuple[str, ...], text))
        except ValueError as error:
            raise ProtocolError(
                f"request: received {text!r:.100}, expected the names of variables; {REMEDY}"
            ) from error


@dataclass(frozen=True, kw_only=True)
class ReadReply:
    """A server's reply to a `ReadRequest`.

    Args:
        record: the job's record as JSON; empty if the server has none.
        cells: the ledger, int64; empty if the request named no variable, or one that the server
            does not have.
        values: the values of all requested variables, or none.
        problem: why the server could not read; empty if it could.
    """

    record: str = ""
    cells: tuple[int, ...] = ()
    values: tuple[Array, ...] = ()
    problem: str = ""

    def to_parts(self) -> tuple[bytes, list[Array]]:
        """Encode the reply: returns its text, and the arrays that go before it in the payload."""
        fields = {
            "record": self.record,
            "cells": self.cells,
            "values": [(value.dtype.name, value.shape) for value in self.values],
            "problem": self.problem,
        }
        return json.dumps(fields).encode(), [np.ascontiguousarray(v) for v in self.values]

    @classmethod
    def from_parts(cls, text: bytes, arrays: Array) -> ReadReply:
        """Decode what `to_parts` wrote.

        Args:
            text: the end of the payload.
            arrays: the bytes before it, uint8; the values are views of them.

        Raises:
            ProtocolError: the text is not an encoded reply.
        """
        try:
            fields = json.loads(text)
            values, begin = [], 0
            for name, shape in fields["values"]:
                dtype = np.dtype(name)
                items = int(np.prod(shape, dtype=np.int64))
                end = begin + items * dtype.itemsize
                values.append(arrays[begin:end].view(dtype).reshape(shape))
                begin += padded_items(items, dtype.name) * dtype.itemsize
            return cls(
                record=fields["record"],
                cells=tuple(fields["cells"]),
                values=tuple(values),
                problem=fields["problem"],
            )
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ProtocolError(
                f"reply: received {text!r:.100}, expected its fields: {error}; {REMEDY}"
            ) from error


def split_payload(header: Sequence[int], payload: Array) -> tuple[bytes, Array]:
    """Split a message's payload into its text and the bytes of its arrays.

    Raises:
        ProtocolError: the text would be larger than the payload.
    """
    size_bytes = int(header[0])
    if not 0 <= size_bytes <= payload.size:
        raise ProtocolError(
            f"text: received {size_bytes} bytes, expected at most {payload.size}; {REMEDY}"
        )
    end = payload.size - size_bytes
    return payload[end:].tobytes(), payload[:end]
