"""Measures how long codecs take on servers, and counts the durations that workers report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from tfps.consistency.server_ledger import ServerLedger
from tfps.runtime.message.duration import begin_timing, measure_seconds
from tfps.runtime.message.wire import CallWire
from tfps.runtime.server.server_optimizer_call import DECODE, ENCODE, REDUCE
from tfps.runtime.server.server_tables import unpack_push
from tfps.transport.message import Request

Encoded = TypeVar("Encoded")


class CodingDurations:
    """Measures the decoding of a push and the encoding of its reply; does nothing without codecs.

    Args:
        wire: the message format of the push.
        ledger: the ledger of the server.
    """

    def __init__(self, wire: CallWire, ledger: ServerLedger) -> None:
        self._wire, self._ledger = wire, ledger
        self._decode_s: tf.Tensor | None = None

    def decode_push(self, ids: tf.Tensor, payload: tf.Tensor) -> dict[str, Any]:
        """Decode the tensors of a push, by name."""
        if not self._wire.coded:
            return unpack_push(self._wire, ids, payload)
        begin = tf.timestamp()  # a server's function starts when the whole request has arrived
        with tf.control_dependencies([begin]):
            payload = tf.identity(payload)
        unpacked = unpack_push(self._wire, ids, payload)
        self._decode_s = measure_seconds(begin, until=unpacked)
        return unpacked

    def count(self, header: Sequence[tf.Tensor]) -> None:
        """Count the durations of the server and of the worker; call it under the server's mutex."""
        if self._decode_s is not None:
            self._ledger.count_seconds(DECODE, self._decode_s)
            self._count_reported(ENCODE, header[Request.ENCODE_MICROSECONDS])
        if self._wire.coded_values:
            self._count_reported(DECODE, header[Request.DECODE_MICROSECONDS])

    def count_sums(self, header: Sequence[tf.Tensor]) -> None:
        """Count the sums of workers before a push; call it under the server's mutex."""
        self._count_reported(REDUCE, header[Request.REDUCE_MICROSECONDS])
        self._ledger.add(self._ledger.layout.REDUCED_BYTES, header[Request.REDUCED_BYTES])

    def encode_reply(
        self, encode: Callable[[list[tf.Tensor]], Encoded], *, values: list[tf.Tensor]
    ) -> Encoded:
        """Encode a reply's payload with ``encode``, measure the duration, and return the result."""
        if not self._wire.coded_values:
            return encode(values)
        begin, values = begin_timing(values)
        encoded = encode(values)
        encode_s = measure_seconds(begin, until=encoded)
        with self._ledger.locked():
            self._ledger.count_seconds(ENCODE, encode_s)
        return encoded

    def _count_reported(self, kind: int, microseconds: tf.Tensor) -> None:
        seconds = tf.cast(microseconds, tf.float64) / 1e6
        self._ledger.count_seconds(kind, seconds, counts=microseconds >= 0)
