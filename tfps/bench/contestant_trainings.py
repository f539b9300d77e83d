"""The trainings of several optimizers in one process, whose workers push in a given order."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tfps.bench.accuracy import accuracy_of
from tfps.bench.contestants import CONTESTANTS
from tfps.bench.images import LabelledImages
from tfps.bench.push_order import PushScenario
from tfps.bench.slow_input import centred
from tfps.bench.staleness_counts import staleness_between
from tfps.bench.turnstile import OrderedInput, Together, Turnstile, batch_rows

Labelled = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False, kw_only=True)
class OrderedImages:
    """Images to train on, to choose a learning rate by, and to test with."""

    data: LabelledImages
    held: int  # the last of the training images, for the choice
    workers: int
    order: PushScenario | None  # of the pushes; None: all workers share each batch

    @property
    def validation(self) -> Labelled:
        """Those that are held out."""
        return centred(self.data.images[-self.held :]), self.data.labels[-self.held :]

    @property
    def test(self) -> Labelled:
        return centred(self.data.test_images), self.data.test_labels

    def input(self, *, seed: int, batch_size: int, updates: int) -> OrderedInput:
        """As many batches as there are updates; the seed is that of the batches and the order."""
        inputs = centred(self.data.images[: -self.held])
        labels = self.data.labels[: -self.held].astype("int32")
        sizes = {"examples": len(labels), "batch_size": batch_size, "steps": updates}
        rows = batch_rows(seed=seed, **sizes)
        if self.order is None:
            return OrderedInput(inputs, labels, rows, Together(), sharers=self.workers)
        return OrderedInput(
            inputs, labels, rows, Turnstile(self.order.order(pushes=updates, seed=seed))
        )


@dataclass(frozen=True, eq=False)
class ContestantTrainings:
    """Trains contestants on one strategy; each is traced once."""

    strategy: Any
    images: OrderedImages
    batch_size: int
    updates: int
    _classifiers: dict[str, Any] = field(default_factory=dict)

    def train(self, name: str, rate: float, seed: int) -> dict[str, Any]:
        """Train from weights of a seed; the answer has accuracies and staleness."""
        from tfps.bench.classifier import Classifier

        if name not in self._classifiers:
            make = partial(CONTESTANTS[name].make, rate)
            self._classifiers[name] = Classifier(self.strategy, make)
        classifier = self._classifiers[name]
        classifier.restore(seed)
        before = self.strategy.stats()
        for stretch, (updates, factor) in enumerate(stretches(self.updates)):
            classifier.model.optimizer.learning_rate = rate * factor
            own = {"seed": 1000 * stretch + seed, "updates": updates}
            given = self.images.input(batch_size=self.batch_size, **own)
            classifier.train(given.function(), steps=updates * given.sharers)
        weights = classifier.model.get_weights()
        return {
            "contestant": name,
            "learning_rate": rate,
            "seed": seed,
            "validation_accuracy": accuracy_of(weights, *self.images.validation),
            "test_accuracy": accuracy_of(weights, *self.images.test),
            "staleness_updates": staleness_between(before, self.strategy.stats()),
        }


def stretches(updates: int) -> list[tuple[int, float]]:
    """How many updates with which share of the learning rate: the last third with a tenth.

    With the rate of the beginning an accuracy at the end would be that of a chance moment.

    >>> stretches(600)
    [(400, 1.0), (200, 0.1)]
    """
    last = updates // 3
    return [(updates - last, 1.0), (last, 0.1)]
