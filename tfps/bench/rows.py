"""The four ways to train one model, each as a function that can run measured epochs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfps.bench.usage import EpochClock
from tfps.bench.workload import Model

LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Setting:
    """What a row is asked to train.

    Args:
        model: which one.
        dataset: makes the input, on each worker.
        steps_per_execution: steps between two returns to the training loop's Python.
    """

    model: Model
    dataset: Callable[..., Any]
    steps_per_execution: int


# Runs so many epochs of so many steps and lets the clock see each of them.
Epochs = Callable[[int, int, EpochClock], None]


class SingleProcessFit:
    """Keras 3 in one process, without a cluster."""

    def prepare(self, setting: Setting) -> Epochs:
        """Compile a model and return what trains it."""
        import keras

        model = setting.model.build(keras)
        _compile(keras, model, setting)
        return _fit(keras, model, setting.dataset())

    def details(self) -> dict[str, Any]:
        """Nothing to add."""
        return {}


class StockFit:
    """TensorFlow's strategy with tf_keras, which is the only Keras that it trains."""

    def __init__(self) -> None:
        self._strategy = _stock_strategy()

    def prepare(self, setting: Setting) -> Epochs:
        """Compile a model in the strategy's scope and return what trains it."""
        import tf_keras

        with self._strategy.scope():
            model = setting.model.build(tf_keras)
            _compile(tf_keras, model, setting)
        creator = tf_keras.utils.experimental.DatasetCreator(setting.dataset)
        return _fit(tf_keras, model, creator)

    def details(self) -> dict[str, Any]:
        """Nothing to add."""
        return {}


class StockLoop:
    """TensorFlow's strategy with a loop of one's own, after TensorFlow's tutorial."""

    def __init__(self) -> None:
        import tensorflow as tf

        self._strategy = _stock_strategy()
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)

    def prepare(self, setting: Setting) -> Epochs:
        """Trace a step function and return what schedules it."""
        import tensorflow as tf
        import tf_keras

        strategy, coordinator = self._strategy, self._coordinator
        with strategy.scope():
            model = setting.model.build(tf_keras)
            optimizer = tf_keras.optimizers.Adam(LEARNING_RATE)
            optimizer.build(model.trainable_variables)
            accuracy = tf_keras.metrics.SparseCategoricalAccuracy()
            # The strategy wants to be told how losses of replicas are reduced: not at all.
            loss_function = tf_keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction=tf_keras.losses.Reduction.NONE
            )

        def replica_step(images: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                logits = model(images, training=True)
                loss = tf.reduce_mean(loss_function(labels, logits))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            accuracy.update_state(labels, logits)
            return loss

        @tf.function
        def step(iterator: Any) -> Any:
            for _ in tf.range(setting.steps_per_execution - 1):
                strategy.run(replica_step, args=next(iterator))
            return strategy.run(replica_step, args=next(iterator))

        iterator = iter(coordinator.create_per_worker_dataset(setting.dataset))

        def run(epochs: int, steps: int, clock: EpochClock) -> None:
            for _ in range(epochs):
                clock.begin()
                accuracy.reset_states()
                for _ in range(steps // setting.steps_per_execution):
                    coordinator.schedule(step, args=(iterator,))
                coordinator.join()
                accuracy.result().numpy()
                clock.end(steps)

        return run

    def details(self) -> dict[str, Any]:
        """Nothing to add."""
        return {}


class TfpsFit:
    """This library's strategy with Keras 3."""

    def __init__(self) -> None:
        import tfps

        self._strategy = tfps.ParameterServerStrategy()

    def prepare(self, setting: Setting) -> Epochs:
        """Compile a model in the strategy's scope and return what trains it."""
        import keras

        with self._strategy.scope():
            model = setting.model.build(keras)
            _compile(keras, model, setting)
        return _fit(keras, model, setting.dataset)

    def details(self) -> dict[str, Any]:
        """Say which way the steps took."""
        stats = self._strategy.stats()
        return {"fallback_steps": stats.fallback_steps, "carriers": stats.carriers}


# In the order of tables and plots.
ROWS: dict[str, type[Any]] = {
    "single_fit": SingleProcessFit,
    "stock_fit": StockFit,
    "stock_loop": StockLoop,
    "tfps_fit": TfpsFit,
}
# "Stock" is TensorFlow's own strategy; tables and plots explain it once.
TITLES = {
    "single_fit": "single process fit",
    "stock_fit": "stock fit",
    "stock_loop": "stock custom loop",
    "tfps_fit": "tfps fit",
}
LEGEND = (
    "Single process and tfps: Keras 3. Stock: TensorFlow's own ParameterServerStrategy, tf_keras."
)
NEEDS_TF_KERAS = ("stock_fit", "stock_loop")


def _stock_strategy() -> Any:
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.ParameterServerStrategy(resolver)


def _compile(keras: Any, model: Any, setting: Setting) -> None:
    model.compile(
        optimizer=keras.optimizers.Adam(LEARNING_RATE),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=setting.steps_per_execution,
    )


def _fit(keras: Any, model: Any, x: Any) -> Epochs:
    def run(epochs: int, steps: int, clock: EpochClock) -> None:
        class Measure(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                clock.begin()

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                clock.end(steps)

        model.fit(x, epochs=epochs, steps_per_epoch=steps, verbose=0, callbacks=[Measure()])

    return run
