"""A large table is whole on no process but its servers, except where a program asks for all of it.

The limit of 64 MiB is brought down to 1 MiB here, and a block is 0.1 MB, so that small tables show
it; `tests/cluster/training/test_memory_of_tables.py` looks at the memory of processes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import check_message, raises
from tests.unit.numbers.comparison import (
    LABELS,
    LOCAL,
    TOLERANCE,
    assert_same,
    assert_same_state,
    cross_entropy,
    densify,
    fit,
)
from tests.unit.numbers.large_tables import IDS, ROWS, TABLE_BYTES, WIDTH, small_tables
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tfps.bridge.variables import keras_file, row_blocks, sharded_variable
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.bridge.variables.sharded_variable import ShardedVariable
from tfps.bridge.variables.shards import get_size_bytes
from tfps.runtime.program import tables
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)

LIMIT_BYTES = 1 << 20
Clusters = Callable[..., InProcessCluster]


@pytest.fixture(autouse=True)
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TABLE_BYTES > LIMIT_BYTES
    for module in (keras_file, row_blocks, sharded_variable, tables):
        monkeypatch.setattr(module, "WHOLE_BYTES", LIMIT_BYTES)
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 100_000)


@contextlib.contextmanager
def rows_alone() -> Iterator[None]:
    """While it is open, to read or write all of a large variable eagerly is an error."""
    with pytest.MonkeyPatch.context() as patches:

        def refuse(kind: type[Any], name: str) -> None:
            original = getattr(kind, name)

            def access(self: Any, *arguments: Any, **options: Any) -> Any:
                is_small = get_size_bytes(self) <= LIMIT_BYTES
                assert is_small or not tf.executing_eagerly(), f"{name} of all of {self.name}"
                return original(self, *arguments, **options)

            patches.setattr(kind, name, access)

        for name in ("numpy", "assign", "read_value", "value"):
            refuse(ServerVariable, name)
        for name in ("numpy", "assign", "read_composed"):
            refuse(ShardedVariable, name)
        yield


@pytest.fixture(scope="module", params=["shuffle", "modulo", "fixed", None])
def divided(
    request: pytest.FixtureRequest, cluster: Clusters
) -> Iterator[tfps.ParameterServerStrategy]:
    partitioner = PARTITIONERS.get(request.param)
    with strategy_with(cluster(workers=1, ps=2), partitioner) as strategy:
        yield strategy


def _trained(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    with strategy.scope():
        model = small_tables()
    fit(model, IDS, LABELS, epochs=1)
    return model


def _local_with(weights: list[np.ndarray]) -> keras.Model:
    with tf.device(LOCAL):
        model = small_tables()
        model.set_weights(weights)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.keras", "a.weights.h5"])
def test_files_of_keras(name: str, divided: tfps.ParameterServerStrategy, tmp_path: Path) -> None:
    """Written and read in blocks; one process finds in them what it always does."""
    path, is_model = tmp_path / name, name.endswith(".keras")
    trained = _trained(divided)

    def read() -> keras.Model:
        if is_model:
            return keras.saving.load_model(path)
        model = small_tables()
        model.optimizer.build(model.trainable_variables)
        model.load_weights(path)
        return model

    with rows_alone():
        trained.save(path) if is_model else trained.save_weights(path)
        with divided.scope():
            again = read()
        again.load_weights(path)
    with tf.device(LOCAL):
        local = read()
    for model in (again, local):
        assert_same_state(model, trained, tolerance=0.0)
    densify(local.optimizer)
    for model in (again, local):
        fit(model, IDS, LABELS, epochs=1)
    assert_same_state(again, local)


@pytest.mark.rare
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_every_dtype_is_written_as_keras_writes_it(
    dtype: str, strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    def make() -> keras.Model:
        layer = keras.layers.Embedding(ROWS, 4 * WIDTH, dtype=dtype)
        return keras.Sequential([keras.Input((5,)), layer])

    with strategy.scope():
        model = make()
    with rows_alone():
        model.save_weights(tmp_path / "a.weights.h5")
    with tf.device(LOCAL):
        local = make()
        local.load_weights(tmp_path / "a.weights.h5")
    np.testing.assert_array_equal(local.get_weights()[0], model.get_weights()[0])
    with strategy.scope():
        again = make()
    with rows_alone():
        again.load_weights(tmp_path / "a.weights.h5")
    np.testing.assert_array_equal(again.get_weights()[0], model.get_weights()[0])


class DoublingEmbedding(keras.layers.Embedding):
    """Takes over from a file something else than what it has written."""

    def load_own_variables(self, store: Any) -> None:
        self._embeddings.assign(store["0"] * 2 + store["0"].astype("float32"))


@pytest.mark.rare
def test_a_layer_may_do_with_a_file_what_it_likes(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.Input((5,)), DoublingEmbedding(ROWS, WIDTH)])
    (before,) = model.get_weights()
    model.save_weights(tmp_path / "a.weights.h5")
    model.load_weights(tmp_path / "a.weights.h5")
    np.testing.assert_array_equal(model.get_weights()[0], 3 * before)


@pytest.mark.rare
def test_a_file_of_another_shape_is_refused(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    with strategy.scope():
        models = [
            keras.Sequential([keras.Input((5,)), keras.layers.Embedding(ROWS + more, WIDTH)])
            for more in (0, 1)
        ]
    models[0].save_weights(tmp_path / "a.weights.h5")
    with raises(ValueError, "shape=(20001, 16)", received="value.shape=(20000, 16"):
        models[1].load_weights(tmp_path / "a.weights.h5")


@pytest.mark.repeats
def test_predictions_on_the_chief(divided: tfps.ParameterServerStrategy) -> None:
    """Ask for the rows of each batch, also after the table has changed and was moved."""
    with divided.scope():
        model = small_tables()
    for _ in range(2):
        local = _local_with(model.get_weights())
        before = divided.stats().bytes_pulled
        with rows_alone():
            found = [model.predict(IDS, verbose=0), model.predict_on_batch(IDS[:7])]
            found.append(model.predict(IDS[:9], batch_size=3, verbose=0))
        expected = [local.predict(IDS, verbose=0)]
        for each, rows in zip(found, (64, 7, 9), strict=True):
            np.testing.assert_allclose(each, expected[0][:rows], atol=TOLERANCE)
        assert divided.stats().bytes_pulled == before  # no worker has taken part
        fit(model, IDS, LABELS, epochs=1)


@pytest.mark.repeats
def test_callbacks(divided: tfps.ParameterServerStrategy, tmp_path: Path) -> None:
    """Saving and predicting within `fit`."""
    predictions: list[np.ndarray] = []

    class Predict(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            predictions.append(self.model.predict(IDS, verbose=0))

    with divided.scope():
        model = small_tables()
    callbacks = [
        Predict(),
        keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.keras"),
        tfps.callbacks.Checkpoint(tfps.CheckpointManager(model, tmp_path / "managed")),
    ]
    with rows_alone():
        fit(model, IDS, LABELS, epochs=2, callbacks=callbacks)
    for epoch, predicted in enumerate(predictions):
        with tf.device(LOCAL):
            local = keras.saving.load_model(tmp_path / f"{epoch + 1}.keras")
        np.testing.assert_allclose(local.predict(IDS, verbose=0), predicted, atol=TOLERANCE)


@pytest.mark.repeats
def test_what_is_exported_answers_in_plain_tensorflow(
    divided: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    model = _trained(divided)
    with rows_alone():
        model.export(str(tmp_path / "exported"), verbose=False)
    with tf.device(LOCAL):
        loaded = tf.saved_model.load(str(tmp_path / "exported"))
        served = loaded.serve(IDS.astype("int32"))
    np.testing.assert_allclose(served, model.predict(IDS, verbose=0), atol=TOLERANCE)


@pytest.mark.repeats
def test_checkpoints_of_tensorflow(divided: tfps.ParameterServerStrategy, tmp_path: Path) -> None:
    model = _trained(divided)
    with rows_alone():
        path = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    with divided.scope():
        again = small_tables()
    local = _local_with(again.get_weights())
    for each in (again, local):
        tf.train.Checkpoint(model=each).read(path).expect_partial()
        assert_same(each.get_weights(), model.get_weights(), tolerance=0.0)


def _regularized() -> keras.Model:
    layer = keras.layers.Embedding(ROWS, WIDTH, embeddings_regularizer="l2", name="words")
    pooled = keras.layers.GlobalAveragePooling1D()
    model = keras.Sequential([keras.Input((5,)), layer, pooled, keras.layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.5), cross_entropy())
    return model


@pytest.mark.rare
def test_a_step_that_reads_all_of_a_table(
    strategy: tfps.ParameterServerStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    """The user's own code asks for all of it: it trains, and is named once."""
    with strategy.scope():
        model = _regularized()
    for _ in range(2):
        fit(model, IDS, LABELS)
        model.make_train_function(force=True)
    (said,) = (r.getMessage() for r in caplog.records if "whole table" in r.getMessage())
    check_message(said, "words/embeddings: ", received=" MiB", remedy="replace the regularizer")
