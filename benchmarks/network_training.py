"""Trainings of the CNN to an accuracy, in a chief, with the bytes that each epoch has moved."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import keras

from benchmarks.images import LabelledImages
from benchmarks.network_rows import NETWORK_MODELS, TRAINED, NetworkWay
from benchmarks.network_steps import counted_bytes
from benchmarks.slow_input import SlowInput, centred
from benchmarks.usage import EpochClock, Sample, steps_way

BATCH = 64
# With the rate of the beginning an accuracy at the end would be that of a chance moment.
LAST_SHARE, LAST_FACTOR = 1 / 3, 0.1


@dataclass(frozen=True)
class CountedTraining:
    """One strategy's trainings, a model of its own for each seed."""

    way: NetworkWay  # to train
    epochs: int  # looks at the accuracy, two or more
    epoch_steps: int  # of all workers, between two looks
    data: LabelledImages
    pixels_path: str  # where their pixels are

    def run(self, seeds: Sequence[int], clock: EpochClock) -> dict[str, Any]:
        """Train with each seed, and return its times, bytes and accuracy."""
        strategy = self.way.strategy()
        trainings = {seed: self._train(strategy, seed, clock) for seed in seeds}
        return {"trainings": trainings, "details": steps_way(strategy)}

    def _train(self, strategy: Any, seed: int, clock: EpochClock) -> dict[str, Any]:
        keras.utils.set_random_seed(seed)
        with strategy.scope():
            model = NETWORK_MODELS[TRAINED].compiled(keras, self.way.optimizer(keras))
        # In the chief, so that looking moves no bytes of steps.
        twin = NETWORK_MODELS[TRAINED].build(keras)
        inputs = centred(self.data.test_images)
        before, moved, accuracies = list[int](), list[int](), list[float]()

        def begin(*_: Any) -> None:
            before.append(sum(counted_bytes(strategy)))
            clock.begin()

        def end(*_: Any) -> None:
            clock.end(self.epoch_steps)
            # What the chief pulls to look is behind it, and before the next epoch begins.
            moved.append(sum(counted_bytes(strategy)) - before[-1])
            twin.set_weights(model.get_weights())
            logits = twin.predict(inputs, batch_size=500, verbose=0)
            accuracies.append(float((logits.argmax(axis=1) == self.data.test_labels).mean()))

        rate = float(model.optimizer.learning_rate)
        late = self.epochs - round(self.epochs * LAST_SHARE)
        schedule = keras.callbacks.LearningRateScheduler(
            lambda epoch: rate * (LAST_FACTOR if epoch >= late else 1.0)
        )
        watch = keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_epoch_end=end)
        model.fit(
            SlowInput(self.pixels_path, self.data.labels, BATCH, None, seed).function(),
            epochs=self.epochs,
            steps_per_epoch=self.epoch_steps,
            verbose=0,
            callbacks=[schedule, watch],
        )
        later = clock.samples[1 - self.epochs :]  # the first has traced
        whole = Sample(
            sum(each.steps for each in later),
            sum(each.seconds for each in later),
            sum(each.cpu_seconds for each in later),
            sum(each.other_cpu_seconds for each in later),
        )
        # The first epoch counts as long as those after it.
        seconds = [each.seconds for each in later]
        ends_s = itertools.accumulate([statistics.fmean(seconds), *seconds])
        return {
            "samples": [asdict(whole)],
            "curve": list(zip(ends_s, accuracies, strict=True)),
            "bytes": list(itertools.accumulate(moved)),  # of all workers, both ways
        }
