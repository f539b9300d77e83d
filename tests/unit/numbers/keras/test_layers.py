"""Preprocessing with tables, masks, recurrence and state inside a model."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import LABELS, Comparison, X, cross_entropy, fit

EXAMPLES = len(X)
RANDOM = np.random.default_rng(1)
WORDS = np.array(["a", "b", "c", "other"])[RANDOM.integers(0, 4, EXAMPLES)][:, None]
NUMBERS = RANDOM.integers(5, 9, size=(EXAMPLES, 1))
TEXT = tf.constant([["the cat sat"], ["a dog ran"], ["the dog sat"], ["far"]] * (EXAMPLES // 4))
BINARY = (WORDS == "a").astype("float32")
layers = keras.layers

pytestmark = pytest.mark.timeout(180)


@pytest.mark.repeats
def test_tables_in_the_model(comparison: Comparison) -> None:
    def make() -> keras.Model:
        word, number = keras.Input((1,), dtype="string"), keras.Input((1,), dtype="int64")
        columns = [
            layers.StringLookup(vocabulary=["a", "b", "c"], output_mode="one_hot")(word),
            layers.IntegerLookup(vocabulary=[5, 6, 7], output_mode="one_hot")(number),
            layers.CategoryEncoding(7, "one_hot")(layers.Hashing(7)(word)),
        ]
        output = layers.Dense(1, "sigmoid")(layers.Concatenate()(columns))
        model = keras.Model([word, number], output)
        model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
        return model

    def use(model: keras.Model) -> dict[str, Any]:
        inputs = [tf.constant(WORDS), NUMBERS]
        history = fit(model, inputs, BINARY)
        return {
            **history,
            "predicted": model.predict(inputs, verbose=0),
            "evaluated": model.evaluate(inputs, BINARY, verbose=0),
        }

    comparison.run(make, use)


@pytest.mark.repeats
def test_text_and_normalization_after_adapt(comparison: Comparison) -> None:
    def make() -> keras.Model:
        vectorized = layers.TextVectorization(output_mode="count")
        vectorized.adapt(TEXT[:, 0])
        scaled = layers.Normalization()
        scaled.adapt(X)
        text, features = keras.Input((1,), dtype="string"), keras.Input((8,))
        both = layers.Concatenate()([layers.Flatten()(vectorized(text)), scaled(features)])
        model = keras.Model([text, features], layers.Dense(3)(both))
        model.compile("adam", cross_entropy())
        return model

    comparison.run(make, lambda m: fit(m, [TEXT, X], LABELS))


@pytest.mark.repeats
def test_layers_adapted_outside_the_scope(strategy: tfps.ParameterServerStrategy) -> None:
    vectorized = layers.TextVectorization(output_mode="count")
    vectorized.adapt(TEXT[:, 0])
    scaled, sorted_in = layers.Normalization(), layers.Discretization(num_bins=4)
    scaled.adapt(X)
    sorted_in.adapt(X)
    with strategy.scope():
        text, features = keras.Input((1,), dtype="string"), keras.Input((8,))
        columns = [
            layers.Flatten()(vectorized(text)),
            scaled(features),
            layers.CategoryEncoding(4, "count")(sorted_in(features)),
        ]
        model = keras.Model([text, features], layers.Dense(3)(layers.Concatenate()(columns)))
        model.compile("adam", cross_entropy())
    history = fit(model, [TEXT, X], LABELS, epochs=6)
    assert history["loss"][-1] < history["loss"][0]


@pytest.mark.repeats
def test_table_in_the_input_pipeline(strategy: tfps.ParameterServerStrategy) -> None:
    lookup = layers.StringLookup(vocabulary=["a", "b", "c"])
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((1,), dtype="int64"), layers.Embedding(4, 2), layers.Flatten()]
        )
        model.add(layers.Dense(1, "sigmoid"))
        model.compile("adam", "binary_crossentropy")
    data = tf.data.Dataset.from_tensor_slices((WORDS, BINARY)).batch(16)
    history = model.fit(data.map(lambda x, y: (lookup(x), y)), epochs=6, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]


@pytest.mark.repeats
def test_masked_recurrent_layers_with_dropout(comparison: Comparison) -> None:
    sequences = RANDOM.normal(size=(EXAMPLES, 5, 3)).astype("float32")
    sequences[:, 3:][::2] = 0.0

    def make() -> keras.Model:
        model = keras.Sequential(
            [
                keras.Input((None, 3)),
                layers.Masking(),
                layers.Bidirectional(
                    layers.LSTM(4, return_sequences=True, dropout=0.1, recurrent_dropout=0.1)
                ),
                layers.GRU(3),
                layers.Dense(3),
            ]
        )
        model.compile("sgd", cross_entropy(), metrics=["accuracy"])
        return model

    comparison.run(make, lambda m: fit(m, sequences, LABELS))


@pytest.mark.repeats
def test_stateful_recurrent_layer(comparison: Comparison) -> None:
    sequences = RANDOM.normal(size=(EXAMPLES, 4, 3)).astype("float32")

    def make() -> keras.Model:
        model = keras.Sequential(
            [keras.Input(batch_shape=(16, 4, 3)), layers.LSTM(4, stateful=True), layers.Dense(3)]
        )
        model.compile("sgd", cross_entropy())
        return model

    comparison.run(make, lambda m: fit(m, sequences, LABELS))


@pytest.mark.repeats
def test_convolutions_with_augmentation(comparison: Comparison) -> None:
    images = RANDOM.normal(size=(EXAMPLES, 8, 8, 3)).astype("float32")

    def make() -> keras.Model:
        model = keras.Sequential(
            [
                keras.Input((8, 8, 3)),
                layers.RandomFlip(seed=1),
                layers.RandomRotation(0.1, seed=2),
                layers.Conv2D(4, 3),
                layers.BatchNormalization(),
                layers.SpatialDropout2D(0.1),
                layers.GlobalMaxPooling2D(),
                layers.GaussianNoise(0.1),
                layers.Dense(3),
            ]
        )
        model.compile("sgd", cross_entropy())
        return model

    comparison.run(make, lambda m: fit(m, images, LABELS))


@pytest.mark.repeats
def test_attention(comparison: Comparison) -> None:
    def make() -> keras.Model:
        inputs = keras.Input((4, 2))
        hidden = layers.Dense(8)(inputs)
        attended = layers.MultiHeadAttention(2, 4, dropout=0.1)(hidden, hidden)
        hidden = layers.LayerNormalization()(layers.Add()([hidden, attended]))
        hidden = layers.SpectralNormalization(layers.Dense(4))(layers.Flatten()(hidden))
        model = keras.Model(inputs, layers.Dense(3)(hidden))
        model.compile(keras.optimizers.SGD(0.1, weight_decay=0.01), cross_entropy())
        return model

    comparison.run(make, lambda m: fit(m, X.reshape(-1, 4, 2), LABELS))


class Outputs(keras.metrics.Metric):
    """A result in parts, of state in two dtypes."""

    def __init__(self) -> None:
        super().__init__(name="outputs")
        self.total = self.add_variable((3,), "zeros", name="total")
        self.count = self.add_variable((), "zeros", dtype="int32", name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(tf.reduce_sum(tf.abs(y_pred), 0))
        self.count.assign_add(tf.shape(y_pred)[0])

    def result(self) -> dict[str, Any]:
        mean = self.total / tf.cast(self.count, "float32")
        return {"largest": tf.reduce_max(mean), "examples": self.count}


class ScaledLayer(keras.layers.Layer):
    """Weights with a regularizer and a constraint, and a count of its calls."""

    def build(self, input_shape: Any) -> None:
        self.kernel = self.add_weight(
            shape=(input_shape[-1], 3),
            regularizer=keras.regularizers.L2(0.01),
            constraint=keras.constraints.MaxNorm(1.0),
        )
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.calls.assign_add(1.0)
        return tf.matmul(inputs, self.kernel)


@pytest.mark.repeats
def test_own_layer_and_own_metric(comparison: Comparison) -> None:
    def make() -> keras.Model:
        model = keras.Sequential([keras.Input((8,)), ScaledLayer()])
        model.compile("adam", cross_entropy(), metrics=[Outputs()])
        return model

    comparison.run(make, lambda m: fit(m, validation_split=0.25))
