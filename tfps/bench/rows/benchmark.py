"""What servers save that update of an embedding table only the rows of a batch.

One worker looks up 1,280 random rows in each step, on one server. With dense gradients an update
is a pass over the table and the optimizer's slots; with `RowUpdates` it touches the rows alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tfps.bench.rows.results import RowsResults
from tfps.bench.rows.turn import RowsOrder
from tfps.bench.turn import Turn, processes
from tfps.launch import LocalCluster


@dataclass(frozen=True)
class Rows:
    """How to measure.

    Args:
        optimizers: names of Keras's.
        mib: sizes of tables.
        batch_size: examples in a step, each of ten ids.
        repetitions: turns of each case; each is a fresh chief process.
        epochs: measured epochs in a turn, after a warm-up epoch.
        dense_steps: length of an epoch with dense gradients.
        row_steps: length of an epoch with updates of rows.
    """

    optimizers: tuple[str, ...] = ("sgd", "adam")
    mib: tuple[int, ...] = (64, 256)
    batch_size: int = 128
    repetitions: int = 3
    epochs: int = 1
    dense_steps: int = 15
    row_steps: int = 400

    def quick(self) -> Rows:
        """Give a version that shows whether everything works, with numbers of little worth."""
        return replace(self, mib=(1, 4), repetitions=1, row_steps=40)

    def as_json(self) -> dict[str, Any]:
        """The form in the report."""
        return asdict(self)

    @property
    def turns(self) -> int:
        """How many chief processes a run starts."""
        return 2 * len(self.optimizers) * len(self.mib) * self.repetitions


def run(settings: Rows, *, progress: Callable[[str], None], log_dir: Path) -> RowsResults:
    """Measure everything.

    Args:
        settings: what and how long.
        progress: is called with the name of each turn when it starts.
        log_dir: where the chiefs and the servers write what they have to say.

    Raises:
        TaskFailed: a chief process failed; the message has its last lines.
    """
    log_dir.mkdir(parents=True, exist_ok=True)
    results = RowsResults()
    with LocalCluster(1, 1, log_dir=log_dir / "cluster") as cluster:
        for _ in range(settings.repetitions):
            for name, mib, by_rows in itertools.product(
                settings.optimizers, settings.mib, (False, True)
            ):
                progress(f"{name}, {mib} MiB, {'rows of the batch' if by_rows else 'all rows'}")
                order = RowsOrder(
                    optimizer=name,
                    mib=mib,
                    by_rows=by_rows,
                    steps=settings.row_steps if by_rows else settings.dense_steps,
                    epochs=settings.epochs,
                    batch_size=settings.batch_size,
                    groups={role: processes(cluster, role) for role in ("worker", "ps")},
                )
                way = "rows" if by_rows else "all"
                turn = Turn(f"{name}_{mib}_{way}", "tfps.bench.rows.turn", asdict(order))
                result = turn.run(cluster, log_dir=log_dir)
                results.add(name, mib, by_rows=by_rows, result=result)
    return results
