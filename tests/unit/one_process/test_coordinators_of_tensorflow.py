"""TensorFlow's class of coordinators gives this library's, and so does a user's subclass of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps


class Counting(tf.distribute.coordinator.ClusterCoordinator):
    """A user's own subclass of TensorFlow's class."""

    def __init__(self, strategy: Any) -> None:
        super().__init__(strategy)
        self.scheduled = 0

    def schedule(self, fn: Any, args: Any = None, kwargs: Any = None) -> Any:
        self.scheduled += 1
        return super().schedule(fn, args, kwargs)


@pytest.mark.quick("ClusterCoordinator")
@pytest.mark.parametrize("kind", [tf.distribute.coordinator.ClusterCoordinator, Counting])
def test_tensorflows_class_gives_our_coordinator(
    kind: type, make_strategy: Callable[..., tfps.ParameterServerStrategy]
) -> None:
    strategy = make_strategy()
    coordinator = kind(strategy)
    assert isinstance(coordinator, kind)
    assert isinstance(coordinator, tfps.ClusterCoordinator)
    assert tfps.ClusterCoordinator(strategy) is strategy.coordinator is coordinator
    with strategy.scope():
        weight = keras.Variable(np.zeros([3], "float32"))
        optimizer = keras.optimizers.SGD(1.0)

    @tf.function
    def step() -> None:
        strategy.run(lambda: optimizer.apply([tf.ones([3])], [weight]))

    for _ in range(8):
        coordinator.schedule(step)
    coordinator.join()
    assert weight.numpy().tolist() == [-8] * 3
    assert strategy.stats().updates_applied == 8
    assert strategy.stats().fallback_steps == 0
    assert getattr(coordinator, "scheduled", 8) == 8
