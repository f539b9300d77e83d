"""The classifier that benchmarks train to an accuracy, and a look at it while it trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from tfps.bench.accuracy import accuracy_of
from tfps.bench.images import LabelledImages
from tfps.bench.initial_state import InitialState
from tfps.bench.slow_input import centred
from tfps.bench.workload import MODELS

WARM_UP_STEPS = 30  # of all workers together
NO_END_STEPS = 10**6  # a callback ends the epoch


class Classifier:
    """The MLP on the servers of a strategy.

    Args:
        strategy: a `tfps.ParameterServerStrategy`.
        make_optimizer: is called in its scope.
        data: what it is tested with.
    """

    def __init__(
        self, strategy: Any, make_optimizer: Callable[[], Any], data: LabelledImages
    ) -> None:
        self._strategy = strategy
        self._test = centred(data.test_images), data.test_labels
        with strategy.scope():
            self._model = MODELS["mlp"].build(keras)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            self._model.compile(make_optimizer(), loss)
            self._initial = InitialState(self._model)
        self._names = [variable.path for variable in self._model.trainable_variables]

    def accuracy(self) -> float:
        """On the test images, at this moment; workers go on meanwhile."""
        values, _ = self._strategy.pull(self._names)
        return accuracy_of([values[name] for name in self._names], *self._test)

    def warm_up(self, dataset: Callable[..., Any]) -> None:
        """Trace a step and a look, and let each worker compile the step."""
        self._model.fit(dataset, steps_per_epoch=WARM_UP_STEPS, verbose=0)
        self.accuracy()

    def train(
        self,
        dataset: Callable[..., Any],
        *,
        seed: int,
        callbacks: Sequence[Any],
        steps: int = NO_END_STEPS,
    ) -> None:
        """Begin anew, and train for one epoch.

        What workers keep themselves, as `tfps.LocalSteps` lets them, does not begin anew: of a
        second training in one process it would be that of the first.

        Args:
            dataset: a function that makes it.
            seed: of the initial weights.
            callbacks: of the epoch.
            steps: of all workers together, if no callback ends it before.
        """
        self._initial.restore(seed)
        self._model.fit(dataset, steps_per_epoch=steps, verbose=0, callbacks=callbacks)
