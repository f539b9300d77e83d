"""What the chief of one turn of `tfps bench consistency` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfps.bench.accuracy import accuracy_of
from tfps.bench.consistency.modes import MODES
from tfps.bench.delay import Delay
from tfps.bench.images import LabelledImages
from tfps.bench.slow_input import SlowInput, centred
from tfps.bench.staleness_counts import staleness_between
from tfps.bench.usage import EpochClock
from tfps.bench.workload import MODELS

WARM_UP_STEPS = 30  # of all workers together
NO_END_STEPS = 10**6  # the clock ends the epoch


@dataclass(frozen=True)
class Order:
    """What a chief process is to measure.

    Args:
        mode: a key of `MODES`.
        trainings: the arguments of a `Delay` and the seconds to train, by the name of the scenario;
            one after the other.
        seed: of the initial weights, the order of the images and the delays.
        look_every_s: between two looks at the test accuracy.
        batch_size: examples in one worker's step.
        learning_rate: of Adam.
        images_path: the data, an .npz file.
        pixels_path: the training images alone, as workers read them.
        groups: the cluster's process numbers by role.
    """

    mode: str
    trainings: Mapping[str, tuple[Mapping[str, Any], float]]
    seed: int
    look_every_s: float
    batch_size: int
    learning_rate: float
    images_path: str
    pixels_path: str
    groups: Mapping[str, Sequence[int]]


def measure(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Train as ordered; answers what was counted and the test accuracy over time, by scenario."""
    import keras

    import tfps
    from tfps.bench.consistency.watch import Watch
    from tfps.bench.initial_state import InitialState

    order = Order(**fields)
    data = LabelledImages.load(Path(order.images_path))
    keras.utils.set_random_seed(order.seed)
    strategy = tfps.ParameterServerStrategy(
        consistency=MODES[order.mode].make(), batch_callbacks="sampled"
    )
    with strategy.scope():
        model = MODELS["mlp"].build(keras)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(order.learning_rate), loss)
        initial = InitialState(model)
    names = [variable.path for variable in model.trainable_variables]
    test_inputs = centred(data.test_images)

    def accuracy() -> float:
        values, _ = strategy.pull(names)
        return accuracy_of([values[name] for name in names], test_inputs, data.test_labels)

    def slow(delay: Delay) -> Any:
        return SlowInput(
            order.pixels_path, data.labels, order.batch_size, delay, order.seed
        ).function()

    model.fit(slow(Delay(step_s=0.0)), steps_per_epoch=WARM_UP_STEPS, verbose=0)
    measured = {}
    for scenario, (delay, train_s) in order.trainings.items():
        initial.restore(order.seed)
        every = [number for numbers in order.groups.values() for number in numbers]
        watch = Watch(
            strategy,
            clock=EpochClock(every, order.groups),
            accuracy=accuracy,
            train_s=train_s,
            look_every_s=order.look_every_s,
        )
        model.fit(slow(Delay(**delay)), steps_per_epoch=NO_END_STEPS, verbose=0, callbacks=[watch])
        measured[scenario] = _answer(watch)
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
