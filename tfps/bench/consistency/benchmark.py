"""The consistency modes with a worker that is slow all the time, or workers slow at times.

A step waits 50 ms for its batch and computes for a few, so that three workers on two cores behave
like machines of their own; the waits are drawn from a seed, the same for every mode. Modes take
turns; a turn is a fresh chief process that trains the same MLP from the same weights for the same
time under each kind of delay, and looks at its test accuracy without stopping the workers. All use
Adam with one learning rate; a synchronous update has the batches of two or three workers in it.

What a synchronous mode costs where nobody is slow is measured apart: two workers without any wait.
There, too, workers take local steps: fewer bytes for the same examples, and what that costs in
accuracy. Those trainings end after a number of examples.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tfps.bench.consistency.modes import (
    ALL_MODES,
    ASYNCHRONOUS,
    LOCAL_MODES,
    MODES,
    SYNCHRONOUS,
)
from tfps.bench.consistency.results import ConsistencyResults
from tfps.bench.consistency.scenarios import COUNTED, FREE, FREE_DELAY, FREE_WORKERS, SCENARIOS
from tfps.bench.consistency.turn import ConsistencyOrder, Training
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
        examples: of a training that is compared with local steps.
        local_repetitions: turns of each number of local steps, with the first of the seeds.
        look_every_s: between two looks at the test accuracy.
        batch_size: examples in one worker's step.
        learning_rate: of Adam.
        images: a folder with the full Fashion-MNIST; None: the shipped subset.
    """

    workers: int = 3
    repetitions: int = 5
    train_s: float = 24.0
    free_s: float = 6.0
    examples: int = 64_000
    local_repetitions: int = 3
    look_every_s: float = 0.5
    batch_size: int = 64
    learning_rate: float = 1e-3
    images: Path | None = None

    def quick(self) -> Consistency:
        """Give a version that shows whether everything works, with numbers of little worth."""
        return replace(self, repetitions=1, train_s=3.0, free_s=1.0, examples=12_800)

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
        return self.repetitions * (len(MODES) + len(FREE_MODES)) + len(self.local_seeds) * len(
            LOCAL_MODES
        )

    @property
    def local_seeds(self) -> list[int]:
        """Of the repetitions with local steps."""
        return self.seeds[: self.local_repetitions]


def run(
    settings: Consistency, *, progress: Callable[[str], None], log_dir: Path
) -> ConsistencyResults:
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
    results = ConsistencyResults(settings.batch_size)
    delayed = {
        name: Training(
            scenario.delay, scenario.train_share * settings.train_s, settings.look_every_s
        )
        for name, scenario in SCENARIOS.items()
    }
    counted = {COUNTED: Training(FREE_DELAY, steps=settings.examples // settings.batch_size)}
    free = {FREE: Training(FREE_DELAY, settings.free_s), **counted}
    with tempfile.TemporaryDirectory(prefix="tfps-bench-") as folder:
        images_path = write_images(Path(folder), settings.images)
        pixels_path = LabelledImages.load(images_path).write_pixels(Path(folder))
        paths = images_path, pixels_path
        for workers, plan, delays in (
            (settings.workers, _turns(settings.seeds, dict.fromkeys(MODES, delayed)), "with"),
            (FREE_WORKERS, _free_turns(settings, free=free, counted=counted), "without"),
        ):
            cluster_logs = log_dir / f"cluster-{workers}"
            with LocalCluster(workers, 1, log_dir=cluster_logs) as cluster:
                shared = _order(settings, paths, cluster)
                for seed, mode, trainings in plan:
                    title = ALL_MODES[mode].title
                    progress(f"{workers} workers {delays} delays, seed {seed}: {title}")
                    fields = {name: asdict(training) for name, training in trainings.items()}
                    order = replace(shared, mode=mode, seed=seed, trainings=fields)
                    turn = Turn(mode, "tfps.bench.consistency.turn:measure", asdict(order))
                    results.add(mode, seed, turn.run(cluster, log_dir=log_dir))
    return results


Trainings = Mapping[str, Training]


def _turns(
    seeds: Sequence[int], trainings: Mapping[str, Trainings]
) -> list[tuple[int, str, Trainings]]:
    """Seed, mode and what to train: modes take turns."""
    return [(seed, mode, trainings[mode]) for seed in seeds for mode in trainings]


def _free_turns(
    settings: Consistency, *, free: Trainings, counted: Trainings
) -> list[tuple[int, str, Trainings]]:
    plain: dict[str, Trainings] = dict.fromkeys(FREE_MODES, free)
    local: dict[str, Trainings] = dict.fromkeys(LOCAL_MODES, counted)
    seeds = settings.local_seeds
    others = settings.seeds[len(seeds) :]
    return [*_turns(seeds, plain | local), *_turns(others, plain)]


def _order(
    settings: Consistency, paths: tuple[Path, Path], cluster: LocalCluster
) -> ConsistencyOrder:
    """What all turns on a cluster share."""
    images_path, pixels_path = map(str, paths)
    return ConsistencyOrder(
        mode="",
        seed=0,
        trainings={},
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        images_path=images_path,
        pixels_path=pixels_path,
        groups={role: processes(cluster, role) for role in ("worker", "ps")},
    )
