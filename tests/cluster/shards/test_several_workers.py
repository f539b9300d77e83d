"""Divided variables under the other modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import BATCH, LOCAL, assert_same, fit
from tests.unit.numbers.partitioned import PARTITIONERS, small, strategy_with
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(180)


def _adam() -> Any:
    return keras.optimizers.Adam(0.01)


@pytest.mark.slow  # the numbers are compared in one process
@pytest.mark.parametrize("name", ["hash", "fixed"])
def test_synchronous_workers_give_the_numbers_of_one_process(
    name: str, cluster: Callable[..., LocalCluster]
) -> None:
    running = cluster(workers=2, ps=2)
    keras.utils.set_random_seed(1)
    options = {"consistency": tfps.Synchronous()}
    with strategy_with(running, PARTITIONERS[name], **options) as strategy:
        with strategy.scope():
            model = small(_adam)
        begin = model.get_weights()
        fit(model, batch_size=BATCH)
        found = model.get_weights()
        assert int(model.optimizer.iterations.numpy()) == 4
    with tf.device(LOCAL):
        local = small(_adam)
    local.set_weights(begin)
    fit(local, batch_size=2 * BATCH)  # the union of two workers' batches
    assert_same(found, local.get_weights(), tolerance=2e-6)
