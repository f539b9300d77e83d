"""Trainings of the CNN to an accuracy, in a chief, with the bytes that each epoch has moved."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import keras

from tfps.bench.images import LabelledImages, image_files
from tfps.bench.network_rows import NETWORK_MODELS, TRAINED, NetworkWay
from tfps.bench.network_steps import counted_bytes, strategy_of
from tfps.bench.slow_input import SlowInput, centred
from tfps.bench.usage import EpochClock, Sample, steps_way

BATCH = 64
# With the rate of the beginning an accuracy at the end would be that of a chance moment.
LAST_SHARE, LAST_FACTOR = 1 / 3, 0.1


@dataclass(frozen=True)
class CountedTraining:
    """One strategy's trainings, a model of its own for each seed.

    Args:
        way: to train.
        epochs: looks at the accuracy, two or more; the last third has a tenth of the learning rate.
        epoch_steps: of all workers, between two looks.
        images: a folder with the full Fashion-MNIST, or None.
    """

    way: NetworkWay
    epochs: int
    epoch_steps: int
    images: Path | None

    def answer(self, seeds: Sequence[int], clock: EpochClock) -> dict[str, Any]:
        """What a turn answers: for each seed the clock, the bytes and the accuracy."""
        strategy = strategy_of(self.way, is_warm=True)
        with image_files(self.images) as paths:
            data = LabelledImages.load(paths["images_path"])
            trainings = {}
            for seed in seeds:
                batches = SlowInput(paths["pixels_path"], data.labels, BATCH, None, seed)
                trainings[seed] = self._train(strategy, batches, data, clock)
        return {"trainings": trainings, "details": steps_way(strategy)}

    def _train(
        self, strategy: Any, batches: SlowInput, data: LabelledImages, clock: EpochClock
    ) -> dict[str, Any]:
        keras.utils.set_random_seed(batches.seed)
        with strategy.scope():
            model = NETWORK_MODELS[TRAINED].compiled(keras, self.way.optimizer(keras))
        twin = NETWORK_MODELS[TRAINED].build(
            keras
        )  # in the chief, so that looking moves no bytes of steps
        inputs = centred(data.test_images)

        def look() -> float:
            twin.set_weights(model.get_weights())
            logits = twin.predict(inputs, batch_size=500, verbose=0)
            return float((logits.argmax(axis=1) == data.test_labels).mean())

        watch = _Watch(strategy, clock, look, self.epoch_steps)
        rate = float(model.optimizer.learning_rate)
        late = self.epochs - round(self.epochs * LAST_SHARE)
        schedule = keras.callbacks.LearningRateScheduler(
            lambda epoch: rate * (LAST_FACTOR if epoch >= late else 1.0)
        )
        model.fit(
            batches.function(),
            epochs=self.epochs,
            steps_per_epoch=self.epoch_steps,
            verbose=0,
            callbacks=[schedule, watch],
        )
        return {
            "samples": [asdict(watch.whole)],
            "curve": watch.curve,
            "bytes": watch.moved_bytes,
        }


class _Watch(keras.callbacks.Callback):
    """Sees how long epochs take, what they move, and the accuracy behind each."""

    def __init__(self, strategy: Any, clock: EpochClock, look: Any, steps: int) -> None:
        super().__init__()
        self._strategy, self._clock, self._look, self._steps = strategy, clock, look, steps
        self._before = 0
        self._samples: list[Sample] = []
        self._moved: list[int] = []
        self._accuracies: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._before = sum(counted_bytes(self._strategy))
        self._clock.begin()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._clock.end(self._steps)
        self._samples.append(self._clock.samples[-1])
        self._moved.append(sum(counted_bytes(self._strategy)) - self._before)
        self._accuracies.append(self._look())

    @property
    def whole(self) -> Sample:
        """All epochs but the first, which has traced."""
        later = self._samples[1:]
        return Sample(
            sum(each.steps for each in later),
            sum(each.seconds for each in later),
            sum(each.cpu_seconds for each in later),
            sum(each.other_cpu_seconds for each in later),
        )

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Seconds and accuracy; the first epoch counts as long as those after it."""
        later = [each.seconds for each in self._samples[1:]]
        ends_s = itertools.accumulate([statistics.fmean(later), *later])
        return list(zip(ends_s, self._accuracies, strict=True))

    @property
    def moved_bytes(self) -> list[int]:
        """By all workers, both ways, until each point of the curve."""
        return list(itertools.accumulate(self._moved))
