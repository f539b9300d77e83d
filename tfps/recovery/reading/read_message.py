"""What a reader of a job asks a server for over the port of `direct`, and the answer. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfps.errors import ProtocolError
from tfps.placement.slab import padded_items

Array = np.ndarray[Any, Any]

READER = "reader"  # the role that it connects with
HEADER_FIELDS = 1  # of both messages: the bytes of the text in the payload
MOST_REQUEST_BYTES = 1 << 26  # names of a million variables
MOST_ANSWER_BYTES = 1 << 32  # more than a pull may read of a server


@dataclass(frozen=True, kw_only=True)
class ReadRequest:
    """Variables by their resources' names; none asks for the job's record alone.

    Example:

    >>> request = ReadRequest(resources=("slab_0",))
    >>> ReadRequest.from_text(request.to_text()) == request
    True
    """

    resources: tuple[str, ...] = ()

    def to_text(self) -> bytes:
        """Encode as JSON."""
        return json.dumps(list(self.resources)).encode()

    @classmethod
    def from_text(cls, text: bytes) -> ReadRequest:
        """Decode what `to_text` wrote.

        Raises:
            ProtocolError: anything else.
        """
        names = _json(text)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ProtocolError(f"received {text!r:.100}, expected the names of variables")
        return cls(resources=tuple(names))


@dataclass(frozen=True, kw_only=True)
class ReadAnswer:
    """A server's answer.

    Args:
        record: of the job, as text; empty where the server has none.
        cells: of the ledger, int64; none where the request named no variable, or one that is not
            where the reader thinks.
        values: as many as were asked for, or none.
        problem: why the server could not read; empty where it could.
    """

    record: str = ""
    cells: tuple[int, ...] = ()
    values: tuple[Array, ...] = ()
    problem: str = ""

    def to_parts(self) -> tuple[bytes, list[Array]]:
        """The text, and the arrays that the payload begins with, each on lines of its own."""
        fields = {
            "record": self.record,
            "cells": self.cells,
            "values": [(value.dtype.name, value.shape) for value in self.values],
            "problem": self.problem,
        }
        return json.dumps(fields).encode(), [np.ascontiguousarray(v) for v in self.values]

    @classmethod
    def from_parts(cls, text: bytes, arrays: Array) -> ReadAnswer:
        """Decode what `to_parts` wrote.

        Args:
            text: the end of the payload.
            arrays: all bytes before it; the values are views of them.

        Raises:
            ProtocolError: anything else.
        """
        fields = _json(text)
        try:
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
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"received {text!r:.100}, expected an answer: {error}") from error


def text_and_arrays(header: Sequence[int], payload: Array) -> tuple[bytes, Array]:
    """Divide a message's payload.

    Raises:
        ProtocolError: the header says more than the payload has.
    """
    size_bytes = int(header[0])
    if not 0 <= size_bytes <= payload.size:
        raise ProtocolError(f"received a text of {size_bytes} bytes in {payload.size}")
    end = payload.size - size_bytes
    return payload[end:].tobytes(), payload[:end]


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"received {text!r:.100}, expected JSON: {error}") from error
