"""Rows of a round add up on a server, also after TensorFlow has optimized the graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfps.bridge.functions.server_function import trace_server_function
from tfps.bridge.variables.named_resource import NamedResource
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.runtime.server.round_sums import RowSum

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"
CONTAINER = "round_sums"
ROWS, WIDTH = 10, 3
SIGNATURE = [
    tf.TensorSpec([None], tf.int64),
    tf.TensorSpec([None, WIDTH]),
    tf.TensorSpec([], tf.bool),
    tf.TensorSpec([], tf.bool),
]


class RoundOfRows:
    """A round of row sums; the contribution that closes it returns the sums and begins anew."""

    def __init__(self) -> None:
        self.variables: list[ServerVariable] = []
        self._rows = RowSum(tf.Variable(tf.zeros([ROWS, WIDTH])), create=self._create)
        self._push = trace_server_function(self._trace, device=DEVICE, signature=SIGNATURE)

    def __call__(self, places: Sequence[int], *, is_first: bool, closes: bool) -> dict[int, float]:
        """Push each place with itself as a row; return the sum by place."""
        rows = np.repeat(np.array(places, np.float32)[:, None], WIDTH, 1)
        found, sums = self._push(
            tf.constant(places, tf.int64), tf.constant(rows), *map(tf.constant, (is_first, closes))
        )
        return dict(zip(found.numpy().tolist(), sums.numpy()[:, 0].tolist(), strict=True))

    def _create(self, value: Any, kind: str, **options: Any) -> ServerVariable:
        variable = ServerVariable(
            value, device=DEVICE, container=CONTAINER, shared_name=kind, **options
        )
        self.variables.append(variable)
        return variable

    def _trace(
        self, places: tf.Tensor, rows: tf.Tensor, is_first: tf.Tensor, closes: tf.Tensor
    ) -> list[tf.Tensor]:
        one = tf.constant(1.0)
        self._rows.add(tf.IndexedSlices(rows, places), one, is_first=is_first)

        def close() -> list[tf.Tensor]:
            mean = self._rows.mean(one)
            found = [tf.identity(mean.indices), tf.identity(mean.values)]
            with tf.control_dependencies(found):
                self._rows.clear()
            return found

        nothing = [tf.zeros([0], tf.int64), tf.zeros([0, WIDTH])]
        return list(tf.cond(closes, close, lambda: nothing))


@pytest.fixture
def push() -> Iterator[RoundOfRows]:
    push = RoundOfRows()
    yield push
    for variable in push.variables:
        NamedResource(CONTAINER, variable.shared_name, DEVICE).destroy()


def test_rows_of_a_round_add_up_where_it_is_closed_in_the_same_graph(push: RoundOfRows) -> None:
    """The optimizer has taken the rows that are left of a round, none, for all that there are."""
    assert push([1, 2, 1], is_first=True, closes=False) == {}
    assert push([5, 2], is_first=False, closes=True) == {1: 2.0, 2: 4.0, 5: 5.0}
    assert [int(tf.shape(v.read_value())[0]) for v in push.variables] == [0, 0]
    assert push([7], is_first=True, closes=True) == {7: 7.0}
