"""The resources that a server function refers to."""

from __future__ import annotations

from collections import Counter

import tensorflow as tf

from tfps.bridge.functions.server_function import server_function
from tfps.bridge.variables.server_variable import number

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


def _constants(graph: tf.Graph) -> Counter[int]:
    return Counter(
        int(tf.make_ndarray(operation.get_attr("value")))
        for operation in graph.get_operations()
        if operation.type == "Const"
    )


def test_a_number_is_one_constant_of_each_graph() -> None:
    def trace(given: tf.Tensor) -> list[tf.Tensor]:
        with tf.control_dependencies([given]):
            first = number(7)
        assert not first.op.control_inputs
        assert number(first) is first
        assert number(7) is first
        assert number(True, tf.bool) is not number(1)  # they are equal in Python
        branches = [lambda: number(7) + number(7), lambda: number(8)]
        return [first + number(7), tf.cond(given > number(7), *branches)]

    concrete = server_function(trace, device=DEVICE, signature=[tf.TensorSpec([], tf.int64)])
    assert _constants(concrete.graph)[7] == 1
    assert [int(each) for each in concrete(tf.constant(9, tf.int64))] == [14, 14]
    assert [int(each) for each in concrete(tf.constant(0, tf.int64))] == [14, 8]
    assert int(number(3)) == 3  # where nothing is traced
