"""The ways to train one model, each as a class that can run measured epochs.

All rows train on the same images, shuffled. The rows with `fit` get them as arrays, in the very
same call: `fit(x, y, batch_size=...)`. A single process keeps them in its memory; tf_keras turns
them into a dataset function of its own for TensorFlow's strategy, so every worker holds all of
them; tfps copies them to every worker too. Nobody moves images while an epoch is measured. A custom
loop takes no arrays: both of them get one dataset function that does what Keras does with arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfps.bench.epochs import clock_callback, steps_way
from tfps.bench.usage import EpochClock
from tfps.bench.workload import Images, Model, split

LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Setting:
    """What a row is asked to train.

    Args:
        model: which one.
        images: the input.
        steps_per_execution: steps between two returns to the training loop's Python.
    """

    model: Model
    images: Images
    steps_per_execution: int


# Runs so many epochs of about so many steps and lets the clock see each of them.
Epochs = Callable[[int, int, EpochClock], None]


class WayToTrain(ABC):
    """A way to train, made in a process of its own."""

    @abstractmethod
    def prepare(self, setting: Setting) -> Epochs:
        """Make a model in the strategy's scope, where there is one, and return what trains it."""

    def details(self) -> dict[str, Any]:
        """What the report says of it besides."""
        return {}


class SingleProcessFit(WayToTrain):
    """Keras 3 in one process, without a cluster."""

    def prepare(self, setting: Setting) -> Epochs:
        import keras

        model = setting.model.build(keras)
        _compile(keras, model, setting)
        return _fit(keras, model, setting.images)


class StockFit(WayToTrain):
    """TensorFlow's strategy with tf_keras, which is the only Keras that it trains."""

    def __init__(self) -> None:
        self._strategy = _stock_strategy()

    def prepare(self, setting: Setting) -> Epochs:
        import tf_keras

        with self._strategy.scope():
            model = setting.model.build(tf_keras)
            _compile(tf_keras, model, setting)
        return _fit(tf_keras, model, setting.images, names_steps=True)


class StockLoop(WayToTrain):
    """TensorFlow's strategy with a loop of one's own, after TensorFlow's tutorial."""

    def __init__(self) -> None:
        self._strategy = _stock_strategy()

    def prepare(self, setting: Setting) -> Epochs:
        import tf_keras

        return _loop(tf_keras, self._strategy, setting)


class TfpsFit(WayToTrain):
    """This library's strategy with Keras 3, by the carrier that it chooses itself."""

    transport = "auto"
    pipeline_steps = 0

    def __init__(self) -> None:
        import tfps

        self._strategy = tfps.ParameterServerStrategy(
            transport=self.transport,
            consistency=tfps.Asynchronous(pipeline_steps=self.pipeline_steps),
        )

    def prepare(self, setting: Setting) -> Epochs:
        import keras

        with self._strategy.scope():
            model = setting.model.build(keras)
            _compile(keras, model, setting)
        return _fit(keras, model, setting.images)

    def details(self) -> dict[str, Any]:
        """Say which way the steps took."""
        return steps_way(self._strategy)


class TfpsGrpcFit(TfpsFit):
    """The same over TensorFlow's RPC, which reaches any `tf.distribute.Server`."""

    transport = "grpc"


class TfpsPipelinedFit(TfpsFit):
    """The same with each exchange beside the computation of the next gradient."""

    pipeline_steps = 1


class TfpsLoop(TfpsFit):
    """The same loop of one's own as `StockLoop`, line by line, with Keras 3."""

    def prepare(self, setting: Setting) -> Epochs:
        import keras

        return _loop(keras, self._strategy, setting)


@dataclass(frozen=True)
class Row:
    """A way to train.

    Args:
        title: in tables and plots.
        kind: makes it, in a process of its own.
        needs_tf_keras: TensorFlow's own strategy trains with no other Keras.
        longest_only: it is measured at the longest execution alone, where it is compared with
            another row of ours at its best.
    """

    title: str
    kind: type[WayToTrain]
    needs_tf_keras: bool = False
    longest_only: bool = False


# In the order of tables and plots. "Stock" is TensorFlow's own strategy; tables and plots say so.
ROWS = {
    "single_fit": Row("single process fit", SingleProcessFit),
    "stock_fit": Row("stock fit", StockFit, needs_tf_keras=True),
    "stock_loop": Row("stock custom loop", StockLoop, needs_tf_keras=True),
    "tfps_fit": Row("tfps fit", TfpsFit),
    "tfps_fit_grpc": Row("tfps fit, grpc", TfpsGrpcFit, longest_only=True),
    "tfps_fit_pipelined": Row("tfps fit, pipelined", TfpsPipelinedFit, longest_only=True),
    "tfps_loop": Row("tfps custom loop", TfpsLoop),
}


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


def _fit(keras: Any, model: Any, images: Images, *, names_steps: bool = False) -> Epochs:
    """Train on arrays; an epoch of the clock is one or several of Keras's.

    Args:
        keras: `keras` or `tf_keras`.
        model: compiled.
        images: the input.
        names_steps: the strategy cannot count the batches of arrays, and wants to be told.
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


def _loop(keras: Any, strategy: Any, setting: Setting) -> Epochs:
    """The loop of TensorFlow's tutorial; for tfps the coordinator is tfps's by the same name."""
    import tensorflow as tf

    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = setting.model.build(keras)
        optimizer = keras.optimizers.Adam(LEARNING_RATE)
        optimizer.build(model.trainable_variables)
        accuracy = keras.metrics.SparseCategoricalAccuracy()
        # TensorFlow's strategy wants to be told how losses of replicas are reduced: not at all.
        loss_function = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="none"
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

    dataset = coordinator.create_per_worker_dataset(setting.images.dataset_function())
    iterator = iter(dataset)

    def run(epochs: int, steps: int, clock: EpochClock) -> None:
        for _ in range(epochs):
            clock.begin()
            accuracy.reset_state()
            for _ in range(steps // setting.steps_per_execution):
                coordinator.schedule(step, args=(iterator,))
            coordinator.join()
            float(accuracy.result())
            clock.end(steps)

    return run
