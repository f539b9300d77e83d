"""Which optimizer helps where nearly every gradient lacks 8 to 16 updates of others.

Gradients are stale because there are many workers: each of 13 takes a step of about 100 ms, spread
by 30 %, most of which it waits, and meanwhile the 12 others have pushed. So every gradient is stale
and none comes from a worker that is special, as in a large asynchronous cluster; a single slow
worker would make few gradients stale, and waiting costs no core.

Every training takes its last third of updates with a tenth of its learning rate. Each contestant
trains with every learning rate of its base's grid, the plain optimizer included, and keeps the one
with the best accuracy on images held out from training. Those then train with seeds of their own,
turn about, and are compared on the test images by differences seed by seed. A discount of gradients
that are all about equally stale does little that a smaller learning rate does not: without tuning
the plain optimizer too it would look better than it is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tfps.bench.delay import Delay
from tfps.bench.images import LabelledImages, write_images
from tfps.bench.staleness.contestants import BASES, CONTESTANTS
from tfps.bench.staleness.results import StalenessResults
from tfps.bench.staleness.turn import StalenessOrder
from tfps.bench.turn import Turn
from tfps.launch import LocalCluster

TUNING_SEED = 0  # the others are counted from 1: no learning rate is chosen for them
TURN_TIMEOUT_S = 1800.0  # thirty trainings


@dataclass(frozen=True)
class Staleness:
    """How to measure.

    Args:
        contestants: keys of `CONTESTANTS`; with each the plain optimizer of its base.
        workers: each gradient lacks about one update of each of the others.
        step_s: length of a step, about.
        spread: how far its length varies, as a share of it.
        updates: of each training.
        batch_size: examples in one worker's step.
        validation_images: the last of the training images, for the learning rates.
        repetitions: seeds.
        rates: how many of a base's learning rates, from the middle; None: all.
        images: a folder with the full Fashion-MNIST; None: the shipped subset.
    """

    contestants: Sequence[str] = tuple(CONTESTANTS)
    workers: int = 13
    step_s: float = 0.1
    spread: float = 0.3
    updates: int = 600
    batch_size: int = 64
    validation_images: int = 1000
    repetitions: int = 5
    rates: int | None = None
    images: Path | None = None

    def quick(self) -> Staleness:
        """Give a version that shows whether everything works, with numbers of little worth."""
        few = ("sgd", "sgd_inverse")
        return replace(self, contestants=few, workers=4, updates=40, repetitions=2, rates=2)

    def as_json(self) -> dict[str, Any]:
        """The form in the report."""
        return asdict(self) | {"images": None if self.images is None else str(self.images)}

    @property
    def bases(self) -> list[str]:
        """The plain optimizers that take part."""
        return [
            base for base in BASES if any(CONTESTANTS[c].base == base for c in self.contestants)
        ]

    def of_base(self, base: str) -> list[str]:
        """Its contestants, in their order."""
        return [name for name in self.contestants if CONTESTANTS[name].base == base]

    def rates_of(self, base: str) -> tuple[float, ...]:
        """The learning rates that each of its contestants tries."""
        rates = BASES[base].rates
        count = len(rates) if self.rates is None else min(self.rates, len(rates))
        begin = (len(rates) - count) // 2
        return rates[begin : begin + count]

    @property
    def turns(self) -> int:
        """How many chief processes a run starts."""
        return 2 * len(self.bases)


def run(settings: Staleness, *, progress: Callable[[str], None], log_dir: Path) -> StalenessResults:
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
    results = StalenessResults({base: settings.rates_of(base) for base in settings.bases})
    with tempfile.TemporaryDirectory(prefix="tfps-bench-") as folder:
        images_path = write_images(Path(folder), settings.images)
        pixels_path = LabelledImages.load(images_path).write_pixels(Path(folder))
        paths = str(images_path), str(pixels_path)
        with LocalCluster(settings.workers, 1, log_dir=log_dir / "cluster") as cluster:
            for base in settings.bases:
                names = settings.of_base(base)
                progress(f"{base}: learning rates of {len(names)} optimizers")
                tuning = [
                    (name, rate, TUNING_SEED) for rate in settings.rates_of(base) for name in names
                ]
                turn = _turn(f"tune_{base}", settings, tuning, paths)
                results.add_tuning(turn.run(cluster, log_dir=log_dir))
                progress(f"{base}: the best of each, {settings.repetitions} seeds")
                trainings = [
                    (name, results.best_rate(name), seed)
                    for seed in range(1, settings.repetitions + 1)
                    for name in names
                ]
                turn = _turn(f"compare_{base}", settings, trainings, paths)
                results.add(turn.run(cluster, log_dir=log_dir))
    return results


def _turn(
    name: str,
    settings: Staleness,
    trainings: Sequence[tuple[str, float, int]],
    paths: tuple[str, str],
) -> Turn:
    images_path, pixels_path = paths
    order = StalenessOrder(
        trainings=trainings,
        updates=settings.updates,
        delay=asdict(Delay(step_s=settings.step_s, spread=settings.spread)),
        batch_size=settings.batch_size,
        validation_images=settings.validation_images,
        images_path=images_path,
        pixels_path=pixels_path,
    )
    return Turn(name, "tfps.bench.staleness.turn:measure", asdict(order), timeout_s=TURN_TIMEOUT_S)
