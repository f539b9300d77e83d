"""A loop that receives into buffers needs two of them: the one that is read, the one to fill."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tfps.bridge.named_functions import register_named_function
from tfps.transport.array_memory import release_arrays
from tfps.transport.direct.buffers import AlignedBuffers

SIZE_BYTES = 1 << 20


@pytest.mark.parametrize(("reclaims", "buffers"), [(True, 2), (False, 3)])
def test_memory_of_the_message_before(reclaims: bool, buffers: int) -> None:
    pool = AlignedBuffers()

    def receive(number: np.ndarray) -> np.ndarray:
        if reclaims:
            release_arrays()
        array = pool.take(SIZE_BYTES)
        array[:] = number
        return array

    register_named_function("test_reclaimed_buffers", receive)
    with tf.Graph().as_default():

        def step(number: tf.Tensor, before: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            (received,) = tf.raw_ops.PyFunc(
                input=[number], token="test_reclaimed_buffers", Tout=[tf.uint8]
            )
            received.set_shape([SIZE_BYTES])
            with tf.control_dependencies([received]):  # the worker's parameters until then
                following = number + 1 + 0 * tf.cast(before[0], tf.int32)
            return following, received

        zeros = tf.zeros([SIZE_BYTES], tf.uint8)
        _, last = tf.while_loop(
            lambda number, _: number < 20, step, [0, zeros], parallel_iterations=1
        )
        with tf.compat.v1.Session() as session:
            assert set(session.run(last)) == {19}
    assert len(pool) == buffers
