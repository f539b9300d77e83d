"""What the chief of one turn of `tfps bench consistency` does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfps.bench.consistency.modes import ALL_MODES
from tfps.bench.delay import Delay
from tfps.bench.images import LabelledImages
from tfps.bench.slow_input import SlowInput
from tfps.bench.staleness_counts import staleness_between
from tfps.bench.usage import EpochClock


@dataclass(frozen=True)
class Training:
    """One of a chief process's trainings.

    Args:
        delay: how long steps take.
        train_s: after which it ends; None: after its steps.
        look_every_s: between two looks at the test accuracy; None: only at the ends. A look takes
            time of the cores that steps without waits are short of.
        steps: of all workers together, without ``train_s``.
    """

    delay: Delay
    train_s: float | None = None
    look_every_s: float | None = None
    steps: int | None = None


@dataclass(frozen=True)
class ConsistencyOrder:
    """What a chief process is to measure.

    Args:
        mode: a key of `ALL_MODES`.
        trainings: the fields of a `Training` by the name of the scenario; one after the other.
        seed: of the initial weights, the order of the images and the delays.
        batch_size: examples in one worker's step.
        learning_rate: of Adam.
        images_path: the data, an .npz file.
        pixels_path: the training images alone, as workers read them.
        groups: the cluster's process numbers by role.
    """

    mode: str
    trainings: Mapping[str, Mapping[str, Any]]
    seed: int
    batch_size: int
    learning_rate: float
    images_path: str
    pixels_path: str
    groups: Mapping[str, Sequence[int]]


def measure(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Train as ordered; answers what was counted and the test accuracy over time, by scenario."""
    import keras

    import tfps
    from tfps.bench.classifier import NO_END_STEPS, Classifier
    from tfps.bench.watch import Watch

    order = ConsistencyOrder(**fields)
    data = LabelledImages.load(Path(order.images_path))
    keras.utils.set_random_seed(order.seed)
    strategy = tfps.ParameterServerStrategy(
        consistency=ALL_MODES[order.mode].make(), batch_callbacks="sampled"
    )
    classifier = Classifier(strategy, lambda: keras.optimizers.Adam(order.learning_rate), data)

    def slow(delay: Delay) -> Any:
        return SlowInput(
            order.pixels_path, data.labels, order.batch_size, delay, order.seed
        ).function()

    classifier.warm_up(slow(Delay(step_s=0.0)))
    measured = {}
    for scenario, training_fields in order.trainings.items():
        training = Training(**training_fields)
        every = [number for numbers in order.groups.values() for number in numbers]
        watch = Watch(
            strategy,
            clock=EpochClock(every, order.groups),
            accuracy=classifier.accuracy,
            train_s=training.train_s or math.inf,
            look_every_s=training.look_every_s or math.inf,
        )
        drained = strategy.stats()
        classifier.train(
            slow(Delay(**training_fields["delay"])),
            seed=order.seed,
            callbacks=[watch],
            steps=training.steps or NO_END_STEPS,
        )
        measured[scenario] = _answer(watch) | _traffic(drained, strategy.stats(), order.batch_size)
    stats = strategy.stats()
    details = {"fallback_steps": stats.fallback_steps, "carriers": stats.carriers}
    return {"scenarios": measured, "details": details}


def _answer(watch: Any) -> dict[str, Any]:
    """What happened while it watched."""
    before, after = watch.before, watch.after
    steps = zip(before.worker_steps, after.worker_steps, strict=True)
    return {
        "samples": [asdict(sample) for sample in watch.clock.samples],
        "curve": watch.curve,
        "updates": after.updates_applied - before.updates_applied,
        "dropped": after.gradients_dropped - before.gradients_dropped,
        "worker_steps": [b - a for a, b in steps],
        "staleness_updates": staleness_between(
            before.gradient_staleness_updates, after.gradient_staleness_updates
        ),
        "largest_gap_steps": after.clock_gap_steps[1],  # since the turn began
    }


def _traffic(before: Any, after: Any, batch_size: int) -> dict[str, Any]:
    """What a whole training sent, with what workers fetch when it begins, and for how much."""
    return {
        "examples": batch_size * (sum(after.worker_steps) - sum(before.worker_steps)),
        "bytes_pulled": after.bytes_pulled - before.bytes_pulled,
        "bytes_pushed": after.bytes_pushed - before.bytes_pushed,
    }
