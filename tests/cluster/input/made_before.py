"""Makes datasets, then a strategy, then trains on them; prints the name of each that is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.cluster.counting import Visits, cross_entropy
from tests.cluster.input.numbered_examples import (
    BATCH,
    BATCHES,
    EXAMPLES,
    LABELS,
    X,
    batches,
    dataset,
)
from tfps.errors import UnsupportedError


def rows(number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    begin = number * BATCH
    return X[begin : begin + BATCH], LABELS[begin : begin + BATCH]


def by_numpy(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    x, labels = tf.numpy_function(rows, [number], [tf.float32, tf.int64])
    return tf.ensure_shape(x, [None, 4]), tf.ensure_shape(labels, [None, 2])


def run_function(strategy: tfps.ParameterServerStrategy, function: Callable[[], tf.Tensor]) -> Any:
    result = strategy.coordinator.schedule(tf.function(function))
    strategy.coordinator.join()
    return result.fetch()


def main() -> None:
    signature = tf.TensorSpec([None, 4], tf.float32), tf.TensorSpec([None, 2], tf.int64)
    made = {
        "plain": dataset().shuffle(4),
        "generator": tf.data.Dataset.from_generator(batches, output_signature=signature),
        "numpy": tf.data.Dataset.range(BATCHES).map(by_numpy),
    }
    lookup = keras.layers.StringLookup(vocabulary=["a", "b"])

    def look_up() -> tf.Tensor:
        return tf.cast(lookup(["a"]), tf.int64)

    def make_with_table() -> tf.data.Dataset:
        return dataset().map(lambda x, y: (x, y + 0 * look_up()))

    with_table = make_with_table()
    with tfps.LocalCluster(workers=2, ps=1) as cluster:
        strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        visits = Visits(EXAMPLES)
        with strategy.scope():
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
            model.compile("sgd", cross_entropy, metrics=[visits])
        for name, data in made.items():
            model.fit(data, verbose=0)
            if visits.counts() == [1] * EXAMPLES:
                print(name)
        for name, use in {
            "table": lambda: model.fit(with_table, verbose=0),
            "function": lambda: model.fit(make_with_table, verbose=0),
            "scheduled": lambda: run_function(strategy, look_up),
        }.items():
            try:
                use()
            except UnsupportedError as error:
                if "before the strategy connected" in str(error):
                    print(name)
        print(*run_function(strategy, lambda: tf.constant([3])))
        strategy.close()


if __name__ == "__main__":
    main()
