"""What the chief of one turn of `tfps bench batch` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfps.bench.goal import GOAL
from tfps.bench.images import LabelledImages
from tfps.bench.memory import peak_mib
from tfps.bench.slow_input import SlowInput
from tfps.bench.usage import EpochClock


@dataclass(frozen=True)
class Rate:
    """The learning rate, and how it follows the batch.

    Args:
        base: of Adam, at the base batch size.
        base_batch_size: examples in one worker's step.
        rule: of `tfps.optimizers.ScaledRate`.
    """

    base: float = 1e-3
    base_batch_size: int = 64
    rule: str = "square_root"

    def scaled(self, batch_size: int) -> Any:
        """The schedule for a batch; imports TensorFlow."""
        from tfps.optimizers import ScaledRate

        return ScaledRate(
            self.base,
            base_batch_size=self.base_batch_size,
            batch_size=batch_size,
            rule=self.rule,
        )


@dataclass(frozen=True)
class BatchOrder:
    """What a chief process is to measure.

    Args:
        batch_size: examples in one worker's step.
        period_steps: of a worker between two exchanges; 1: plain asynchronous.
        seed: of the initial weights and the order of the images.
        rate: the fields of a `Rate`.
        limits: arguments of a `Watch`: ``train_s``, ``least_s`` and ``look_every_s``.
        images_path: the data, an .npz file.
        pixels_path: the training images alone, as workers read them.
        groups: the cluster's process numbers by role.
    """

    batch_size: int
    period_steps: int
    seed: int
    rate: Mapping[str, Any]
    limits: Mapping[str, float]
    images_path: str
    pixels_path: str
    groups: Mapping[str, Sequence[int]]


def measure(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Train as ordered; answers speed, accuracy over time and the workers' memory."""
    import keras

    import tfps
    from tfps.bench.classifier import Classifier
    from tfps.bench.watch import Watch

    order = BatchOrder(**fields)
    data = LabelledImages.load(Path(order.images_path))
    keras.utils.set_random_seed(order.seed)
    strategy = tfps.ParameterServerStrategy(
        consistency=_consistency(order.period_steps), batch_callbacks="sampled"
    )
    rate = Rate(**order.rate).scaled(order.batch_size)
    classifier = Classifier(strategy, lambda: keras.optimizers.Adam(rate), data)
    batches = SlowInput(order.pixels_path, data.labels, order.batch_size, None, order.seed)
    classifier.warm_up(batches.function())
    every = [number for numbers in order.groups.values() for number in numbers]
    watch = Watch(
        strategy,
        clock=EpochClock(every, order.groups),
        accuracy=classifier.accuracy,
        goal=GOAL,
        **order.limits,
    )
    drained = strategy.stats()
    classifier.train(batches.function(), seed=order.seed, callbacks=[watch])
    stats = strategy.stats()
    (sample,) = watch.clock.samples
    unseen_steps = sum(watch.before.worker_steps) - sum(drained.worker_steps)
    return {
        "learning_rate": rate.factor * rate.learning_rate,
        "samples": [asdict(sample)],
        "curve": from_first_step(watch.curve, unseen_s=unseen_steps / sample.steps_per_s),
        "memory_mib": max(peak_mib(number) for number in order.groups["worker"]),
        "details": {"fallback_steps": stats.fallback_steps, "carriers": stats.carriers},
    }


def from_first_step(
    curve: Sequence[tuple[float, float]], *, unseen_s: float
) -> list[tuple[float, float]]:
    """A curve whose times count from the first step, not from the first that the chief saw.

    By then some steps are done, of large batches and many local steps enough to learn much. They
    are taken to have been as fast as those that follow; the workers' pipelines, which are made
    before, take a time that says nothing about batches.

    Example:

    >>> from_first_step([(0.0, 0.5), (1.0, 0.75)], unseen_s=0.25)
    [(0.25, 0.5), (1.25, 0.75)]
    """
    return [(at_s + unseen_s, accuracy) for at_s, accuracy in curve]


def _consistency(period_steps: int) -> Any:
    import tfps

    return tfps.Asynchronous() if period_steps == 1 else tfps.LocalSteps(period_steps)
