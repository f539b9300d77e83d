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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from tfps.bench.picture import BLUE, GREY, name_axis, picture
from tfps.bench.results import Bar, Case, Results
from tfps.bench.runner import Bench, Benchmark, TaskNumbers
from tfps.bench.saving import BESIDE, RESTORE, SAVE, STREAMED, TENSORFLOW, TFPS, measure_saving
from tfps.bench.settings import option
from tfps.bench.table import Columns, case_table

WAYS = {TFPS: "tfps", STREAMED: "tfps, streamed", TENSORFLOW: "tf.train.Checkpoint"}
TITLES = {**WAYS, BESIDE: "tfps, beside training"}
PAUSE_AIM_S = 0.2
# Whatever the model's size: what the chief traces and reads of the manifest.
CHIEF_AIM_MIB = 64.0
QUANTITIES = ("seconds", "pause_s", "chief_mib", "server_mib")
COLUMNS: Columns = {
    "seconds": lambda case: case.spread("seconds"),
    "training\nrests, s": lambda case: case.spread("pause_s").median,
    "chief\n+MiB": lambda case: f"{case.spread('chief_mib').median:.0f}",
    "server\n+MiB": lambda case: f"{case.spread('server_mib').median:.0f}",
}


@dataclass(frozen=True)
class SavingBenchmark(Benchmark):
    """Checkpoints: seconds, rest of training and memory, against tf.train.Checkpoint.

    A model of 1 GiB with Adam's slots on two servers, restored into one and three as well: eight
    minutes, 10 GB of disk and 12 GB of memory.
    """

    name = "checkpoint"

    mib: int = option(1024, click.IntRange(min=1), "Of the model's weights.")
    ps: int = 2  # servers that save
    restored_ps: tuple[int, ...] = (1, 3)  # numbers of servers to restore into

    def quick(self) -> SavingBenchmark:
        return replace(self, mib=16, repetitions=1)

    @property
    def turns(self) -> int:
        return self.repetitions * (2 + len(self.restored_ps))

    def run(self, bench: Bench) -> None:
        """Measure everything; the checkpoints lie beside the logs meanwhile."""
        folder = bench.log_dir.absolute() / "checkpoints"
        try:
            for repetition in range(self.repetitions):
                # A disk may be quicker for who comes first.
                first = repetition % len(WAYS)
                ways = [*WAYS][first:] + [*WAYS][:first]
                # A cluster at a time: what a server once held, its process keeps.
                restores = [(ps, list[str]()) for ps in self.restored_ps]
                for ps, wanted in [(self.ps, ways), *restores, (self.ps, [BESIDE])]:
                    bench.progress(_turn_title(ps, wanted))
                    with bench.cluster(1, ps, name=f"cluster-{ps}") as cluster:
                        case = {"folder": str(folder), "ways": wanted}
                        for found in bench.turn(cluster, name=f"checkpoint_{ps}", case=case):
                            axes = {"way": found["way"], "what": found["what"], "ps": ps}
                            bench.results.add(found, **axes)
                shutil.rmtree(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def measure(self, tasks: TaskNumbers, *, folder: str, ways: Sequence[str]) -> Any:
        """Save and restore in some ways, in their order; without any only restore."""
        return measure_saving(self.mib, Path(folder), ways, servers=tasks.groups["ps"])

    def cases(self, results: Results) -> list[Case]:
        """Saves, then restores."""
        return sorted(results.cases, key=lambda case: [SAVE, RESTORE].index(case["what"]))

    def entries(self, results: Results) -> list[dict[str, Any]]:
        return [
            {
                **case.axes,
                **{name: case.spread(name).as_json() for name in QUANTITIES},
                "samples": list(case.runs.values()),
            }
            for case in self.cases(results)
        ]

    def bars(self, results: Results) -> list[Bar]:
        def median(way: str, quantity: str) -> float | None:
            case = results.find(way, SAVE, self.ps)
            return None if case is None else case.spread(quantity).median

        def ratio(what: str) -> float | None:
            places = (TFPS, what, self.ps), (TENSORFLOW, what, self.ps)
            return results.ratio(*places, lambda case: case.spread("seconds"))

        costs: list[tuple[str, float | None, float]] = [
            ("seconds that training rests for a save", median(TFPS, "pause_s"), PAUSE_AIM_S),
            ("the same beside training", median(BESIDE, "pause_s"), PAUSE_AIM_S),
            (
                "memory that the chief needs for a save, MiB",
                median(TFPS, "chief_mib"),
                CHIEF_AIM_MIB,
            ),
            *((f"{what}: seconds over TensorFlow's", ratio(what), 1.0) for what in (SAVE, RESTORE)),
        ]
        return [Bar(*cost, is_cost=True) for cost in costs]

    def tables(self, results: Results) -> list[Table]:
        cases = self.cases(results)
        title = f"{self.mib} MiB and Adam's slots, {self.ps} ps"
        return [case_table(title, [self.title_of(case) for case in cases], cases, COLUMNS)]

    def title_of(self, case: Case) -> str:
        """What tables and plots call a case."""
        into = "" if case["ps"] == self.ps else f", into {case['ps']} ps"
        return f"{case['what']}: {TITLES[case['way']]}{into}"

    def explanation(self, results: Results) -> str:
        return (
            "Medians (minimum-maximum). A save is done when the disk has it. Memory is by how much "
            "a process grew at most. Nothing was trained meanwhile but where it says so: there a "
            "server copies what it changes, and training rests for as much longer as one step took "
            "than the median of those before."
        )

    def draw(self, results: Results, path: Path) -> None:
        """Draw the seconds of each case, and of them those in which training rests."""
        cases = self.cases(results)[::-1]
        titles = [self.title_of(case) for case in cases]
        colours = [GREY if case["way"] == TENSORFLOW else BLUE for case in cases]
        with picture(path, 1, 1, size=(9, 3.8)) as (_, axes):
            axis = axes[0, 0]
            for shade, (name, height) in enumerate((("seconds", 0.7), ("pause_s", 0.4))):
                medians = [case.spread(name).median for case in cases]
                axis.barh(titles, medians, height, color=[colour[shade] for colour in colours])
            label = "seconds; the inner bar: training rests"
            name_axis(axis, title=f"{self.mib} MiB and Adam's slots", label=label)


def _turn_title(ps: int, ways: Sequence[str]) -> str:
    if BESIDE in ways:
        return f"save on {ps} ps beside training"
    return f"{'save on' if ways else 'restore into'} {ps} ps"
