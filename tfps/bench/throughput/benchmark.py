"""Steps per second and CPU per step of seven ways to train the same model on the same data.

Rows take turns, several times, on one cluster per shape; every turn is a fresh chief process that
attaches to the running servers. What a shape's rows are compared on was thus measured within
minutes of each other, on the same processes.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tfps.bench.images import write_images
from tfps.bench.throughput.results import SINGLE, ThroughputResults
from tfps.bench.throughput.rows import ROWS, TITLES
from tfps.bench.throughput.shapes import SHAPES, Shape
from tfps.bench.throughput.turn import ThroughputOrder
from tfps.bench.turn import Turn, processes
from tfps.errors import ConfigError
from tfps.launch import LocalCluster


@dataclass(frozen=True)
class Throughput:
    """How to measure.

    Args:
        shapes: clusters and models.
        rows: ways to train, keys of `ROWS`.
        steps_per_executions: each turn measures all of them, but for rows of the longest only.
        batch_size: examples in one worker's step.
        repetitions: turns of each row.
        epochs: measured epochs in a turn, after a warm-up epoch.
        epoch_s: how long an epoch takes, about.
    """

    shapes: Sequence[Shape] = SHAPES
    rows: Sequence[str] = tuple(ROWS)
    steps_per_executions: Sequence[int] = (1, 50)
    batch_size: int = 64
    repetitions: int = 3
    epochs: int = 2
    epoch_s: float = 1.5

    def quick(self) -> Throughput:
        """Give a version that shows whether everything works, with numbers of little worth."""
        return replace(self, repetitions=1, epochs=1, epoch_s=0.5)

    def lengths(self, row: str) -> Sequence[int]:
        """The lengths of execution at which a row is measured."""
        longest = max(self.steps_per_executions)
        return (longest,) if ROWS[row].longest_only else self.steps_per_executions

    def as_json(self) -> dict[str, Any]:
        """The form in the report."""
        names = ("batch_size", "repetitions", "epochs", "epoch_s")
        return {name: getattr(self, name) for name in names}

    @property
    def turns(self) -> int:
        """How many chief processes a run starts."""
        return len(self.shapes) * len(self.rows) * self.repetitions


def run(
    settings: Throughput, *, progress: Callable[[str], None], log_dir: Path
) -> ThroughputResults:
    """Measure everything.

    Args:
        settings: what and how long.
        progress: is called with the name of each turn when it starts.
        log_dir: where the chiefs and the servers write what they have to say.

    Raises:
        ConfigError: a row needs tf_keras, which is not installed.
        TaskFailed: a chief process failed; the message has its last lines.
    """
    _check(settings)
    log_dir.mkdir(parents=True, exist_ok=True)
    results = ThroughputResults()
    with tempfile.TemporaryDirectory(prefix="tfps-bench-") as folder:
        images_path = write_images(Path(folder))
        for number, shape in enumerate(settings.shapes):
            with LocalCluster(
                shape.workers, shape.ps, log_dir=log_dir / f"cluster-{number}"
            ) as cluster:
                for _ in range(settings.repetitions):
                    for row in settings.rows:
                        progress(f"{shape.title}: {TITLES[row]}")
                        order = _order(settings, shape, row, cluster, images_path)
                        results.add(shape, row, _turn(order).run(cluster, log_dir=log_dir))
    return results


def _check(settings: Throughput) -> None:
    needed = any(ROWS[row].needs_tf_keras for row in settings.rows)
    if needed and importlib.util.find_spec("tf_keras") is None:
        raise ConfigError(
            "TensorFlow's own strategy trains only with tf_keras, which is not installed; "
            "install it: pip install 'tfps[bench]'",
            source="tfps bench throughput",
        )


def _order(
    settings: Throughput, shape: Shape, row: str, cluster: LocalCluster, images_path: Path
) -> ThroughputOrder:
    return ThroughputOrder(
        row=row,
        model=shape.model,
        steps_per_executions=settings.lengths(row),
        batch_size=settings.batch_size,
        epochs=settings.epochs,
        epoch_s=settings.epoch_s,
        images_path=str(images_path),
        processes=[] if row == SINGLE else processes(cluster, "worker", "ps"),
    )


def _turn(order: ThroughputOrder) -> Turn:
    """One row, in a chief process of its own."""
    return Turn(
        name=order.row,
        function="tfps.bench.throughput.turn:measure",
        order=asdict(order),
        needs_cluster=order.row != SINGLE,
        environment={"TF_USE_LEGACY_KERAS": "1"} if ROWS[order.row].needs_tf_keras else {},
    )
