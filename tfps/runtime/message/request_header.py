"""Builds the headers of requests: the function, the sender and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET
from tfps.transport.message import PROTOCOL, Kind, Request

NOT_MEASURED = -1
SLOTS = 1  # the call number of a pull of initial slots, for optimizers on a worker
UNCHANGED = 2  # the call number of a pull of values that no step changes
TOTALS = 3  # the call number of a pull of the totals of reports
Fields: TypeAlias = Mapping[Request, Any]  # of a header; a missing field reports nothing
NO_FIELDS: Fields = {}
# The values of fields that are not reported.
_DEFAULTS: Fields = {
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
    Request.REDUCE_MICROSECONDS: NOT_MEASURED,
}


def build_request_header(kind: Kind, fields: Fields) -> tf.Tensor:
    """Build the header of a request to one server, an int64 vector."""
    values = {**_DEFAULTS, Request.KIND: int(kind), **fields}
    return pack_header([values[field] for field in Request])


def pack_header(fields: Sequence[Any]) -> tf.Tensor:
    """Return numbers and scalar tensors of any type as an int64 vector; numbers need no cast."""
    return tf.convert_to_tensor(
        [tf.cast(each, tf.int64) if tf.is_tensor(each) else int(each) for each in fields], tf.int64
    )
