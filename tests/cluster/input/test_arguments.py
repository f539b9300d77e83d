"""The arguments of `fit` give the numbers of plain Keras, and every structure of a batch travels.

At a learning rate of zero the logs of an epoch do not depend on the order of its batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps

EXAMPLES, BATCH = 60, 8
_random = np.random.default_rng(2)
X = _random.normal(size=(EXAMPLES, 4)).astype("float32")
Y = X[:, :3].argmax(1)
TARGET = X[:, :1] - X[:, 1:2]
WEIGHTS = _random.uniform(0.5, 2.0, size=EXAMPLES).astype("float32")
CLASS_WEIGHTS = {0: 1.0, 1: 2.0, 2: 0.5}

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]


def _dataset(count: int = EXAMPLES) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X[:count], Y[:count])).batch(BATCH)


ARRAYS: dict[str, Any] = {"x": X, "y": Y, "batch_size": BATCH}
ARGUMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "class_weight": lambda: ARRAYS | {"class_weight": CLASS_WEIGHTS},
    "sample_weight": lambda: ARRAYS | {"sample_weight": WEIGHTS},
    "class_weight of a dataset": lambda: {"x": _dataset(), "class_weight": CLASS_WEIGHTS},
    "validation_split": lambda: ARRAYS | {"validation_split": 0.25, "epochs": 2},
    "validation_freq": lambda: (
        ARRAYS | {"validation_data": (X[:37], Y[:37]), "validation_freq": 2, "epochs": 4}
    ),
    "validation_data with weights": lambda: (
        ARRAYS | {"validation_data": (X[:37], Y[:37], WEIGHTS[:37]), "validation_batch_size": 5}
    ),
    "validation_steps": lambda: (
        {"x": _dataset(), "validation_data": _dataset(40).repeat(), "validation_steps": 4}
    ),
    "initial_epoch": lambda: ARRAYS | {"initial_epoch": 2, "epochs": 4},
    "steps_per_epoch": lambda: (
        {"x": _dataset().repeat(), "steps_per_epoch": 8, "epochs": 2, "verbose": 2}
    ),
    "data that end early": lambda: {"x": _dataset(), "steps_per_epoch": 5, "epochs": 2},
}


@pytest.fixture(scope="module")
def pair(strategy: tfps.ParameterServerStrategy) -> tuple[keras.Model, keras.Model]:
    """One model under the strategy, and the same without a strategy."""
    plain = _classifier()
    with strategy.scope():
        ours = _classifier()
    return ours, plain


def _classifier() -> keras.Model:
    start = keras.initializers.RandomNormal(seed=4)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, kernel_initializer=start)])
    model.compile(
        keras.optimizers.SGD(0.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=["accuracy"],
    )
    return model


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_of_fit(name: str, pair: tuple[keras.Model, keras.Model]) -> None:
    ours, plain = (
        model.fit(**({"verbose": 0, "shuffle": False} | ARGUMENTS[name]())).history
        for model in pair
    )
    assert set(ours) == set(plain)
    for key, values in plain.items():
        np.testing.assert_allclose(ours[key], values, rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("shards", [None, 3])
def test_class_weights_of_a_dataset_function(
    shards: int | None, pair: tuple[keras.Model, keras.Model]
) -> None:
    def share(context: tf.distribute.InputContext) -> tf.data.Dataset:
        examples = tf.data.Dataset.from_tensor_slices((X, Y))
        return examples.shard(context.num_input_pipelines, context.input_pipeline_id).batch(6)

    data = share if shards is None else tfps.ShardedDataset(share, number=shards)
    ours = pair[0].fit(data, class_weight=CLASS_WEIGHTS, verbose=0).history
    plain = pair[1].fit(X, Y, batch_size=6, class_weight=CLASS_WEIGHTS, verbose=0).history
    np.testing.assert_allclose(ours["loss"], plain["loss"], rtol=1e-4)


class Bags(keras.layers.Layer):
    """Means of embeddings over ragged rows."""

    def build(self, input_shape: Any) -> None:
        self.table = self.add_weight(shape=(10, 3), name="table")

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0], 3)

    def call(self, inputs: Any) -> Any:
        if not isinstance(inputs, tf.RaggedTensor):
            return tf.zeros([tf.shape(inputs)[0], 3])
        table = tf.convert_to_tensor(self.table)
        return tf.reduce_mean(tf.gather(table, inputs), 1)


def _two_towers() -> keras.Model:
    left, right = keras.Input((4,), name="left"), keras.Input((1,), name="right")
    both = keras.layers.Concatenate()([left, right])
    outputs = {"near": keras.layers.Dense(1)(both), "far": keras.layers.Dense(2)(both)}
    return keras.Model({"left": left, "right": right}, outputs)


def _of_sparse() -> keras.Model:
    return keras.Sequential([keras.Input((4,), sparse=True), keras.layers.Dense(1)])


def _of_ragged() -> keras.Model:
    return keras.Sequential(
        [keras.Input((None,), dtype="int32", ragged=True), Bags(), keras.layers.Dense(1)]
    )


def _of_words() -> keras.Model:
    lookup = keras.layers.StringLookup(vocabulary=["red", "green"], output_mode="one_hot")
    return keras.Sequential([keras.Input((1,), dtype="string"), lookup, keras.layers.Dense(1)])


def _towers_data() -> tf.data.Dataset:
    features = {"left": X, "right": TARGET}
    targets = {"near": TARGET, "far": X[:, :2]}
    return tf.data.Dataset.from_tensor_slices((features, targets)).batch(BATCH)


def _sparse_data() -> tf.data.Dataset:
    dense = tf.data.Dataset.from_tensor_slices((np.maximum(X, 0.0), TARGET)).batch(BATCH)
    return dense.map(lambda x, y: (tf.sparse.from_dense(x), y))


def _ragged_data() -> tf.data.Dataset:
    lengths = 1 + np.arange(EXAMPLES) % 5
    rows = tf.RaggedTensor.from_row_lengths(np.arange(lengths.sum()) % 10, lengths)
    return tf.data.Dataset.from_tensor_slices((tf.cast(rows, tf.int32), TARGET)).batch(BATCH)


def _words_data() -> tf.data.Dataset:
    words = np.array(["red", "green", "blue"])[Y][:, None]
    return tf.data.Dataset.from_tensor_slices((words, TARGET)).batch(BATCH)


STRUCTURES = [
    pytest.param(_two_towers, _towers_data, id="dicts"),
    pytest.param(_of_sparse, _sparse_data, id="sparse"),
    pytest.param(_of_ragged, _ragged_data, id="ragged"),
    pytest.param(_of_words, _words_data, id="strings"),
]


@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize(("make", "data"), STRUCTURES)
def test_structures_of_batches(
    make: Callable[[], keras.Model],
    data: Callable[[], tf.data.Dataset],
    fed: bool,
    strategy: tfps.ParameterServerStrategy,
) -> None:
    """Workers iterate the dataset themselves, or (fed) get each batch from the chief."""
    plain = make()
    with strategy.scope():
        ours = make()
    for model in (plain, ours):
        model.compile(keras.optimizers.SGD(0.0), "mse")
    ours.set_weights(plain.get_weights())

    def input_of_fit() -> tf.data.Dataset:
        spec = data().element_spec
        return (
            tf.data.Dataset.from_generator(lambda: iter(data()), output_signature=spec)
            if fed
            else data()
        )

    history = ours.fit(input_of_fit(), verbose=0).history
    expected = plain.fit(data(), verbose=0).history
    for key, values in expected.items():
        if key in history:  # names of outputs are counted on within a process
            np.testing.assert_allclose(history[key], values, rtol=1e-4, err_msg=key)
    predicted, wanted = ours.predict(input_of_fit(), verbose=0), plain.predict(data(), verbose=0)
    for left, right in zip(tf.nest.flatten(predicted), tf.nest.flatten(wanted), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)
