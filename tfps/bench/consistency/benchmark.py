"""The consistency modes with a worker that is slow all the time, or workers slow at times.

A step waits 50 ms for its batch and computes for a few, so that three workers on two cores behave
like machines of their own; the waits are drawn from a seed, the same for every mode. Modes take
turns; a turn is a fresh chief process that trains the same MLP from the same weights for the same
time under each kind of delay, and looks at its test accuracy without stopping the workers. All use
Adam with one learning rate; a synchronous update has the batches of two or three workers in it.

What a synchronous mode costs where nobody is slow is measured apart: two workers without any wait.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tfps.bench.consistency.modes import ASYNCHRONOUS, MODES, SYNCHRONOUS
from tfps.bench.consistency.results import Results
from tfps.bench.consistency.scenarios import FREE, FREE_DELAY, FREE_WORKERS, SCENARIOS
from tfps.bench.consistency.turn import Order
from tfps.bench.delay import Delay
from tfps.bench.images import LabelledImages, write_images
from tfps.bench.turn import Turn, processes
from tfps.launch import LocalCluster

FREE_MODES = (ASYNCHRONOUS, SYNCHRONOUS)


@dataclass(frozen=True)
class Consistency:
    """How to measure.

    Args:
        workers: with delays; one of them is slow.
        repetitions: turns of each mode, each with a seed of its own.
        train_s: a training with stragglers.
        free_s: a training without any wait.
        look_every_s: between two looks at the test accuracy.
        batch_size: examples in one worker's step.
        learning_rate: of Adam.
        images: a folder with the full Fashion-MNIST; None: the shipped subset.
    """

    workers: int = 3
    repetitions: int = 5
    train_s: float = 24.0
    free_s: float = 6.0
    look_every_s: float = 0.5
    batch_size: int = 64
    learning_rate: float = 1e-3
    images: Path | None = None

    def quick(self) -> Consistency:
        """Give a version that shows whether everything works, with numbers of little worth."""
        return replace(self, repetitions=1, train_s=2.0, free_s=1.0)

    def as_json(self) -> dict[str, Any]:
        """The form in the report."""
        delays = {name: asdict(scenario.delay) for name, scenario in SCENARIOS.items()}
        images = None if self.images is None else str(self.images)
        return asdict(self) | {"images": images, "delays": delays, "seeds": self.seeds}

    @property
    def seeds(self) -> list[int]:
        """Of the repetitions."""
        return list(range(1, self.repetitions + 1))

    @property
    def turns(self) -> int:
        """How many chief processes a run starts."""
        return self.repetitions * (len(MODES) + len(FREE_MODES))


def run(settings: Consistency, *, progress: Callable[[str], None], log_dir: Path) -> Results:
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
    results = Results(settings.batch_size)
    delayed = {
        name: (scenario.delay, scenario.train_share * settings.train_s)
        for name, scenario in SCENARIOS.items()
    }
    free = {FREE: (FREE_DELAY, settings.free_s)}
    with tempfile.TemporaryDirectory(prefix="tfps-bench-") as folder:
        images_path = write_images(Path(folder), settings.images)
        pixels_path = LabelledImages.load(images_path).write_pixels(Path(folder))
        paths = images_path, pixels_path
        for workers, modes, trainings in (
            (settings.workers, tuple(MODES), delayed),
            (FREE_WORKERS, FREE_MODES, free),
        ):
            cluster_logs = log_dir / f"cluster-{workers}"
            with LocalCluster(workers, 1, log_dir=cluster_logs) as cluster:
                shared = _order(settings, trainings, paths, cluster)
                for seed in settings.seeds:
                    for mode in modes:
                        delays = "without delays" if trainings is free else "with delays"
                        progress(f"{workers} workers {delays}, seed {seed}: {MODES[mode].title}")
                        order = replace(shared, mode=mode, seed=seed)
                        turn = Turn(mode, "tfps.bench.consistency.turn", asdict(order))
                        results.add(mode, seed, turn.run(cluster, log_dir=log_dir))
    return results


def _order(
    settings: Consistency,
    trainings: dict[str, tuple[Delay, float]],
    paths: tuple[Path, Path],
    cluster: LocalCluster,
) -> Order:
    """What all turns on a cluster share."""
    images_path, pixels_path = map(str, paths)
    return Order(
        mode="",
        seed=0,
        trainings={name: (asdict(delay), train_s) for name, (delay, train_s) in trainings.items()},
        # A look takes time of the cores that steps without waits are short of.
        look_every_s=settings.free_s if FREE in trainings else settings.look_every_s,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        images_path=images_path,
        pixels_path=pixels_path,
        groups={role: processes(cluster, role) for role in ("worker", "ps")},
    )
