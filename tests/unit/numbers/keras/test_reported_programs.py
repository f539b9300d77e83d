"""Programs of public reports, of other libraries as well, that work under the strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import LABELS, Comparison, Numbers, X, assert_same, compiled, fit
from tests.unit.numbers.conftest import Clusters

pytestmark = pytest.mark.timeout(240)

MODES = [
    tfps.Asynchronous(),
    tfps.Asynchronous(pipeline_steps=1),
    tfps.BoundedStaleness(1),
    tfps.LocalSteps(3),
    tfps.LocalSteps(3, synchronous_periods=True),
    tfps.Synchronous(),
    tfps.Synchronous(adaptive_batches=2),
]


class StepCounter(keras.callbacks.Callback):
    """Counts the steps of all epochs."""

    steps = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1


@pytest.mark.repeats
@pytest.mark.parametrize("mode", MODES, ids=repr)
def test_a_partial_last_batch_ends_each_epoch(cluster: Clusters, mode: Any) -> None:
    """Seven batches of nine and one of one, for two workers: TF#24997, TF#36153."""
    strategy = tfps.ParameterServerStrategy(cluster(workers=2).cluster_resolver, consistency=mode)
    with strategy.scope():
        model = compiled()
    counter = StepCounter()
    fit(model, batch_size=9, epochs=3, callbacks=[counter])
    strategy.close()
    assert counter.steps == 3 * 8


@pytest.mark.repeats
def test_early_stopping_serves_two_fits(comparison: Comparison) -> None:
    """The callback begins anew in the second call: Keras PR 22967."""

    def use(model: keras.Model) -> Numbers:
        stopping = keras.callbacks.EarlyStopping(monitor="loss", patience=1)
        results: dict[str, Any] = {}
        for call in range(2):
            history = fit(model, epochs=5, callbacks=[stopping])
            results[f"losses {call}"] = history["loss"]
            results[f"best {call}"] = [stopping.best]
        return results

    comparison.run(use=use)


def _looking_up(rows: int) -> keras.Model:
    inputs = {"ids": keras.Input((3,), dtype="int32", name="ids")}
    features = tfps.layers.EmbeddingCollection({"ids": tfps.layers.Table("table", rows, 4)})(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1, use_bias=False)(features["ids"]))
    model.compile("adam", "mse")
    return model


@pytest.mark.repeats
@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_more_servers_than_rows(
    cluster: Clusters, tmp_path: Path, rows: int, divided: bool
) -> None:
    """A table of fewer rows than servers leaves servers empty: torchrec 1591, Paddle 2224."""
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver,
        variable_partitioner=tfps.partitioners.FixedShardsPartitioner(2) if divided else None,
    )
    with strategy.scope():
        model = _looking_up(rows)
    ids = {"ids": np.arange(60).reshape(20, 3) % rows}
    model.fit(ids, np.ones([20, 1]), batch_size=4, verbose=0)
    manager = tfps.CheckpointManager(model, tmp_path / "checkpoints")
    manager.save(background=False)
    saved = model.get_weights()
    model.fit(ids, np.ones([20, 1]), batch_size=4, verbose=0)
    manager.restore_latest()
    assert_same(model.get_weights(), saved, tolerance=0)
    model.save(tmp_path / "model.keras")
    strategy.close()
    assert_same(keras.saving.load_model(tmp_path / "model.keras").get_weights(), saved, tolerance=0)


@pytest.mark.repeats
def test_checkpoints_of_tensorflow_in_small_files(cluster: Clusters, tmp_path: Path) -> None:
    """A sharding policy and a divided table write each part once: TF#73836."""
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver,
        variable_partitioner=tfps.partitioners.FixedShardsPartitioner(2),
    )
    with strategy.scope():
        model = compiled()
    fit(model)
    policy = tf.train.experimental.MaxShardSizePolicy(max_shard_size=200)
    options = tf.train.CheckpointOptions(experimental_sharding_callback=policy)
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"), options=options)
    expected = model.get_weights()
    strategy.close()
    assert len(list(tmp_path.glob("*.data-*"))) > 2
    plain = compiled()
    tf.train.Checkpoint(model=plain).read(path).expect_partial()
    assert_same(plain.get_weights(), expected, tolerance=0)
    assert plain.evaluate(X, LABELS, verbose=0)
