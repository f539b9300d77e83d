"""Inputs of two kinds in turn: no input is compiled again, and none keeps more on the servers."""

from __future__ import annotations

import gc
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.graphs import graphs_left_alone_by_the_collector
from tfps.testing.in_process import DeviceChannel

pytestmark = pytest.mark.timeout(600)

X, Y = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")


class TraceCounter(keras.layers.Layer):
    """A layer that counts how often it is traced."""

    traces = 0

    def call(self, x: Any) -> Any:
        self.traces += 1
        return x


def dataset_function() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(2)


def made(strategy: tfps.ParameterServerStrategy) -> tuple[keras.Model, TraceCounter]:
    with strategy.scope():
        counter = TraceCounter()
        model = keras.Sequential([keras.Input((3,)), counter, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    return model, counter


@pytest.mark.rare
def test_each_is_traced_once(strategy: tfps.ParameterServerStrategy) -> None:
    model, counter = made(strategy)
    with graphs_left_alone_by_the_collector():
        traces = []
        for _ in range(2):
            model.fit(X, Y, batch_size=2, verbose=0)
            model.fit(dataset_function, steps_per_epoch=2, verbose=0)
            traces.append(counter.traces)
    assert traces[0] == traces[1]
    assert len(model.train_function.compiler.compiled) == 2


@pytest.mark.rare
def test_a_program_that_is_dropped_closes_its_channel(
    strategy: tfps.ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The channel of the server outlives it, and would keep a function of each program."""
    gc.collect()
    # Strategies of earlier tests, which may end at any moment, have channels of their own.
    earlier = [each for each in gc.get_objects() if isinstance(each, DeviceChannel)]
    closed: list[DeviceChannel] = []

    def close(channel: DeviceChannel, **_: Any) -> None:
        closed.extend([] if channel in earlier else [channel])

    monkeypatch.setattr(DeviceChannel, "close", close)
    model, _ = made(strategy)
    with graphs_left_alone_by_the_collector():
        model.evaluate(X, Y, batch_size=2, verbose=0)
        assert not closed
        model.compile("sgd", "mse")
        model.evaluate(X, Y, batch_size=2, verbose=0)
        gc.collect()
        strategy.runtime.collect()
    assert len(closed) == 1
