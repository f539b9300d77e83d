"""Whole programs of the kinds that users have: each gives the numbers of Keras on one machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from tests.unit.numbers.comparison import Comparison, Numbers

pytestmark = pytest.mark.timeout(240)

EXAMPLES, BATCH = 48, 12
# Adam divides by roots of tiny squares, which magnifies sums in another order.
TOLERANCE = 2e-4


def random() -> np.random.Generator:
    return np.random.default_rng(0)


def trained(x: Any, y: Any = None, **options: Any) -> Callable[[keras.Model], Numbers]:
    """Fits, evaluates and predicts a model as a program does."""

    def use(model: keras.Model) -> Numbers:
        shared: dict[str, Any] = {"batch_size": BATCH, "verbose": 0}
        history = model.fit(x, y, epochs=2, shuffle=False, **shared, **options).history
        results = {f"fit {name}": values for name, values in history.items()}
        for name, value in model.evaluate(x, y, return_dict=True, **shared).items():
            results[f"evaluate {name}"] = value
        return {**results, "predict": model.predict(x, **shared)}

    return use


class PositionalEmbedding(layers.Layer):
    def __init__(self, length: int, vocabulary: int, width: int) -> None:
        super().__init__()
        self.tokens = layers.Embedding(vocabulary, width, mask_zero=True)
        self.positions = layers.Embedding(length, width)
        self.length = length

    def build(self, input_shape: Any) -> None:
        self.tokens.build(input_shape)
        self.positions.build((self.length,))

    def call(self, inputs: Any) -> Any:
        return self.tokens(inputs) + self.positions(ops.arange(self.length))

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return self.tokens.compute_mask(inputs)


class TransformerBlock(layers.Layer):
    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.supports_masking = True
        self.attention = layers.MultiHeadAttention(heads, width // heads, dropout=0.1)
        self.feed_forward = keras.Sequential([layers.Dense(4 * width, "gelu"), layers.Dense(width)])
        self.norms = [layers.LayerNormalization() for _ in range(2)]
        self.dropout = layers.Dropout(0.1)

    def call(self, inputs: Any, training: bool = False) -> Any:
        attended = self.attention(inputs, inputs, use_causal_mask=True, training=training)
        hidden = self.norms[0](inputs + attended)
        fed = self.dropout(self.feed_forward(hidden), training=training)
        return self.norms[1](hidden + fed)


@pytest.mark.repeats
def test_transformer(comparison: Comparison) -> None:
    length, vocabulary, width = 12, 30, 16
    tokens = random().integers(1, vocabulary, size=(EXAMPLES, length + 1))
    tokens[::3, 8:] = 0  # padding

    def make() -> keras.Model:
        inputs = keras.Input((length,), dtype="int32")
        x = PositionalEmbedding(length, vocabulary, width)(inputs)
        for _ in range(2):
            x = TransformerBlock(2, width)(x)
        model = keras.Model(inputs, layers.Dense(vocabulary)(x))
        schedule = keras.optimizers.schedules.CosineDecay(
            0.0, 40, warmup_target=1e-3, warmup_steps=4
        )
        optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.01, global_clipnorm=1.0)
        optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
        model.compile(optimizer, loss, weighted_metrics=["sparse_categorical_accuracy"])
        return model

    comparison.run(make, trained(tokens[:, :-1], tokens[:, 1:]), tolerance=TOLERANCE)


@pytest.mark.repeats
def test_residual_network(comparison: Comparison) -> None:
    images = random().uniform(size=(EXAMPLES, 12, 12, 3)).astype("float32")
    labels = random().integers(0, 4, EXAMPLES)

    def block(x: Any, filters: int, strides: int) -> Any:
        shortcut = layers.Conv2D(filters, 1, strides)(x)
        for position in range(2):
            x = layers.Conv2D(filters, 3, strides if position == 0 else 1, "same", use_bias=False)(
                x
            )
            x = layers.BatchNormalization(momentum=0.9)(x)
            x = x if position else layers.ReLU()(x)
        return layers.ReLU()(layers.add([x, shortcut]))

    def make() -> keras.Model:
        inputs = keras.Input((12, 12, 3))
        x = layers.Rescaling(2.0, offset=-1.0)(inputs)
        for filters, strides in ((8, 1), (16, 2)):
            x = block(x, filters, strides)
        x = layers.GlobalAveragePooling2D()(x)
        model = keras.Model(inputs, layers.Dense(4)(x))
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, metrics=["accuracy"])
        return model

    comparison.run(make, trained(images, labels), tolerance=TOLERANCE)


@pytest.mark.repeats
def test_model_of_keras_applications(comparison: Comparison) -> None:
    images = random().uniform(size=(EXAMPLES // 2, 32, 32, 3)).astype("float32")
    labels = random().integers(0, 5, EXAMPLES // 2)

    def make() -> keras.Model:
        model = keras.applications.MobileNet(
            input_shape=(32, 32, 3), alpha=0.25, weights=None, classes=5, dropout=0.1
        )
        model.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy")
        return model

    def use(model: keras.Model) -> Numbers:
        results = trained(images, labels)(model)  # moves the moving averages only
        # One step: batches of 12 single pixels, normalised over and over, blow up the last bits of
        # any difference within four.
        model.optimizer.learning_rate = 0.01
        return {**results, "step": model.train_on_batch(images[:BATCH], labels[:BATCH])}

    comparison.run(make, use)


@pytest.mark.repeats
def test_wide_and_deep(comparison: Comparison) -> None:
    cities = random().choice(np.array(["Oslo", "Lima", "Bonn", "Pune"]), size=(EXAMPLES, 1))
    ages = random().integers(18, 80, size=(EXAMPLES, 1)).astype("float32")
    x = {"city": tf.constant(cities), "age": tf.constant(ages)}
    clicked = (ages[:, 0] > 40).astype("float32")

    def make() -> keras.Model:
        city, age = keras.Input((1,), dtype="string", name="city"), keras.Input((1,), name="age")
        lookup = layers.StringLookup(vocabulary=["Oslo", "Lima", "Bonn"])
        buckets = layers.Discretization(bin_boundaries=[30.0, 50.0])
        index, bucket = lookup(city), buckets(age)
        crossed = layers.HashedCrossing(16)((index, bucket))
        wide = layers.CategoryEncoding(16, output_mode="one_hot")(crossed)
        embedded = layers.Flatten()(layers.Embedding(4, 4)(index))
        deep = layers.Dense(8, "relu")(layers.concatenate([embedded, age / 80.0]))
        output = layers.Dense(1, "sigmoid")(layers.concatenate([wide, deep]))
        model = keras.Model({"city": city, "age": age}, output)
        metrics = [keras.metrics.AUC(name="auc"), "binary_accuracy"]
        model.compile(keras.optimizers.Ftrl(0.05), "binary_crossentropy", metrics=metrics)
        return model

    comparison.run(make, trained(x, clicked, class_weight={0: 1.0, 1: 3.0}))


class TwoTowers(keras.Model):
    """Users and items meet in one space; the other items of a batch are the negatives."""

    def __init__(self, users: list[str], items: list[str]) -> None:
        super().__init__()
        self.user_tower = self._tower(users)
        self.item_tower = self._tower(items)
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.top = keras.metrics.SparseTopKCategoricalAccuracy(3, name="top3")

    @staticmethod
    def _tower(names: list[str]) -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((), dtype="string"),
                layers.StringLookup(vocabulary=names),
                layers.Embedding(len(names) + 1, 8),
                layers.Dense(6),
                layers.UnitNormalization(),
            ]
        )

    def call(self, inputs: Any) -> Any:
        users, items = self.user_tower(inputs["user"]), self.item_tower(inputs["item"])
        return ops.matmul(users, ops.transpose(items)) / 0.1

    def _loss(self, inputs: Any) -> Any:
        scores = self(inputs)
        own = ops.arange(ops.shape(scores)[0])
        loss = ops.mean(keras.losses.sparse_categorical_crossentropy(own, scores, from_logits=True))
        self.loss_tracker.update_state(loss)
        self.top.update_state(own, scores)
        return loss

    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = self._loss(data)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {metric.name: metric.result() for metric in self.metrics}

    def test_step(self, data: Any) -> dict[str, Any]:
        self._loss(data)
        return {metric.name: metric.result() for metric in self.metrics}


@pytest.mark.slow
def test_two_towers(comparison: Comparison) -> None:
    users = [f"user {i}" for i in range(10)]
    items = [f"item {i}" for i in range(20)]
    views = {
        "user": tf.constant(random().choice(users, EXAMPLES)),
        "item": tf.constant(random().choice(items, EXAMPLES)),
    }

    def make() -> keras.Model:
        model = TwoTowers(users, items)
        model.compile(keras.optimizers.Adagrad(0.2))
        return model

    def use(model: keras.Model) -> Numbers:
        batches = tf.data.Dataset.from_tensor_slices(views).batch(BATCH)
        history = model.fit(batches, epochs=3, verbose=0).history
        results = model.evaluate(batches, verbose=0, return_dict=True)
        nearest = model.user_tower.predict(tf.constant(users), verbose=0)
        return {**history, "evaluated": list(results.values()), "users": nearest}

    model = comparison.run(make, use)
    assert model.loss_tracker.result() < 3.0


class Adversaries(keras.Model):
    """A generator and a discriminator with an optimizer each, as in the guide of Keras."""

    def __init__(self) -> None:
        super().__init__()
        self.discriminator = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                layers.Conv2D(8, 3, 2, "same"),
                layers.LeakyReLU(0.2),
                layers.GlobalMaxPooling2D(),
                layers.Dense(1),
            ]
        )
        self.generator = keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(4 * 4 * 4),
                layers.Reshape((4, 4, 4)),
                layers.Conv2DTranspose(1, 4, 2, "same", activation="sigmoid"),
            ]
        )
        self.seeds = keras.random.SeedGenerator(11)
        self.losses_seen = [keras.metrics.Mean(name=name) for name in ("d_loss", "g_loss")]

    def compile(self, *, d_optimizer: Any, g_optimizer: Any, loss_fn: Any) -> None:
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return list(self.losses_seen)

    def train_step(self, real: Any) -> dict[str, Any]:
        size = ops.shape(real)[0]
        latent = keras.random.normal((size, 6), seed=self.seeds)
        images = ops.concatenate([self.generator(latent), real], 0)
        labels = ops.concatenate([ops.ones((size, 1)), ops.zeros((size, 1))], 0)
        labels += 0.05 * keras.random.uniform(ops.shape(labels), seed=self.seeds)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(images))
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply_gradients(zip(tape.gradient(d_loss, weights), weights, strict=True))

        latent = keras.random.normal((size, 6), seed=self.seeds)
        with tf.GradientTape() as tape:
            judged = self.discriminator(self.generator(latent))
            g_loss = self.loss_fn(ops.zeros((size, 1)), judged)
        weights = self.generator.trainable_weights
        self.g_optimizer.apply_gradients(zip(tape.gradient(g_loss, weights), weights, strict=True))
        for metric, loss in zip(self.losses_seen, (d_loss, g_loss), strict=True):
            metric.update_state(loss)
        return {metric.name: metric.result() for metric in self.metrics}


@pytest.mark.repeats
def test_adversaries(comparison: Comparison) -> None:
    images = random().uniform(size=(EXAMPLES, 8, 8, 1)).astype("float32")

    def make() -> keras.Model:
        model = Adversaries()
        model.compile(
            d_optimizer=keras.optimizers.Adam(3e-4),
            g_optimizer=keras.optimizers.Adam(3e-4),
            loss_fn=keras.losses.BinaryCrossentropy(from_logits=True),
        )
        return model

    def use(model: keras.Model) -> Numbers:
        history = model.fit(images, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history
        return {**history, "made": model.generator.predict(np.ones((3, 6), "float32"), verbose=0)}

    comparison.run(make, use, tolerance=TOLERANCE)


class Sampling(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(5)

    def call(self, mean: Any, log_variance: Any) -> Any:
        noise = keras.random.normal(ops.shape(mean), seed=self.seeds)
        self.add_loss(-0.05 * ops.mean(1 + log_variance - ops.square(mean) - ops.exp(log_variance)))
        return mean + ops.exp(0.5 * log_variance) * noise


@pytest.mark.repeats
def test_variational_autoencoder(comparison: Comparison) -> None:
    rows = random().uniform(size=(EXAMPLES, 10)).astype("float32")

    def make() -> keras.Model:
        inputs = keras.Input((10,))
        hidden = layers.Dense(8, "relu")(inputs)
        code = Sampling()(layers.Dense(3)(hidden), layers.Dense(3)(hidden))
        outputs = layers.Dense(10, "sigmoid")(layers.Dense(8, "relu")(code))
        model = keras.Model(inputs, outputs)
        model.compile(keras.optimizers.Nadam(1e-3), "binary_crossentropy")
        return model

    comparison.run(make, trained(rows, rows), tolerance=TOLERANCE)


@pytest.mark.repeats
def test_sequence_to_sequence(comparison: Comparison) -> None:
    vocabulary, length = 20, 7
    source = random().integers(1, vocabulary, size=(EXAMPLES, length))
    source[::4, 5:] = 0
    target = np.roll(source, 1, axis=1)

    def make() -> keras.Model:
        encoder_inputs = keras.Input((None,), dtype="int32", name="source")
        embedded = layers.Embedding(vocabulary, 8, mask_zero=True)(encoder_inputs)
        _, *states = layers.LSTM(10, return_state=True)(embedded)
        decoder_inputs = keras.Input((None,), dtype="int32", name="target")
        embedded = layers.Embedding(vocabulary, 8, mask_zero=True)(decoder_inputs)
        decoded = layers.LSTM(10, return_sequences=True)(embedded, initial_state=states)
        bidirectional = layers.Bidirectional(layers.GRU(4, return_sequences=True))(decoded)
        outputs = layers.Dense(vocabulary, activation="softmax")(bidirectional)
        model = keras.Model([encoder_inputs, decoder_inputs], outputs)
        model.compile(
            keras.optimizers.RMSprop(1e-3, clipvalue=0.5),
            "sparse_categorical_crossentropy",
            metrics=["accuracy"],
        )
        return model

    comparison.run(make, trained([source, target], source), tolerance=TOLERANCE)
