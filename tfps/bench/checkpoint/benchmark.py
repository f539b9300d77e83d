"""How long saving and restoring take, how long training rests, and how much memory they need.

A model of one gigabyte, and Adam's slots, on two servers: with `tfps.CheckpointManager` into a
folder that the servers share and through the chief, and with `tf.train.Checkpoint`. What was
written is then restored into one server and into three. At last one is saved while `RowUpdates`
trains tables of the same size. A save is done when the disk has all of it,
which is what tfps waits for; after TensorFlow's the benchmark does. What is restored still lies in
the machine's memory, so it is not the disk that is measured there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tfps.bench.checkpoint.results import CheckpointResults
from tfps.bench.checkpoint.turn import CheckpointOrder
from tfps.bench.checkpoint.ways import BESIDE, WAYS
from tfps.bench.turn import Turn, processes
from tfps.launch import LocalCluster


@dataclass(frozen=True)
class SavingBenchmark:
    """What to save.

    Args:
        mib: of the model's weights; Adam has twice that besides.
        ps: servers that save.
        restored_ps: numbers of servers to restore into.
        repetitions: turns of each; each is a fresh chief process.
    """

    mib: int = 1024
    ps: int = 2
    restored_ps: tuple[int, ...] = (1, 3)
    repetitions: int = 3

    def quick(self) -> SavingBenchmark:
        """Give a version that shows whether everything works, with numbers of little worth."""
        return replace(self, mib=16, repetitions=1)

    def as_json(self) -> dict[str, Any]:
        """The form in the report."""
        return asdict(self)

    @property
    def turns(self) -> int:
        """How many chief processes a run starts."""
        return self.repetitions * (2 + len(self.restored_ps))


def run(
    settings: SavingBenchmark, *, progress: Callable[[str], None], log_dir: Path
) -> CheckpointResults:
    """Measure everything.

    Args:
        settings: what and how often.
        progress: is called with the name of each turn when it starts.
        log_dir: where the chiefs and the servers write what they have to say; the checkpoints lie
            there meanwhile.

    Raises:
        TaskFailed: a chief process failed; the message has its last lines.
    """
    folder = log_dir.absolute() / "checkpoints"
    results = CheckpointResults(settings.mib, settings.ps)
    try:
        for repetition in range(settings.repetitions):
            # A disk may be quicker for who comes first.
            first = repetition % len(WAYS)
            ways = [*WAYS][first:] + [*WAYS][:first]
            # A cluster at a time: what a server once held, its process keeps.
            turns = [(settings.ps, ways)]
            turns += [(ps, []) for ps in settings.restored_ps]
            turns += [(settings.ps, [BESIDE])]
            for ps, wanted in turns:
                progress(_title(ps, wanted))
                with LocalCluster(1, ps, log_dir=log_dir / f"cluster-{ps}") as cluster:
                    order = CheckpointOrder(
                        mib=settings.mib,
                        folder=str(folder),
                        ways=wanted,
                        servers=processes(cluster, "ps"),
                    )
                    module = "tfps.bench.checkpoint.turn:measure"
                    turn = Turn(f"checkpoint_{ps}", module, asdict(order))
                    results.add(ps, turn.run(cluster, log_dir=log_dir))
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return results


def _title(ps: int, ways: list[str]) -> str:
    if BESIDE in ways:
        return f"save on {ps} ps beside training"
    return f"{'save on' if ways else 'restore into'} {ps} ps"
