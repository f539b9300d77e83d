"""What many workers keep of one worker's rate when the machine's cores are not the limit.

Each step of a real `fit` waits 50 ms for its batch before it computes and exchanges, so that
workers on two cores behave like machines of their own: what grows with their number is the traffic
to the servers, and the waiting for one another there. One worker and many take turns on two
clusters that both run all the time, idle when it is not their turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tfps.bench.scaling.results import ScalingResults
from tfps.bench.scaling.turn import ScalingOrder
from tfps.bench.turn import Turn, processes
from tfps.launch import LocalCluster


@dataclass(frozen=True)
class Scaling:
    """How to measure.

    Args:
        workers: the number whose rate is compared with one worker's.
        ps: tasks that keep parameters.
        sleep_ms: of each step.
        batch_size: examples in one worker's step.
        repetitions: turns of each cluster; each is a fresh chief process.
        epochs: measured epochs in a turn, after a warm-up epoch.
        steps_per_worker: length of an epoch.
    """

    workers: int = 16
    ps: int = 2
    sleep_ms: float = 50.0
    batch_size: int = 64
    repetitions: int = 3
    epochs: int = 1
    steps_per_worker: int = 200

    def quick(self) -> Scaling:
        """Give a version that shows whether everything works, with numbers of little worth."""
        return replace(self, workers=3, repetitions=1, steps_per_worker=20)

    def as_json(self) -> dict[str, Any]:
        """The form in the report."""
        return asdict(self)

    @property
    def turns(self) -> int:
        """How many chief processes a run starts."""
        return 2 * self.repetitions


def run(settings: Scaling, *, progress: Callable[[str], None], log_dir: Path) -> ScalingResults:
    """Measure everything.

    Args:
        settings: what and how long.
        progress: is called with the name of each turn when it starts.
        log_dir: where the chiefs and the servers write what they have to say.

    Raises:
        TaskFailed: a chief process failed; the message has its last lines.
    """
    log_dir.mkdir(parents=True, exist_ok=True)
    results = ScalingResults(settings.ps)
    with (
        LocalCluster(1, settings.ps, log_dir=log_dir / "cluster-1") as one,
        LocalCluster(
            settings.workers, settings.ps, log_dir=log_dir / f"cluster-{settings.workers}"
        ) as many,
    ):
        for _ in range(settings.repetitions):
            for workers, cluster in ((1, one), (settings.workers, many)):
                progress(f"{workers} worker{'s' if workers > 1 else ''} + {settings.ps} ps")
                turn = _turn(settings, workers, cluster)
                results.add(workers, turn.run(cluster, log_dir=log_dir))
    return results


def _turn(settings: Scaling, workers: int, cluster: LocalCluster) -> Turn:
    order = ScalingOrder(
        steps=workers * settings.steps_per_worker,
        epochs=settings.epochs,
        sleep_ms=settings.sleep_ms,
        batch_size=settings.batch_size,
        groups={role: processes(cluster, role) for role in ("worker", "ps")},
    )
    return Turn(f"scaling_{workers}", "tfps.bench.scaling.turn", asdict(order))
