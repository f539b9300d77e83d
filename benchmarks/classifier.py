"""The MLP that benchmarks train to an accuracy, again and again from weights of a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from benchmarks.accuracy import accuracy_of
from benchmarks.images import LabelledImages
from benchmarks.slow_input import centred
from benchmarks.workload import MODELS

WARM_UP_STEPS = 30  # of all workers together
NO_END_STEPS = 10**6  # a callback ends the epoch

Dataset = Callable[..., Any]  # a function for `fit` that makes it


class Classifier:
    """A model on the servers of a strategy; its optimizer is made in the strategy's scope."""

    def __init__(self, strategy: Any, make_optimizer: Callable[[], Any]) -> None:
        self._strategy = strategy
        with strategy.scope():
            self.model = MODELS["mlp"].compiled(keras, make_optimizer())
            # The optimizer's state, as it is before any step.
            self.model.optimizer.build(self.model.trainable_variables)
            self._state = [keras.ops.convert_to_numpy(v) for v in self.model.optimizer.variables]

    def warm_up(self, dataset: Dataset) -> None:
        """Trace a step, and let each worker compile it; what servers keep for workers is made."""
        self.model.fit(dataset, steps_per_epoch=WARM_UP_STEPS, verbose=0)

    def restore(self, seed: int) -> None:
        """Begin anew with weights of a seed, without tracing again.

        What workers keep themselves, as `tfps.LocalSteps` lets them, does not begin anew: of a
        second training in one process it would be that of the first.
        """
        optimizer = self.model.optimizer
        shapes = [tuple(variable.shape) for variable in self.model.trainable_variables]
        self.model.set_weights(initial_weights(shapes, seed=seed))
        for variable, value in zip(optimizer.variables, self._state, strict=True):
            variable.assign(value)
        self._strategy.updates.get_update(optimizer).reset_worker_states()

    def train(
        self, dataset: Dataset, *, steps: int = NO_END_STEPS, callbacks: Sequence[Any] = ()
    ) -> None:
        """Train for one epoch of `steps` steps, counted over all workers."""
        self.model.fit(dataset, steps_per_epoch=steps, verbose=0, callbacks=list(callbacks))

    def accuracy_now(self, data: LabelledImages) -> Callable[[], float]:
        """Return a function that tests the newest weights while workers go on; it ran once."""
        test = centred(data.test_images), data.test_labels
        names = [variable.path for variable in self.model.trainable_variables]

        def accuracy() -> float:
            values, _ = self._strategy.pull(names)
            return accuracy_of([values[name] for name in names], *test)

        accuracy()  # traces
        return accuracy


def initial_weights(shapes: list[tuple[int, ...]], *, seed: int) -> list[np.ndarray]:
    """Kernels as Glorot and Bengio (2010) draw them, and biases of zero."""
    generator = np.random.default_rng(seed)
    weights = []
    for shape in shapes:
        limit = np.sqrt(6 / sum(shape)) if len(shape) > 1 else 0.0
        weights.append(generator.uniform(-limit, limit, shape).astype(np.float32))
    return weights
