"""The batch per worker and the number of local steps: speed, memory and time to an accuracy.

A larger batch makes more examples per second of a step's fixed costs, and fewer, larger updates of
the same examples; more local steps make fewer exchanges, and workers that drift apart. So neither
speed nor accuracy alone says what to take: the time to an accuracy does. The learning rate follows
the batch by a rule, since none that is fixed suits both ends of the sweep.

Pairs take turns, seed by seed. Each turn is a cluster and a chief of its own: the most memory that
a process has had does not shrink, and what workers keep between steps begins anew.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tfps.bench.batch.choice import period_title
from tfps.bench.batch.results import BatchResults
from tfps.bench.batch.turn import BatchOrder, Rate
from tfps.bench.images import LabelledImages, write_images
from tfps.bench.turn import Turn, processes
from tfps.launch import LocalCluster


@dataclass(frozen=True)
class Batch:
    """How to measure.

    Args:
        workers: how many.
        batch_sizes: examples in one worker's step.
        periods: numbers of local steps; 1 is plain asynchronous.
        rate: the learning rate of Adam.
        repetitions: seeds.
        train_s: after which a training ends that has not reached the accuracy.
        least_s: how long one that has goes on, so that its speed can be told.
        look_every_s: between two looks at the test accuracy.
        images: a folder with the full Fashion-MNIST; None: the shipped subset.
    """

    workers: int = 2
    batch_sizes: Sequence[int] = (16, 32, 64, 128, 256)
    periods: Sequence[int] = (1, 4, 16)
    rate: Rate = field(default_factory=Rate)
    repetitions: int = 3
    train_s: float = 15.0
    least_s: float = 3.0
    look_every_s: float = 0.2
    images: Path | None = None

    def quick(self) -> Batch:
        """Give a version that shows whether everything works, with numbers of little worth."""
        return replace(
            self, batch_sizes=(32, 256), periods=(1, 16), repetitions=1, train_s=6.0, least_s=1.0
        )

    def as_json(self) -> dict[str, Any]:
        """The form in the report."""
        images = None if self.images is None else str(self.images)
        return asdict(self) | {"images": images, "seeds": self.seeds}

    @property
    def seeds(self) -> list[int]:
        """Of the repetitions."""
        return list(range(1, self.repetitions + 1))

    @property
    def turns(self) -> int:
        """How many clusters a run starts."""
        return self.repetitions * len(self.batch_sizes) * len(self.periods)


def run(settings: Batch, *, progress: Callable[[str], None], log_dir: Path) -> BatchResults:
    """Measure everything.

    Args:
        settings: what and how long.
        progress: is called with the name of each turn when it starts.
        log_dir: where the chiefs and the servers write what they have to say.

    Raises:
        DataError: images are missing.
        TaskFailed: a chief process failed; the message has its last lines.
    """
    log_dir.mkdir(parents=True, exist_ok=True)
    results = BatchResults(usual=(settings.rate.base_batch_size, 1))
    with tempfile.TemporaryDirectory(prefix="tfps-bench-") as folder:
        images_path = write_images(Path(folder), settings.images)
        pixels_path = LabelledImages.load(images_path).write_pixels(Path(folder))
        shared = BatchOrder(
            batch_size=0,
            period_steps=0,
            seed=0,
            rate=asdict(settings.rate),
            limits={
                name: getattr(settings, name) for name in ("train_s", "least_s", "look_every_s")
            },
            images_path=str(images_path),
            pixels_path=str(pixels_path),
            groups={},
        )
        for seed in settings.seeds:
            for batch_size in settings.batch_sizes:
                for period_steps in settings.periods:
                    progress(f"seed {seed}: batch {batch_size}, {period_title(period_steps)}")
                    order = replace(
                        shared, batch_size=batch_size, period_steps=period_steps, seed=seed
                    )
                    answer = _turn(order, workers=settings.workers, log_dir=log_dir)
                    results.add(batch_size, period_steps, seed, answer)
    return results


def _turn(order: BatchOrder, *, workers: int, log_dir: Path) -> Any:
    """Start a cluster, train on it, and end it."""
    name = f"batch_{order.batch_size}_{order.period_steps}"
    with LocalCluster(workers, 1, log_dir=log_dir / name) as cluster:
        groups = {role: processes(cluster, role) for role in ("worker", "ps")}
        fields = asdict(replace(order, groups=groups))
        return Turn(name, "tfps.bench.batch.turn:measure", fields).run(cluster, log_dir=log_dir)
