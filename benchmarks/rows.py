"""The time that servers save by updating only a batch's rows of an embedding table.

One worker looks up 1,280 random rows in each step, on one server. With dense gradients an update
is a pass over the table and the optimizer's slots; with `SparseUpdates` it touches the rows alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

import tfps
from benchmarks.benchmark import Benchmark
from benchmarks.picture import BLUE, GREY, draw_spread, legend_below, name_bars, picture
from benchmarks.results import Bar, Case, Measure, Results, cpu_ms, rate
from benchmarks.settings import option
from benchmarks.table import Columns, case_table
from benchmarks.turn import TaskNumbers, Tasks, Turn
from benchmarks.usage import measured_fit

WIDTH = 64
IDS_PER_EXAMPLE = 10
# Rates of updates of rows over those of all: by optimizer and size of the table in MiB.
AIMS = {("sgd", 64): 4.0, ("adam", 64): 10.0, ("sgd", 256): 15.0, ("adam", 256): 40.0}
WAYS = ("all rows", "rows of the batch (SparseUpdates)")
LARGEST_OVER_SMALLEST_AIM = 0.8  # with updates of rows the table's size makes no difference
COLUMNS: Columns = {
    "steps/s,\nall rows": lambda pair: pair[0].steps_per_s,
    "steps/s,\nrows of the batch": lambda pair: pair[1].steps_per_s,
    "CPU ms per step,\nrows": lambda pair: pair[1].cpu_ms_per_step,
}


@dataclass(frozen=True)
class Rows(Benchmark):
    """Updates of a batch's rows of an embedding table, against those of all rows.

    SGD and Adam on one worker and one server: about 5 minutes on two cores, and 3 GB of memory.
    """

    name = "rows"
    chooses = ("repetitions", "optimizers", "mib")

    optimizers: tuple[str, ...] = ("sgd", "adam")
    mib: tuple[int, ...] = option((64, 256), "Size of a table; may be repeated.")
    batch_size: int = 128  # examples in a step, each of ten ids
    epochs: int = 1  # measured ones in a turn, after a warm-up epoch
    dense_steps: int = 15  # length of an epoch with dense gradients
    row_steps: int = 400  # length of an epoch with updates of rows

    def quick(self) -> Rows:
        return replace(self, mib=(1, 4), repetitions=1, row_steps=40)

    def plan(self, folder: Path) -> Iterator[Turn]:
        places = list(itertools.product(self.optimizers, self.mib, (False, True)))
        for optimizer, mib, by_rows in places * self.repetitions:
            yield Turn(
                title=f"{optimizer}, {mib} MiB, {'rows of the batch' if by_rows else 'all rows'}",
                name=f"{optimizer}_{mib}_{'rows' if by_rows else 'all'}",
                case={"optimizer": optimizer, "mib": mib, "by_rows": by_rows},
                tasks=Tasks(workers=1, ps=1, name="cluster"),
            )

    def measure(self, tasks: TaskNumbers, *, optimizer: str, mib: int, by_rows: bool) -> Any:
        """Train with one optimizer on one table."""
        import keras

        rows = (mib << 20) // (4 * WIDTH)  # float32
        strategy = tfps.ParameterServerStrategy()
        with strategy.scope():
            chosen: Any = keras.optimizers.get(optimizer)
            if by_rows:
                chosen = tfps.optimizers.SparseUpdates(chosen)
            layers = [
                keras.Input((IDS_PER_EXAMPLE,), dtype="int32"),
                keras.layers.Embedding(rows, WIDTH),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(1),
            ]
            model = keras.Sequential(layers)
            model.compile(chosen, "mse")
        steps = self.row_steps if by_rows else self.dense_steps
        examples = steps * self.batch_size
        ids = np.random.default_rng(0).integers(0, rows, (examples, IDS_PER_EXAMPLE), np.int32)
        return measured_fit(
            model,
            ids,
            np.ones(examples, np.float32),
            clock=tasks.clock(),
            steps=steps,
            batch_size=self.batch_size,
            epochs=self.epochs,
        )

    def measures(self, results: Results) -> list[Measure]:
        return [Measure("steps_per_s", rate), Measure("cpu_ms_per_step", cpu_ms)]

    def bars(self, results: Results) -> list[Bar]:
        bars = []
        for dense, _rows in pairs(results):
            place = dense["optimizer"], dense["mib"]
            if place in AIMS:
                name = "{}, {} MiB: rows of the batch over all rows".format(*place)
                bars.append(Bar(name, results.ratio((*place, True), (*place, False)), AIMS[place]))
        for optimizer in results.on("optimizer"):
            own = results.select(optimizer=optimizer, by_rows=True)
            if len(own) > 1:
                small, *_, large = sorted(case["mib"] for case in own)
                name = f"{optimizer}, rows of the batch: {large} MiB over {small} MiB"
                ratio = results.ratio((optimizer, large, True), (optimizer, small, True))
                bars.append(Bar(name, ratio, LARGEST_OVER_SMALLEST_AIM))
        return bars

    def tables(self, results: Results) -> list[Table]:
        names = [f"{dense['optimizer']}, {dense['mib']} MiB" for dense, _ in pairs(results)]
        title = "Updates of one embedding table on one server"
        return [case_table(title, names, pairs(results), COLUMNS)]

    def explanation(self, results: Results) -> str:
        return "Medians (minimum-maximum)."

    def draw(self, results: Results, path: Path) -> None:
        """Draw steps/s with updates of all rows and of the batch's, on a logarithmic axis."""
        found = pairs(results)
        with picture(path, 1, 1, size=(9, 1.8 + 0.6 * len(found))) as (figure, axes):
            axis = axes[0, 0]
            for row, pair in enumerate(found):
                for case, colour, label in zip(pair, (GREY[1], BLUE[1]), WAYS, strict=True):
                    style: dict[str, Any] = {"colour": colour, "label": label, "markersize": 8}
                    draw_spread(axis, row, case.steps_per_s, text="  {:.3g}", **style)
            axis.set_xscale("log")
            names = [f"{dense['optimizer']}\n{dense['mib']} MiB" for dense, _ in found]
            title, label = "Steps per second", "more is better; logarithmic"
            name_bars(axis, names, margin=0.15, is_from_zero=False, title=title, label=label)
            legend_below(figure, axis, entries=2, columns=2)


def pairs(results: Results) -> list[tuple[Case, Case]]:
    """Return the cases of one optimizer and table: all rows, and those of the batch."""
    found = [
        (dense, results.find(dense["optimizer"], dense["mib"], True))
        for dense in results.select(by_rows=False)
    ]
    return [(dense, rows) for dense, rows in found if rows is not None]
