"""The ways to train one model, each of which can run measured epochs.

All rows train on the same images, shuffled. The rows with `fit` get them as arrays, in the very
same call: `fit(x, y, batch_size=...)`. A single process keeps them in its memory; tf_keras turns
them into a dataset function of its own for TensorFlow's strategy, so every worker holds all of
them; tfps copies them to every worker too. Nobody moves images while an epoch is measured. A custom
loop takes no arrays: both of them get one dataset function that does what Keras does with arrays.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import tfps
from tfps.bench.images import Images
from tfps.bench.usage import EpochClock, clock_callback
from tfps.bench.workload import Model, split

LEARNING_RATE = 1e-3
LEGEND = (
    "Single process and tfps: Keras 3. Stock: TensorFlow's own ParameterServerStrategy, tf_keras."
)


# Runs so many epochs of about so many steps and lets the clock see each of them.
Epochs = Callable[[int, int, EpochClock], None]


def _stock_strategy() -> Any:
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.ParameterServerStrategy(resolver)


def _strategy(*, transport: str = "auto", pipeline_steps: int = 0) -> Any:
    consistency = tfps.Asynchronous(pipeline_steps=pipeline_steps)
    return tfps.ParameterServerStrategy(transport=transport, consistency=consistency)


@dataclass(frozen=True)
class Row:
    """A way to train."""

    title: str
    strategy: Callable[[], Any] | None = None  # makes it, once in a process; None: no cluster
    keras: str = "keras"  # TensorFlow's own strategy trains with no other Keras than tf_keras
    has_loop: bool = False  # of one's own, after TensorFlow's tutorial, instead of `fit`
    # Measured at the longest execution alone, where another row of ours is at its best.
    longest_only: bool = False

    @property
    def needs_tf_keras(self) -> bool:
        return self.keras == "tf_keras"

    @property
    def environment(self) -> dict[str, str]:
        """Of the process: Keras's flavour is decided before TensorFlow is imported."""
        return {"TF_USE_LEGACY_KERAS": "1"} if self.needs_tf_keras else {}

    def begin(self) -> Any:
        """Import Keras, which takes seconds that no step shall have, and make the strategy."""
        importlib.import_module(self.keras)
        return None if self.strategy is None else self.strategy()

    def prepare(
        self, strategy: Any, model: Model, images: Images, steps_per_execution: int
    ) -> Epochs:
        """Make a model in the strategy's scope, where there is one, and return what trains it."""
        keras = importlib.import_module(self.keras)
        if self.has_loop:
            return _loop(keras, strategy, model, images, steps_per_execution)
        with nullcontext() if strategy is None else strategy.scope():
            adam = keras.optimizers.Adam(LEARNING_RATE)
            options = {"metrics": ["accuracy"], "steps_per_execution": steps_per_execution}
            built = model.compiled(keras, adam, **options)
        return _fit(keras, built, images, names_steps=self.needs_tf_keras)


# In the order of tables and plots. "Stock" is TensorFlow's own strategy; tables and plots say so.
ROWS = {
    "single_fit": Row("single process fit"),
    "stock_fit": Row("stock fit", _stock_strategy, keras="tf_keras"),
    "stock_loop": Row("stock custom loop", _stock_strategy, keras="tf_keras", has_loop=True),
    "tfps_fit": Row("tfps fit", _strategy),
    "tfps_fit_grpc": Row("tfps fit, grpc", partial(_strategy, transport="grpc"), longest_only=True),
    "tfps_fit_pipelined": Row(
        "tfps fit, pipelined", partial(_strategy, pipeline_steps=1), longest_only=True
    ),
    "tfps_loop": Row("tfps custom loop", _strategy, has_loop=True),
}


def _fit(keras: Any, model: Any, images: Images, *, names_steps: bool) -> Epochs:
    """Train on arrays; an epoch of the clock is one or several of Keras's.

    Where the strategy cannot count the batches of arrays, it wants to be told.
    """

    def run(epochs: int, steps: int, clock: EpochClock) -> None:
        rounds, epoch_steps = split(steps)
        x, y = images.arrays(epoch_steps)
        model.fit(
            x,
            y,
            batch_size=images.batch_size,
            epochs=epochs * rounds,
            steps_per_epoch=epoch_steps if names_steps else None,
            verbose=0,
            callbacks=[clock_callback(keras, clock, epoch_steps, rounds=rounds)],
        )

    return run


def _loop(
    keras: Any, strategy: Any, model: Model, images: Images, steps_per_execution: int
) -> Epochs:
    """The loop of TensorFlow's tutorial; for tfps the coordinator is tfps's by the same name."""
    import tensorflow as tf

    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        built = model.build(keras)
        optimizer = keras.optimizers.Adam(LEARNING_RATE)
        optimizer.build(built.trainable_variables)
        accuracy = keras.metrics.SparseCategoricalAccuracy()
        # TensorFlow's strategy wants to be told how losses of replicas are reduced: not at all.
        loss_function = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="none"
        )

    def replica_step(inputs: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = built(inputs, training=True)
            loss = tf.reduce_mean(loss_function(labels, logits))
        gradients = tape.gradient(loss, built.trainable_variables)
        optimizer.apply_gradients(zip(gradients, built.trainable_variables, strict=True))
        accuracy.update_state(labels, logits)
        return loss

    @tf.function
    def step(iterator: Any) -> Any:
        for _ in tf.range(steps_per_execution - 1):
            strategy.run(replica_step, args=next(iterator))
        return strategy.run(replica_step, args=next(iterator))

    dataset = coordinator.create_per_worker_dataset(images.dataset_function())
    iterator = iter(dataset)

    def run(epochs: int, steps: int, clock: EpochClock) -> None:
        for _ in range(epochs):
            clock.begin()
            accuracy.reset_state()
            for _ in range(steps // steps_per_execution):
                coordinator.schedule(step, args=(iterator,))
            coordinator.join()
            float(accuracy.result())
            clock.end(steps)

    return run
