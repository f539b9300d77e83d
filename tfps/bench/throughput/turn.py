"""What the chief of one turn of `tfps bench throughput` does.

Keras's flavour is decided by the environment (TF_USE_LEGACY_KERAS), which is why each row has a
process of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfps.bench.throughput.rows import ROWS, Epochs, Setting
from tfps.bench.usage import EpochClock, Sample
from tfps.bench.workload import MODELS, Images

# Divisible by the longest execution and by two workers: no execution is cut short, no worker idles.
STEPS_UNIT = 100


@dataclass(frozen=True)
class ThroughputOrder:
    """What a chief process is to measure.

    Args:
        row: a key of `ROWS`.
        model: a key of `MODELS`.
        steps_per_executions: measured one after the other.
        batch_size: examples in one worker's step.
        epochs: measured ones; a warm-up epoch precedes them.
        epoch_s: how long an epoch should take.
        images_path: the data, an .npz file.
        processes: the cluster's process numbers, whose CPU is counted.
    """

    row: str
    model: str
    steps_per_executions: Sequence[int]
    batch_size: int
    epochs: int
    epoch_s: float
    images_path: str
    processes: Sequence[int]


def measure(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Train as ordered and return the samples by steps per execution, and the row's details."""
    order = ThroughputOrder(**fields)
    row = ROWS[order.row].kind()
    images = Images.load(Path(order.images_path), batch_size=order.batch_size)
    samples = {}
    for steps_per_execution in order.steps_per_executions:
        run = row.prepare(Setting(MODELS[order.model], images, steps_per_execution))
        samples[str(steps_per_execution)] = [
            asdict(sample) for sample in _measured_epochs(run, order)
        ]
    return {"samples": samples, "details": row.details()}


def _measured_epochs(run: Epochs, order: ThroughputOrder) -> list[Sample]:
    trial = EpochClock(order.processes)
    run(2, STEPS_UNIT, trial)  # the first one traces
    wanted = trial.samples[-1].steps_per_s * order.epoch_s
    steps = STEPS_UNIT * max(1, math.ceil(wanted / STEPS_UNIT))
    clock = EpochClock(order.processes)
    run(1 + order.epochs, steps, clock)  # the first one fills the buffers of the input
    return clock.samples[1:]
