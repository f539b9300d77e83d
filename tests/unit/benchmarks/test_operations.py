"""Operations of a worker's step are counted by the module that makes them."""

from __future__ import annotations

import keras
import tensorflow as tf

from benchmarks.operations import count_operations
from tfps.bridge.id_check import RequestedIds, check_ids


def test_operations_of_loops_are_counted_by_module() -> None:
    def body(x: tf.Tensor) -> tuple[tf.Tensor]:
        with tf.control_dependencies([check_ids([RequestedIds(x, 3, "ids")])]):
            return (keras.ops.relu(x) - 1,)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([2], tf.int64)])
    def traced(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda x: tf.reduce_all(x > 0), body, (x,))

    counted = count_operations(traced.get_concrete_function().graph)
    assert set(counted) == {"the model", "bridge/id_check.py"}
    assert counted["bridge/id_check.py"] >= 8
