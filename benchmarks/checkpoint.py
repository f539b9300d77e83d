"""How long saving and restoring take, how long training rests, and how much memory they need.

A save is done when the disk has all of it, which is what tfps waits for; after TensorFlow's the
benchmark does. What is restored still lies in the machine's memory, so it is not the disk that is
measured there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.benchmark import Benchmark, Order
from benchmarks.picture import BLUE, GREY, name_axis, picture
from benchmarks.results import Bar, Case, Measure, Results, Spread
from benchmarks.saving import BESIDE, RESTORE, SAVE, STREAMED, TENSORFLOW, TFPS, measure_saving
from benchmarks.settings import option
from benchmarks.table import middle
from benchmarks.turn import TaskNumbers, Tasks, Turn

WAYS = {TFPS: "tfps", STREAMED: "tfps, streamed", TENSORFLOW: "tf.train.Checkpoint"}
TITLES = {**WAYS, BESIDE: "tfps, beside training"}
PAUSE_AIM_S = 0.2
# Whatever the model's size: what the chief traces and reads of the manifest.
CHIEF_AIM_MIB = 64.0


def _whole(spread: Spread) -> str:
    return f"{spread.median:.0f}"


MEASURES = (
    Measure.from_results("seconds", "seconds"),
    Measure.from_results("pause_s", "training\nrests, s", middle),
    Measure.from_results("chief_mib", "chief\n+MiB", _whole),
    Measure.from_results("server_mib", "server\n+MiB", _whole),
)


@dataclass(frozen=True)
class SavingBenchmark(Benchmark):
    """Checkpoints: seconds, rest of training and memory, against tf.train.Checkpoint.

    A model of 1 GiB with Adam's slots on two servers, restored into one and three as well: eight
    minutes, 10 GB of disk and 12 GB of memory.
    """

    name = "checkpoint"
    order: ClassVar[Order] = {"what": (SAVE, RESTORE)}

    mib: int = option(1024, "Of the model's weights.")
    ps: int = 2  # servers that save
    restored_ps: tuple[int, ...] = (1, 3)  # numbers of servers to restore into

    def quick(self) -> SavingBenchmark:
        return replace(self, mib=16, repetitions=1)

    def plan(self, folder: Path) -> Iterator[Turn]:
        for repetition in range(self.repetitions):
            # A disk may be quicker for the one that comes first.
            first = repetition % len(WAYS)
            ways = [*WAYS][first:] + [*WAYS][:first]
            # A cluster at a time: what a server once held, its process keeps.
            restores = [(ps, list[str]()) for ps in self.restored_ps]
            for ps, wanted in [(self.ps, ways), *restores, (self.ps, [BESIDE])]:
                yield Turn(
                    title=_turn_title(ps, wanted),
                    name=f"checkpoint_{ps}",
                    case={"folder": str(folder / "checkpoints"), "ways": wanted},
                    axes={"ps": ps},
                    tasks=Tasks(workers=1, ps=ps),
                )

    def take(self, results: Results, turn: Turn, result: Any) -> None:
        for found in result:
            results.add(found, way=found["way"], what=found["what"], **turn.axes or {})

    def measure(self, tasks: TaskNumbers, *, folder: str, ways: Sequence[str]) -> Any:
        """Save and restore in some ways, in their order; without any only restore."""
        if len(ways) > 1:
            shutil.rmtree(folder, ignore_errors=True)  # of the repetition before
        return measure_saving(self.mib, Path(folder), ways, servers=tasks.groups["ps"])

    def measures(self, results: Results) -> Sequence[Measure]:
        return MEASURES

    def entries(self, results: Results) -> list[dict[str, Any]]:
        return [
            {**entry, "samples": list(case.runs.values())}
            for entry, case in zip(super().entries(results), self.cases(results), strict=True)
        ]

    def bars(self, results: Results) -> list[Bar]:
        def ratio(what: str) -> float | None:
            places = (TFPS, what, self.ps), (TENSORFLOW, what, self.ps)
            return results.ratio(*places, lambda case: case.spread("seconds"))

        ours, beside = (TFPS, SAVE, self.ps), (BESIDE, SAVE, self.ps)
        pause_s, beside_s = (results.median(place, "pause_s") for place in (ours, beside))
        chief_mib = results.median(ours, "chief_mib")
        return [
            Bar.cost("seconds that training rests for a save", pause_s, PAUSE_AIM_S),
            Bar.cost("the same beside training", beside_s, PAUSE_AIM_S),
            Bar.cost("memory that the chief needs for a save, MiB", chief_mib, CHIEF_AIM_MIB),
            Bar.cost("save: seconds over TensorFlow's", ratio(SAVE), 1.0),
            Bar.cost("restore: seconds over TensorFlow's", ratio(RESTORE), 1.0),
        ]

    def title_of(self, case: Case) -> str:
        return f"{self.mib} MiB and Adam's slots, {self.ps} ps"

    def row_of(self, case: Case) -> str:
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
        titles = list(map(self.row_of, cases))
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
