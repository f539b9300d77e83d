"""Trains a model of tf_keras under TensorFlow's pair and under ours, and prints the numbers.

Started with TF_USE_LEGACY_KERAS=1, which makes `tf.keras` the Keras of that package.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tfps
from tfps.launch import LocalCluster

EXAMPLES, BATCH = 32, 8
Pair = tuple[type, type]
PAIRS: dict[str, Pair] = {
    "stock": (tf.distribute.ParameterServerStrategy, tf.distribute.coordinator.ClusterCoordinator),
    "tfps": (tfps.ParameterServerStrategy, tfps.ClusterCoordinator),
}


def _data() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(EXAMPLES, 4)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


def _dataset(_: Any = None) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(_data()).repeat().batch(BATCH)


def _model() -> Any:
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((4,)),
            tf.keras.layers.Dense(5, "tanh"),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Dense(1),
        ]
    )
    model.compile(tf.keras.optimizers.Adam(0.1), "mse", metrics=["mae"])
    return model


def _numbers(model: Any, *others: Any) -> list[float]:
    arrays = [np.ravel(value) for value in (*model.get_weights(), *others)]
    return [float(number) for number in np.concatenate(arrays)]


def fit(strategy: Any, _: type) -> list[float]:
    """Train from a dataset function, as tf_keras wants it, then evaluate and predict."""
    with strategy.scope():
        model = _model()
    creator = tf.keras.utils.experimental.DatasetCreator(_dataset)
    history = model.fit(creator, epochs=2, steps_per_epoch=4, verbose=0).history
    results = model.evaluate(creator, steps=4, verbose=0)
    return _numbers(model, history["loss"], history["mae"], results, model.predict(_data()[0]))


def loop(strategy: Any, coordinator_class: type) -> list[float]:
    """A loop of one's own, after TensorFlow's tutorial."""
    coordinator: Any = coordinator_class(strategy)
    with strategy.scope():
        model = _model()
        mean = tf.keras.metrics.Mean()

    def replica(batch: Any) -> tf.Tensor:
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        mean.update_state(loss)
        return loss

    @tf.function
    def step(iterator: Any) -> tf.Tensor:
        return strategy.run(replica, args=(next(iterator),))

    iterator = iter(coordinator.create_per_worker_dataset(_dataset))
    losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(8)]
    coordinator.join()
    assert int(model.optimizer.iterations.numpy()) == 8
    if isinstance(strategy, tfps.ParameterServerStrategy):
        assert strategy.stats().fallback_steps == 8
    return _numbers(model, coordinator.fetch(losses), mean.result())


CASES: tuple[Callable[[Any, type], list[float]], ...] = (fit, loop)

if __name__ == "__main__":
    found: dict[str, dict[str, list[float]]] = {}
    with LocalCluster(workers=1, ps=2) as cluster:
        for name, (strategy_class, coordinator_class) in PAIRS.items():
            for case in CASES:
                strategy = strategy_class(cluster.cluster_resolver)
                found.setdefault(case.__name__, {})[name] = case(strategy, coordinator_class)
                if isinstance(strategy, tfps.ParameterServerStrategy):
                    strategy.close()
    print("found", json.dumps({"keras": tf.keras.Model.__module__, "numbers": found}))
