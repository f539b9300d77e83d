"""Programs that draw random numbers, under a strategy and in one process, and what they draw."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps

WIDTH = 24  # dropout leaves none of eight once in 256 times
STEPS_PER_FUNCTION = 2
EXAMPLES, DRAWS = 10, 4
Draw = Callable[[Callable[[], Any], Any], Any]


class Steps:
    """A function of two steps: each draws noise from two generators, and calls an optimizer.

    Args:
        strategy: None for one process.
    """

    def __init__(self, strategy: tfps.ParameterServerStrategy | None) -> None:
        keras.utils.set_random_seed(1)
        self._strategy = strategy
        with strategy.scope() if strategy is not None else contextlib.nullcontext():
            self.layers = [keras.layers.GaussianNoise(1.0, seed=7), keras.layers.Dropout(0.5)]
            self.model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(1)])
            self.optimizer = keras.optimizers.SGD(0.01)
            self.optimizer.build(self.model.trainable_variables)
        self.function = tf.function(self._steps)

    def _steps(self) -> tf.Tensor:
        return tf.stack([self._step() for _ in range(STEPS_PER_FUNCTION)])

    def _step(self) -> tf.Tensor:
        noisy = tf.ones((1, WIDTH))
        for layer in self.layers:
            noisy = layer(noisy, training=True)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.model(noisy) ** 2)
        variables = self.model.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return noisy[0]

    def run(self, functions: int) -> Any:
        """Run the function so often, and return what was drawn: float32 [steps, width]."""
        if self._strategy is None:
            drawn = [self.function().numpy() for _ in range(functions)]
        else:
            coordinator = tfps.ClusterCoordinator(self._strategy)
            results = [coordinator.schedule(self.function) for _ in range(functions)]
            coordinator.join()
            drawn = [result.fetch() for result in results]
        return np.concatenate(drawn)

    @property
    def generators(self) -> list[Any]:
        """The states of the generators: seed, and count of draws."""
        return [layer.seed_generator.state for layer in self.layers]

    @property
    def states(self) -> list[list[int]]:
        """The seeds and counts that the generators hold."""
        return [state.numpy().tolist() for state in self.generators]


def distinct(drawn: Any) -> int:
    """How many of the rows differ from all others."""
    return len(np.unique(drawn, axis=0))


class Noise(keras.layers.Layer):
    """Draws some numbers for a batch of one example from a generator of its own, in some way.

    Args:
        draw: from a function that draws one number and the layer's inputs to `DRAWS` numbers.
    """

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.draw, self.generator = draw, keras.random.SeedGenerator(5)

    def build(self, shape: Any) -> None:
        self.built = True

    def compute_output_shape(self, shape: Any) -> Any:
        return (shape[0], DRAWS)

    def call(self, x: Any) -> Any:
        drawn = self.draw(lambda: keras.random.normal((), seed=self.generator), x)
        return 0 * x[:, :1] + drawn[None]


class ExampleTable(keras.metrics.Metric):
    """A metric that keeps what each example has met."""

    def __init__(self) -> None:
        super().__init__(name="seen")
        self.table = self.add_variable((EXAMPLES, DRAWS), "zeros")

    def update_state(self, number: Any, drawn: Any, sample_weight: Any = None) -> None:
        row = keras.ops.one_hot(keras.ops.cast(number[:1, 0], "int32"), EXAMPLES)
        self.table.assign_add(keras.ops.transpose(row) * drawn)

    def result(self) -> Any:
        return self.table + 0.0


def met_in_fit(
    strategy: tfps.ParameterServerStrategy | None,
    make: Callable[[], Any],
    *,
    epochs: int = 2,
    **options: Any,
) -> tuple[Any, Any]:
    """Train, and return the draws [epochs, examples, draws] and the state after evaluation.

    Args:
        strategy: None for one process.
        make: makes the layer.
        epochs: of training; one of evaluation follows.
        options: of `fit`.
    """
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    with strategy.scope() if strategy is not None else contextlib.nullcontext():
        inputs, layer = keras.Input((1,)), make()
        model = keras.Model(inputs, layer(inputs) + 0 * keras.layers.Dense(DRAWS)(inputs))
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[ExampleTable()], jit_compile=False)
    x = np.arange(EXAMPLES, dtype="float32").reshape(-1, 1)
    y = np.tile(x, DRAWS)
    history = model.fit(
        x, y, batch_size=1, shuffle=False, verbose=0, epochs=epochs, **options
    ).history
    tested = model.evaluate(x, y, batch_size=1, verbose=0, return_dict=True)
    generator = getattr(layer, "generator", None)
    state = None if generator is None else generator.state.numpy()
    return np.stack([np.asarray(each) for each in [*history["seen"], tested["seen"]]]), state
