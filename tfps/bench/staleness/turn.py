"""What the chief of one turn of `tfps bench staleness` does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfps.bench.accuracy import accuracy_of
from tfps.bench.delay import Delay
from tfps.bench.images import LabelledImages
from tfps.bench.slow_input import SlowInput, centred
from tfps.bench.staleness.contestants import CONTESTANTS
from tfps.bench.staleness_counts import staleness_between
from tfps.bench.workload import MODELS

WARM_UP_STEPS = 30


@dataclass(frozen=True)
class StalenessOrder:
    """What a chief process is to train.

    Args:
        trainings: contestant (a key of `CONTESTANTS`), learning rate and seed of each; the seed is
            that of the initial weights, the order of the images and the delays.
        updates: of each training.
        delay: the arguments of a `Delay`.
        batch_size: examples in one worker's step.
        validation_images: the last of the training images, that nothing is trained on.
        images_path: the data, an .npz file.
        pixels_path: the training images alone, as workers read them.
    """

    trainings: Sequence[tuple[str, float, int]]
    updates: int
    delay: Mapping[str, Any]
    batch_size: int
    validation_images: int
    images_path: str
    pixels_path: str


def stretches(updates: int) -> list[tuple[int, float]]:
    """How many updates with which share of the learning rate: the last third with a tenth.

    With the rate of the beginning an accuracy at the end would be that of a chance moment.

    Example:

    >>> stretches(600)
    [(400, 1.0), (200, 0.1)]
    """
    last = updates // 3
    return [(updates - last, 1.0), (last, 0.1)]


def measure(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Train as ordered; answers the accuracies and the staleness of each training."""
    import keras

    import tfps
    from tfps.bench.initial_state import InitialState

    order = StalenessOrder(**fields)
    data = LabelledImages.load(Path(order.images_path))
    held = order.validation_images
    validation = centred(data.images[-held:]), data.labels[-held:]
    test = centred(data.test_images), data.test_labels

    def stale(seed: int) -> Any:
        delay = Delay(**order.delay)
        used = data.labels[:-held]
        return SlowInput(order.pixels_path, used, order.batch_size, delay, seed).function()

    strategy = tfps.ParameterServerStrategy()
    models: dict[str, tuple[Any, InitialState]] = {}
    answers = []
    for name, rate, seed in order.trainings:
        if name not in models:
            with strategy.scope():
                model = MODELS["mlp"].build(keras)
                loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
                model.compile(CONTESTANTS[name].make(rate), loss)
                models[name] = model, InitialState(model)
            model.fit(stale(seed), steps_per_epoch=WARM_UP_STEPS, verbose=0)  # traces
        model, initial = models[name]
        initial.restore(seed)
        before, begun_s = strategy.stats(), time.perf_counter()
        for stretch, (updates, factor) in enumerate(stretches(order.updates)):
            model.optimizer.learning_rate = rate * factor
            model.fit(stale(1000 * stretch + seed), steps_per_epoch=updates, verbose=0)
        after, ended_s = strategy.stats(), time.perf_counter()
        weights = model.get_weights()
        answers.append(
            {
                "contestant": name,
                "learning_rate": rate,
                "seed": seed,
                "validation_accuracy": accuracy_of(weights, *validation),
                "test_accuracy": accuracy_of(weights, *test),
                "staleness_updates": staleness_between(
                    before.gradient_staleness_updates, after.gradient_staleness_updates
                ),
                "seconds": ended_s - begun_s,
                "fallback_steps": after.fallback_steps,
            }
        )
    return answers
