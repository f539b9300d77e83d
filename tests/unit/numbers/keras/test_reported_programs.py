"""Programs of public reports, of other libraries as well, that work under the strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import (
    BATCH,
    LABELS,
    STEPS,
    Comparison,
    Numbers,
    X,
    assert_same,
    compiled,
    cross_entropy,
    fit,
    lie_on_servers,
    linear,
)
from tests.unit.numbers.conftest import Clusters

pytestmark = pytest.mark.timeout(240)

SERVERS = 4

MODES = [
    tfps.Asynchronous(),
    tfps.BoundedStaleness(1),
    tfps.LocalSteps(3),
    tfps.LocalSteps(3, synchronous_periods=True),
    tfps.Synchronous(),
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


PARTITIONERS = [
    None,
    tfps.partitioners.FixedShardsPartitioner(SERVERS),
    tfps.partitioners.RowShuffle(),
]


@pytest.mark.repeats
@pytest.mark.parametrize("partitioner", PARTITIONERS, ids=repr)
@pytest.mark.parametrize("rows", [1, 5])
def test_rows_are_no_multiple_of_servers(
    cluster: Clusters, tmp_path: Path, rows: int, partitioner: Any
) -> None:
    """A table of fewer rows than servers leaves servers empty: torchrec 1591."""
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=SERVERS).cluster_resolver, variable_partitioner=partitioner
    )
    with strategy.scope():
        model = _looking_up(rows)
    ids = {"ids": np.arange(60).reshape(20, 3) % rows}
    model.fit(ids, np.ones([20, 1]), batch_size=4, verbose=0)
    manager = tfps.CheckpointManager(model, tmp_path / "checkpoints")
    manager.save(background=False)
    saved = model.get_weights()
    path = model.trainable_variables[0].path
    pulled, _ = strategy.pull_rows(path, np.arange(rows)[::-1])
    assert_same(pulled, saved[0][::-1], tolerance=0)
    model.fit(ids, np.ones([20, 1]), batch_size=4, verbose=0)
    manager.restore_latest()
    assert_same(model.get_weights(), saved, tolerance=0)
    model.save(tmp_path / "model.keras")
    strategy.close()
    assert_same(keras.saving.load_model(tmp_path / "model.keras").get_weights(), saved, tolerance=0)


@pytest.mark.rare
def test_more_servers_than_variables(cluster: Clusters, tmp_path: Path) -> None:
    """Servers without any variable take part in nothing that waits for them: Paddle 2224."""
    weights = []
    for servers in (SERVERS, 1):
        strategy = tfps.ParameterServerStrategy(cluster(workers=1, ps=servers).cluster_resolver)
        with strategy.scope():
            model = linear()
        manager = tfps.CheckpointManager(model, tmp_path / "checkpoints")
        if servers == 1:
            manager.restore_latest()
            weights.append(model.get_weights())
        fit(model)
        manager.save(background=False)
        weights.append(model.get_weights())
        strategy.close()
    assert_same(weights[1], weights[0], tolerance=0)
    plain = linear()
    plain.set_weights(weights[0])
    fit(plain)
    assert_same(weights[2], plain.get_weights())


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


def _features() -> dict[str, Any]:
    numbers = np.arange(len(X))
    words = tf.constant(np.array(["a", "b", "?"])[numbers % 3][:, None])
    return {"widths": X[:, :2], "ids": numbers[:, None] % 5, "words": words}


def _of_a_dict() -> keras.Model:
    layers = keras.layers
    inputs = {
        "widths": keras.Input((2,), name="widths"),
        "ids": keras.Input((1,), name="ids", dtype="int32"),
        "words": keras.Input((1,), name="words", dtype="string"),
    }
    looked_up = layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(inputs["words"])
    rows = layers.Flatten()(layers.Embedding(5, 3)(inputs["ids"]))
    model = keras.Model(
        inputs, layers.Dense(3)(keras.ops.concatenate([inputs["widths"], rows, looked_up], axis=1))
    )
    model.compile(keras.optimizers.Adam(), cross_entropy())
    model.optimizer.build(model.trainable_variables)
    return model


def _batches() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((_features(), LABELS)).batch(BATCH)


@pytest.mark.repeats
@pytest.mark.parametrize("loop", ["fit", "scheduled functions"])
def test_numbers_ids_and_words_in_a_dict(comparison: Comparison, loop: str) -> None:
    """Keras 20329: inputs of three types by their names."""

    def step(model: keras.Model, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    def use(model: keras.Model) -> Numbers:
        if loop == "fit":
            return fit(model, _features(), LABELS)
        if not lie_on_servers(comparison.strategy, model.trainable_variables):
            return {"losses": [step(model, batch) for batch in _batches()]}
        coordinator = tfps.ClusterCoordinator(comparison.strategy)
        iterator = iter(coordinator.create_per_worker_dataset(_batches))
        function = tf.function(lambda iterator: step(model, next(iterator)))
        results = [coordinator.schedule(function, (iterator,)) for _ in range(STEPS)]
        coordinator.join()
        return {"losses": [result.fetch() for result in results]}

    comparison.run(_of_a_dict, use)


@pytest.mark.repeats
@pytest.mark.parametrize("labels", ["numbers", "one-hot"])
def test_weights_of_classes(comparison: Comparison, labels: str) -> None:
    """Keras 20701."""
    one_hot = keras.losses.CategoricalCrossentropy(from_logits=True)

    def make() -> keras.Model:
        model = linear()
        model.compile("sgd", cross_entropy() if labels == "numbers" else one_hot)
        return model

    y = LABELS if labels == "numbers" else np.eye(3, dtype="float32")[LABELS]
    comparison.run(make, lambda model: fit(model, X, y, class_weight={0: 1.0, 1: 4.0, 2: 0.25}))


@pytest.mark.rare
def test_weights_of_classes_of_several_outputs_are_refused_as_by_keras(
    comparison: Comparison,
) -> None:
    def make() -> keras.Model:
        inputs = keras.Input((8,))
        model = keras.Model(inputs, [keras.layers.Dense(3)(inputs) for _ in range(2)])
        model.compile("sgd", [cross_entropy(), cross_entropy()])
        return model

    messages = []
    for model in comparison.pair(make):
        with pytest.raises(ValueError, match="class_weight") as caught:
            fit(model, X, [LABELS, LABELS], class_weight={0: 1.0, 1: 4.0, 2: 0.25})
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
