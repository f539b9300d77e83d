"""The header of a request: which function it is for, who makes it, and what it tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET
from tfps.transport.message import PROTOCOL, Kind, Request

NOT_MEASURED = -1
SLOTS = 1  # the call of a pull that asks for what the optimizers on a worker begin with
STILL = 2  # and of one that asks for what no step changes
TOTALS = 3  # and of one that asks for what steps have reported
Fields: TypeAlias = Mapping[Request, Any]  # of a header; one that is left out says nothing
NOTHING_TOLD: Fields = {}
# What a header says where it is told nothing.
_SILENT: Fields = {
    **dict.fromkeys(Request, 0),
    Request.PROTOCOL: PROTOCOL,
    Request.ACKED_TICKET: NO_TICKET,
    Request.CLOSED_STEPS: 1,
    Request.PUSH_MICROSECONDS: NOT_MEASURED,
    Request.PULL_MICROSECONDS: NOT_MEASURED,
    Request.WAIT_MICROSECONDS: NOT_MEASURED,
    Request.BATCH_MICROSECONDS: NOT_MEASURED,
    Request.ENCODE_MICROSECONDS: NOT_MEASURED,
    Request.DECODE_MICROSECONDS: NOT_MEASURED,
}


def request_header(kind: Kind, fields: Fields) -> tf.Tensor:
    """The header of a request to one server, an int64 vector."""
    values = {**_SILENT, Request.KIND: int(kind), **fields}
    return header_of([values[field] for field in Request])


def header_of(fields: Sequence[Any]) -> tf.Tensor:
    """Numbers and scalar tensors of any type as an int64 vector; numbers need no cast."""
    return tf.convert_to_tensor(
        [tf.cast(each, tf.int64) if tf.is_tensor(each) else int(each) for each in fields], tf.int64
    )
