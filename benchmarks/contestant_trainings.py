"""The trainings of several optimizers in one process, whose workers push in a given order."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.accuracy import accuracy_of
from benchmarks.contestants import CONTESTANTS
from benchmarks.images import LabelledImages
from benchmarks.slow_input import centred
from benchmarks.staleness_counts import staleness_between
from benchmarks.turnstile import OrderedInput, PushScenario, batch_rows


@dataclass(frozen=True, eq=False, kw_only=True)
class ContestantTrainings:
    """Trains contestants on one strategy; each is traced once, with a schedule once a rate."""

    strategy: Any
    scenario: PushScenario
    data: LabelledImages
    held: int  # the last of the training images, by which a learning rate is chosen
    batch_size: int
    updates: int
    _classifiers: dict[tuple[str, float | None], Any] = field(default_factory=dict)

    def train(self, name: str, rate: float, seed: int) -> dict[str, Any]:
        """Train from weights of a seed; the result has accuracies and staleness."""
        classifier, is_scheduled = self._classifier(name, rate), self.scenario.is_scheduled
        classifier.restore(seed)
        before = self.strategy.stats()
        parts = [(self.updates, 1.0)] if is_scheduled else stretches(self.updates)
        for stretch, (updates, factor) in enumerate(parts):
            if not is_scheduled:
                classifier.model.optimizer.learning_rate = rate * factor
            given = self._input(seed=1000 * stretch + seed, updates=updates)
            classifier.train(given.function(), steps=updates * given.sharers)
        accuracy = partial(accuracy_of, classifier.model.get_weights())
        data, held = self.data, slice(-self.held, None)
        return {
            "contestant": name,
            "learning_rate": rate,
            "seed": seed,
            "validation_accuracy": accuracy(centred(data.images[held]), data.labels[held]),
            "test_accuracy": accuracy(centred(data.test_images), data.test_labels),
            "staleness_updates": staleness_between(before, self.strategy.stats()),
        }

    def _classifier(self, name: str, rate: float) -> Any:
        """Return the classifier of a contestant; its optimizer keeps a schedule for good."""
        from benchmarks.classifier import Classifier

        is_scheduled = self.scenario.is_scheduled
        key = name, rate if is_scheduled else None
        if key not in self._classifiers:
            given = cosine(rate, self.updates) if is_scheduled else rate
            make = partial(CONTESTANTS[name].make, given)
            self._classifiers[key] = Classifier(self.strategy, make)
        return self._classifiers[key]

    def _input(self, *, seed: int, updates: int) -> OrderedInput:
        """Make as many batches as there are updates; the seed draws the batches and their order."""
        inputs = centred(self.data.images[: -self.held])
        labels = self.data.labels[: -self.held].astype("int32")
        steps = {"examples": len(labels), "batch_size": self.batch_size, "steps": updates}
        rows = batch_rows(seed=seed, **steps)
        take = self.scenario.take(pushes=updates, seed=seed)
        return OrderedInput(inputs, labels, rows, take, sharers=self.scenario.sharers)


def stretches(updates: int) -> list[tuple[int, float]]:
    """Return how many updates with which share of the learning rate: the last third with a tenth.

    With the rate of the beginning an accuracy at the end would be that of a chance moment.

    >>> stretches(600)
    [(400, 1.0), (200, 0.1)]
    """
    last = updates // 3
    return [(updates - last, 1.0), (last, 0.1)]


def cosine(rate: float, updates: int) -> Any:
    """Return a schedule that rises to a rate for a twentieth of the updates, then falls to 0.

    >>> schedule = cosine(0.1, 2000)
    >>> [round(float(schedule(step)), 3) for step in (0, 50, 100, 1050, 2000)]
    [0.0, 0.05, 0.1, 0.05, 0.0]
    """
    import keras

    warm_up = updates // 20
    return keras.optimizers.schedules.CosineDecay(
        0.0, updates - warm_up, warmup_target=rate, warmup_steps=warm_up
    )
