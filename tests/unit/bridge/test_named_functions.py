"""Python's state of a thread of TensorFlow's outlives a call."""

from __future__ import annotations

import threading

import numpy as np
import tensorflow as tf

from tfps.bridge.named_functions import register_named_function

CALLS = 200


def test_a_thread_of_tensorflow_keeps_its_state() -> None:
    # What a thread keeps for itself lies in its state, and is gone with it.
    local, threads = threading.local(), set()
    beginnings = []

    def call(number: np.ndarray) -> np.ndarray:
        threads.add(threading.get_ident())
        if not hasattr(local, "is_known"):
            local.is_known = True
            beginnings.append(int(number))
        return number + 1

    register_named_function("test_thread_state", call)

    @tf.function(autograph=False)
    def count() -> tf.Tensor:
        def body(number: tf.Tensor) -> tf.Tensor:
            (after,) = tf.raw_ops.PyFunc(input=[number], token="test_thread_state", Tout=[tf.int64])
            return (tf.ensure_shape(after, []),)

        return tf.while_loop(lambda number: number < CALLS, body, (tf.constant(0, tf.int64),))[0]

    assert int(count()) == CALLS
    assert threading.get_ident() not in threads
    assert len(beginnings) == len(threads) < CALLS
