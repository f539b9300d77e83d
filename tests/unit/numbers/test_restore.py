"""A checkpoint of two servers is restored exactly: on one, two, three, and without any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tests.cluster.checkpoint.small_model import (
    STEPS,
    assert_same,
    fit,
    small_model,
    small_model_on,
    state_of,
)
from tests.messages import raises
from tests.unit.numbers.comparison import LOCAL
from tests.unit.numbers.partitioned import strategy_with
from tfps.errors import CheckpointError
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(180)


@pytest.mark.slow
def test_more_and_fewer_servers_and_one_process(
    cluster: Callable[..., InProcessCluster], tmp_path: Path
) -> None:
    """Trained for two epochs here, or for one here and one elsewhere: the same numbers."""
    folder = tmp_path / "checkpoints"
    with strategy_with(cluster(workers=1, ps=2), None, placement="round_robin") as strategy:
        model = small_model_on(strategy)
        fit(model)
        tfps.CheckpointManager(model, folder).save(epoch=1, background=False)
        restored, stats = state_of(model), strategy.stats()
        fit(model)
        trained = state_of(model)
    for servers in (1, 3):
        with strategy_with(
            cluster(workers=1, ps=servers), None, placement="round_robin"
        ) as strategy:
            keras.utils.set_random_seed(99)
            with strategy.scope():
                small_model()  # Keras counts it
                model = small_model()
            manifest = tfps.CheckpointManager(model, folder).restore_latest()
            assert manifest is not None
            assert_same(model, restored)
            now = strategy.stats()
            assert now.versions == stats.versions[:1] * servers
            assert now.gradient_staleness_updates == stats.gradient_staleness_updates
            fit(model)
            assert_same(model, trained, tolerance=1e-5)
            assert strategy.stats().versions == (2 * STEPS,) * servers
    keras.utils.set_random_seed(99)
    with tf.device(LOCAL):
        alone = small_model()
        manager = tfps.CheckpointManager(alone, folder)
        manifest = manager.restore_latest()
        assert manifest is not None
        assert manifest.epoch == 1
        assert_same(alone, restored)
        fit(alone)
        assert_same(alone, trained, tolerance=1e-5)
        manager.save(epoch=2)
        manager.wait()
    # And from what has no servers back to servers.
    with strategy_with(cluster(workers=1, ps=2), None, placement="round_robin") as strategy:
        model = small_model_on(strategy)
        manifest = tfps.CheckpointManager(model, folder).restore_latest()
        assert manifest is not None
        assert (manifest.epoch, manifest.counters) == (2, None)
        assert_same(model, trained, tolerance=1e-5)


@pytest.mark.rare
def test_what_does_not_fit_is_refused(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    tfps.CheckpointManager(small_model_on(strategy), tmp_path).save(background=False)
    other = small_model_on(strategy, width=5)
    fit(other)
    before = state_of(other)
    with raises(CheckpointError, "float32 (8, 16)", received="float32 (8, 5)"):
        tfps.CheckpointManager(other, tmp_path).restore(1)
    assert_same(other, before)


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "adafactor": lambda: keras.optimizers.Adafactor(0.1),
    "loss scale": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, 0.9)),
    "staleness aware": lambda: tfps.optimizers.StalenessAware(keras.optimizers.Adam()),
    "async adam": lambda: tfps.optimizers.AsyncAdam(0.01),
    "ema": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=3),
}


# Adam is in test_more_and_fewer_servers_and_one_process.
@pytest.mark.repeats
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_optimizers(
    optimizer: Callable[[], Any], strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    """A model that was never trained restores it, and trains on with the same numbers."""
    model = small_model_on(strategy, optimizer=optimizer())
    fit(model)
    tfps.CheckpointManager(model, tmp_path).save(background=False)
    fit(model)
    expected = state_of(model)
    fresh = small_model_on(strategy, optimizer=optimizer())
    tfps.CheckpointManager(fresh, tmp_path).restore_latest()
    fit(fresh)
    assert_same(fresh, expected, tolerance=1e-6)
