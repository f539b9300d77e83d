"""The resources that a server function refers to."""

from __future__ import annotations

from collections import Counter

import tensorflow as tf

from tfps.bridge.functions.server_function import trace_server_function
from tfps.bridge.variables.server_trace import to_constant

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
            first = to_constant(7)
        assert not first.op.control_inputs
        assert to_constant(first) is first
        assert to_constant(7) is first
        assert to_constant(True, tf.bool) is not to_constant(1)  # they are equal in Python
        branches = [lambda: to_constant(7) + to_constant(7), lambda: to_constant(8)]
        return [first + to_constant(7), tf.cond(given > to_constant(7), *branches)]

    concrete = trace_server_function(trace, device=DEVICE, signature=[tf.TensorSpec([], tf.int64)])
    assert _constants(concrete.graph)[7] == 1
    assert [int(each) for each in concrete(tf.constant(9, tf.int64))] == [14, 14]
    assert [int(each) for each in concrete(tf.constant(0, tf.int64))] == [14, 8]
    assert int(to_constant(3)) == 3  # where nothing is traced
