"""A fresh chief process for one row of `tfps bench throughput`.

usage: python -m tfps.bench.chief ORDER.json RESULT.json

The cluster is the one of TF_CONFIG; it goes on when this process ends. Keras's flavour is decided
by the environment (TF_USE_LEGACY_KERAS), which is why each row has a process of its own.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfps.bench.rows import ROWS, Epochs, Setting
from tfps.bench.usage import EpochClock, Sample
from tfps.bench.workload import MODELS, dataset_function
from tfps.launch.parent import end_with_parent

# Divisible by the longest execution and by two workers: no execution is cut short, no worker idles.
STEPS_UNIT = 100


@dataclass(frozen=True)
class Order:
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


def measure(order: Order) -> dict[str, Any]:
    """Train as ordered and return the samples by steps per execution, and the row's details."""
    row = ROWS[order.row]()
    dataset = dataset_function(Path(order.images_path), order.batch_size)
    samples = {}
    for steps_per_execution in order.steps_per_executions:
        run = row.prepare(Setting(MODELS[order.model], dataset, steps_per_execution))
        samples[str(steps_per_execution)] = [
            asdict(sample) for sample in _measured_epochs(run, order)
        ]
    return {"samples": samples, "details": row.details()}


def _measured_epochs(run: Epochs, order: Order) -> list[Sample]:
    trial = EpochClock(order.processes)
    run(2, STEPS_UNIT, trial)  # the first one traces
    wanted = trial.samples[-1].steps_per_s * order.epoch_s
    steps = STEPS_UNIT * max(1, math.ceil(wanted / STEPS_UNIT))
    clock = EpochClock(order.processes)
    run(1 + order.epochs, steps, clock)  # the first one fills the buffers of the input
    return clock.samples[1:]


def main(order_path: str, result_path: str) -> None:
    """Read the order, measure, write the result."""
    end_with_parent()
    order = Order(**json.loads(Path(order_path).read_text()))
    result = measure(order)
    Path(result_path).write_text(json.dumps(result))


def _end(status: int) -> None:
    # TensorFlow's coordinator can hang when Python ends.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _end_after_error(*error: Any) -> None:
    sys.__excepthook__(*error)
    _end(1)


if __name__ == "__main__":
    sys.excepthook = _end_after_error
    main(*sys.argv[1:])
    _end(0)
