"""A chief that knows a scheduler, and whose counts are exact whatever task has been lost."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import tfps
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit

EXAMPLES = 200


class UntilFile(EpochsOfOneVisit):
    """Trains until a file exists, and prints after each epoch what has changed."""

    def __init__(self, job: CountingJob, file: Path) -> None:
        super().__init__(job)
        self._file = file

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        stats = self.job.strategy.stats()
        print(
            f"epoch {epoch}: steps", *stats.worker_steps, "lives", *stats.worker_lives, flush=True
        )
        if self._file.exists():
            self.model.stop_training = True
        time.sleep(0.1)


def main(mode: str, folder: Path) -> None:
    """Train until the file ``end`` is in a folder, and check the counts.

    Args:
        mode: ``asynchronous`` or ``synchronous``.
        folder: for checkpoints, which bring servers back.
    """
    checkpoints = folder / "checkpoints"
    strategy = tfps.ParameterServerStrategy(
        consistency=mode,
        batch_callbacks="sampled",
        placement="round_robin",
        fault_tolerance=tfps.FaultTolerance(checkpoints=checkpoints, every_steps=50),
    )
    nothing_to_kill: Any = None
    job = CountingJob(nothing_to_kill, strategy=strategy, examples=EXAMPLES)
    before = job.updates()
    callback = UntilFile(job, folder / "end")
    epochs = job.fit(callback, epochs=10_000)
    stats = strategy.stats()
    assert callback.wrong_epochs == {}
    assert stats.examples_seen == epochs * EXAMPLES
    assert stats.updates_lost == 0
    if mode == "asynchronous":
        assert job.updates() == job.updates_after(before, epochs=epochs)
    else:
        assert set(job.updates()) == {stats.updates_applied}
    print("counts are exact after", epochs, "epochs", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
