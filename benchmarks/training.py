"""Ways to train one model that can run measured epochs: `fit`, and TensorFlow's custom loop."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from benchmarks.examples import Examples
from benchmarks.usage import EpochClock, clock_callback
from benchmarks.workload import split

Clock = TypeVar("Clock", bound=EpochClock)
# Runs a number of epochs of about a number of steps, and lets the clock see each of them.
Epochs = Callable[[int, int, EpochClock], None]


class TrainableModel(Protocol):
    """A model of `keras` or `tf_keras`, and what it is trained with."""

    def build(self, keras: Any) -> Any:
        """Make it, not compiled."""

    def loss_and_accuracy(self, keras: Any, **options: Any) -> tuple[Any, Any]:
        """Return the loss and the accuracy for the model's outputs; options go to the loss."""

    def optimizer(self, keras: Any) -> Any:
        """Make the optimizer of the model."""


def stock_strategy(partitioner: Callable[[], Any] | None = None) -> Any:
    """Make TensorFlow's own strategy; the partitioner is made after TensorFlow is imported."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    divides = None if partitioner is None else partitioner()
    return tf.distribute.ParameterServerStrategy(resolver, divides)


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
        """Return the process's variables: they choose a Keras before TensorFlow is imported."""
        return {"TF_USE_LEGACY_KERAS": "1"} if self.needs_tf_keras else {}

    def begin(self) -> Any:
        """Import Keras, which takes seconds that no step shall have, and make the strategy."""
        importlib.import_module(self.keras)
        return None if self.strategy is None else self.strategy()

    def prepare(
        self, strategy: Any, model: TrainableModel, steps_per_execution: int
    ) -> Callable[[Examples], Epochs]:
        """Make a model in the strategy's scope, if there is one, and return what trains it."""
        keras = importlib.import_module(self.keras)
        if self.has_loop:
            return _loop(keras, strategy, model, steps_per_execution)
        with nullcontext() if strategy is None else strategy.scope():
            built = model.build(keras)
            loss, accuracy = model.loss_and_accuracy(keras)
            options = {"metrics": [accuracy], "steps_per_execution": steps_per_execution}
            built.compile(model.optimizer(keras), loss, **options)
        return partial(_fit, keras, built, names_steps=self.needs_tf_keras)


def measured_epochs(
    train: Epochs, make_clock: Callable[[], Clock], *, unit_steps: int, epochs: int, epoch_s: float
) -> Clock:
    """Train epochs of about `epoch_s` seconds, after two that are not measured.

    Args:
        train: runs them.
        make_clock: what lets them be seen.
        unit_steps: an epoch has a multiple of it.
        epochs: how many count; the clock has one more, its first, which fills the input's buffers.
        epoch_s: how long each takes.
    """
    trial = make_clock()
    train(1, unit_steps, trial)
    steps = unit_steps * max(1, math.ceil(trial.samples[-1].steps_per_s * epoch_s / unit_steps))
    clock = make_clock()
    train(1 + epochs, steps, clock)
    return clock


class _LocalCoordinator:
    """The coordinator of a process that has no cluster."""

    def create_per_worker_dataset(self, make: Callable[[], Any]) -> Any:
        return make()

    def schedule(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        function(*args)

    def join(self) -> None:
        """All is done."""


def _fit(keras: Any, model: Any, examples: Examples, *, names_steps: bool) -> Epochs:
    """Train on arrays; an epoch of the clock is one or several of Keras's.

    Where the strategy cannot count the batches of arrays, it wants to be told.
    """

    def run(epochs: int, steps: int, clock: EpochClock) -> None:
        rounds, epoch_steps = split(steps)
        x, y = examples.arrays(epoch_steps)
        model.fit(
            x,
            y,
            batch_size=examples.batch_size,
            epochs=epochs * rounds,
            steps_per_epoch=epoch_steps if names_steps else None,
            verbose=0,
            callbacks=[clock_callback(keras, clock, epoch_steps, rounds=rounds)],
        )

    return run


def _loop(
    keras: Any, strategy: Any, model: TrainableModel, steps_per_execution: int
) -> Callable[[Examples], Epochs]:
    """Return the custom loop of TensorFlow's tutorial, with the strategy's coordinator."""
    import tensorflow as tf

    coordinator: Any = _LocalCoordinator()
    if strategy is not None:
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    around = strategy or tf.distribute.get_strategy()
    with around.scope():
        built = model.build(keras)
        optimizer = model.optimizer(keras)
        optimizer.build(built.trainable_variables)
        # TensorFlow's strategy wants to be told how losses of replicas are reduced: not at all.
        loss_function, accuracy = model.loss_and_accuracy(keras, reduction="none")

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
        return around.run(replica_step, args=next(iterator))

    @tf.function
    def steps(iterator: Any) -> None:
        for _ in tf.range(steps_per_execution):
            around.run(replica_step, args=next(iterator))

    execution = step if steps_per_execution == 1 else steps

    def trained_on(examples: Examples) -> Epochs:
        iterator = iter(coordinator.create_per_worker_dataset(examples.dataset_function()))

        def run(epochs: int, count: int, clock: EpochClock) -> None:
            for _ in range(epochs):
                clock.begin()
                accuracy.reset_state()
                for _ in range(count // steps_per_execution):
                    coordinator.schedule(execution, args=(iterator,))
                coordinator.join()
                float(accuracy.result())
                clock.end(count)

        return run

    return trained_on
