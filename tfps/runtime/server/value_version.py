"""Numbers the versions of a server's values that scheduled functions read and do not change."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.wire import ServerShards

_WHOLE_NUMBERS = {1: tf.uint8, 2: tf.int16, 4: tf.int32, 8: tf.int64}


class ValueVersion:
    """Assigns a number to a server's values, and a new one each time that they change.

    Optimizers of other functions, `fit`, the coordinator and restored checkpoints change them. The
    values of the last number are kept beside the variables, and compared with them bit by bit. As
    long as nothing changes, TensorFlow keeps both in the same memory.

    Args:
        held: the variables.
        runtime: the runtime of the job.
        server: the server that holds them.
    """

    def __init__(self, held: ServerShards, *, runtime: Runtime, server: Server) -> None:
        create = functools.partial(runtime.create_bookkeeping, device=server.device)
        self._natives = held.natives
        self._latest = [
            create(
                functools.partial(tf.zeros, n.shape, n.dtype), name=f"handed_out/{n.shared_name}"
            )
            for n in held.natives
        ]
        self._number = create(np.int64(0), name="handed_out/number")

    def trace_number(self) -> tf.Tensor:
        """Trace the number of the current values, int64, under the server's mutex.

        It is a time stamp, so that a restarted server does not use a number twice.
        """
        values = [native.read_value() for native in self._natives]
        number_before = self._number.read_value()
        pairs = zip(values, self._latest, strict=True)
        is_same = tf.reduce_all([_is_same(value, latest.read_value()) for value, latest in pairs])

        def keep() -> tf.Tensor:
            for value, latest in zip(values, self._latest, strict=True):
                latest.assign(value, read_value=False)
            number = tf.maximum(number_before + 1, tf.cast(tf.timestamp() * 1e6, tf.int64))
            self._number.assign(number, read_value=False)
            return number

        return tf.cond(tf.logical_and(is_same, number_before > 0), lambda: number_before, keep)


def _is_same(value: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Return whether two tensors are equal in every bit, also in those of NaN."""
    if value.dtype.is_floating:
        whole = _WHOLE_NUMBERS[value.dtype.size]
        value, other = tf.bitcast(value, whole), tf.bitcast(other, whole)
    return tf.reduce_all(tf.equal(value, other))
