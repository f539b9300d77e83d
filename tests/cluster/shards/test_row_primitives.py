"""Rows that several workers pull and push by their ids: none is lost, on either carrier."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)

ROWS, WIDTH, PUSHES = 50, 4, 40
IDS = [3, 49, 3, 20]


@pytest.mark.slow
@pytest.mark.conformance
def test_no_row_is_lost(cluster: Callable[..., LocalCluster], carrier: str) -> None:
    with strategy_with(cluster(workers=2, ps=2), PARTITIONERS["shuffle"]) as strategy:
        with strategy.scope():
            table = keras.Variable(np.zeros([ROWS, WIDTH], "float32"), name="table")
            optimizer = keras.optimizers.SGD(1.0)
            optimizer.build([table])

        @tf.function
        def step() -> tf.Tensor:
            rows, version = strategy.pull_rows("table", tf.constant(IDS))
            gradients = -tf.ones_like(rows)
            _, staleness = strategy.push_rows("table", IDS, gradients, version, optimizer=optimizer)
            return staleness

        late = [strategy.coordinator.schedule(step) for _ in range(PUSHES)]
        strategy.coordinator.join()
        expected = np.zeros([ROWS, WIDTH])
        np.add.at(expected, IDS, PUSHES)
        rows, version = strategy.pull_rows("table", np.arange(ROWS))
        np.testing.assert_array_equal(rows, expected)
        assert version.tolist() == [PUSHES, PUSHES]
        assert int(optimizer.iterations) == PUSHES
        assert all(0 <= int(staleness.fetch()) < PUSHES for staleness in late)
        counts = strategy.stats().gradient_staleness_updates
        assert sum(counts.values()) == PUSHES
        new, staleness = strategy.push_rows("table", IDS, np.ones([4, WIDTH]), version)
        assert (new.tolist(), staleness) == ([PUSHES + 1] * 2, 0)
        np.add.at(expected, IDS, -1)
        np.testing.assert_array_equal(table.numpy(), expected)
        assert strategy.stats().transports == ("grpc" if carrier == "grpc" else "direct",) * 2
