"""Steps per second and CPU per step of seven ways to train the same model on the same data.

Keras's flavour is decided by the environment (TF_USE_LEGACY_KERAS), which is why each row has a
process of its own. Rows take turns: what is compared was measured within minutes of each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import click

from benchmarks.benchmark import Benchmark, Order, grouped
from benchmarks.images import Images, write_images
from benchmarks.picture import BLUE, GREY, INK, draw_spread, name_bars, picture
from benchmarks.results import Bar, Case, Measure, Results, Spread, cpu_ms, rate
from benchmarks.settings import choices, option
from benchmarks.table import middle, ratio_text
from benchmarks.throughput_shapes import LEGEND, ROWS, SHAPES, Aim, Shape, shape_at
from benchmarks.training import measured_epochs
from benchmarks.turn import TaskNumbers, Tasks, Turn
from benchmarks.usage import peak_mib, steps_way
from benchmarks.workload import MODELS
from tfps.units import counted

BASELINE, SINGLE = "stock_fit", "single_fit"
BAR_HEIGHT = 0.38
LEGEND_INCHES = 10.5  # of the picture's legend in one line
MAX_PANELS_PER_ROW = 3  # shapes beside each other

Quantity = Callable[[Case], Spread]


@dataclass(frozen=True)
class Throughput(Benchmark):
    """Steps per second and CPU per step, against TensorFlow's strategy and a single process.

    Trains a Fashion-MNIST classifier and a model of 60 variables in seven ways, which take turns,
    and a CNN and a model of 25 million parameters in three: about 20 minutes on two cores, a few
    minutes with --quick.
    """

    name = "throughput"
    chooses = ("repetitions", "models", "workers")
    needs_tf_keras = True
    order: ClassVar[Order] = {
        "model": MODELS,
        "workers": None,
        "row": ROWS,
        "steps_per_execution": None,
    }

    epoch_s: float = option(
        1.0, "Length of an epoch.", click.FloatRange(min=0.1), flag="--epoch-seconds"
    )
    models: tuple[str, ...] = choices(MODELS, "Only this model.", flag="--model")
    workers: tuple[int, ...] = choices((1, 2), "Only this number of workers.")
    batch_size: int = 64
    epochs: int = 2  # measured ones in a turn, after a warm-up epoch

    def quick(self) -> Throughput:
        return replace(self, repetitions=1, epochs=1, epoch_s=0.5)

    def as_json(self) -> dict[str, Any]:
        names = ("batch_size", "repetitions", "epochs", "epoch_s")
        return {name: getattr(self, name) for name in names}

    def plan(self, folder: Path) -> Iterator[Turn]:
        images_path = str(write_images(folder))
        for shape in SHAPES:
            if shape.model not in self.models or shape.workers not in self.workers:
                continue
            for row in shape.rows * min(self.repetitions, shape.most_repetitions):
                yield Turn(
                    title=f"{shape.title}: {ROWS[row].title}",
                    name=row,
                    case={"row": row, "place": shape.place, "images_path": images_path},
                    tasks=None if row == SINGLE else Tasks(workers=shape.workers, ps=shape.ps),
                    environment=ROWS[row].environment,
                )

    def take(self, results: Results, turn: Turn, result: Any) -> None:
        """Add what was measured by the length of an execution."""
        for length, measured in result["lengths"].items():
            row = {"row": turn.case["row"], "steps_per_execution": int(length)}
            results.add(measured | {"details": result["details"]}, **turn.case["place"], **row)

    def measure(
        self, tasks: TaskNumbers, *, row: str, place: Mapping[str, Any], images_path: str
    ) -> Any:
        """Train in one way, at each length of execution."""
        shape, way = shape_at(place), ROWS[row]
        strategy = way.begin()
        images = Images.load(images_path, batch_size=self.batch_size)
        measured = {}
        for length in shape.lengths_of(row):
            begin_s = time.perf_counter()
            epochs = way.prepare(strategy, MODELS[shape.model], length)(images)
            epochs(1, length * shape.workers, tasks.clock())
            first_step_s = time.perf_counter() - begin_s
            clock = measured_epochs(
                epochs,
                tasks.clock,
                unit_steps=shape.unit_steps,
                epochs=self.epochs,
                epoch_s=self.epoch_s,
            )
            measured[str(length)] = {
                "samples": [asdict(sample) for sample in clock.samples[1:]],
                "first_step_s": first_step_s,
                "memory_mib": {
                    role: max(map(peak_mib, numbers))
                    for role, numbers in {"chief": [os.getpid()], **tasks.groups}.items()
                },
            }
        return {"lengths": measured, "details": steps_way(strategy)}

    def measures(self, results: Results) -> list[Measure]:
        to_stock, to_single = (partial(ratio, results, row) for row in (BASELINE, SINGLE))
        return [
            Measure("batch_size", lambda _: self.batch_size),
            Measure("", lambda case: str(case["steps_per_execution"]), "per\nexec."),
            Measure("steps_per_s", rate, "steps/s"),
            Measure("cpu_ms_per_step", cpu_ms, "CPU ms\n/ step", middle),
            Measure(
                "",
                lambda case: None if case["row"] == SINGLE else to_stock(case),
                "vs.\nstock",
                ratio_text,
            ),
            Measure("", to_single, "vs.\nsingle", ratio_text),
            Measure("switches_per_step_of_workers", switches_per_step_of_workers),
            Measure("seconds_to_first_step", _first_step_s, "first\nstep", middle),
            Measure("memory_mib", memory_mib_by_role, "MiB", largest_mib),
            Measure(f"ratio_to_{BASELINE}", lambda case: _rounded(to_stock(case))),
            Measure(f"ratio_to_{SINGLE}", lambda case: _rounded(to_single(case))),
        ]

    def bars(self, results: Results) -> list[Bar]:
        return [_bar(results, shape, aim) for shape in SHAPES for aim in shape.aims]

    def title_of(self, case: Case) -> str:
        return shape_at(case.axes).title

    def row_of(self, case: Case) -> str:
        return ROWS[case["row"]].title

    def explanation(self, results: Results) -> str:
        return (
            f"Medians (minimum-maximum). {LEGEND} First step: seconds from making the model to the "
            "end of each worker's first execution. MiB: the most that the largest task had at "
            "once, with the libraries."
        )

    def draw(self, results: Results, path: Path) -> None:
        """Draw for each shape steps/s above CPU per step; bars end at medians."""
        measured = list(grouped(self.cases(results), self.title_of).items())
        across = min(len(measured), MAX_PANELS_PER_ROW)
        # A band has some shapes, and two rows of axes: rates above costs.
        bands = [measured[k : k + across] for k in range(0, len(measured), across)]
        found = [{case["row"] for _, cases in band for case in cases} for band in bands]
        rows = [[row for row in ROWS if row in measured_rows] for measured_rows in found]
        heights = [0.95 + 0.475 * len(names) for names in rows for _ in range(2)]
        options = {"sharey": "row", "gridspec_kw": {"height_ratios": heights}}
        size = (2.6 + 3.0 * across, sum(heights))
        with picture(path, 2 * len(bands), across, size=size, **options) as (figure, axes):
            for axis in axes.flat:
                axis.set_axis_off()
            for band, names, above, below in zip(bands, rows, axes[::2], axes[1::2], strict=True):
                for (title, cases), rates, costs in zip(band, above, below, strict=False):
                    _draw_panel(rates, cases, names, rate, "steps/s: more is better")
                    label = "CPU ms per step, all processes: less is better"
                    _draw_panel(costs, cases, names, cpu_ms, label)
                    lines = title.replace(", ", "\n", 1)
                    rates.set_title(lines, fontsize=10, color=INK, fontweight="bold")
            _draw_legend(figure, sorted(results.on("steps_per_execution")))


def _draw_panel(
    axis: Any, cases: list[Case], rows: list[str], quantity: Quantity, label: str
) -> None:
    axis.set_axis_on()
    shortest, *longer = sorted({case["steps_per_execution"] for case in cases})
    for case in cases:
        length, spread = case["steps_per_execution"], quantity(case)
        # The lighter shade is for the shortest execution.
        shades = BLUE if case["row"].startswith("tfps") else GREY
        colour = shades[length != shortest or not longer]
        # The longest execution is the upper bar of its row; one alone stands in the middle.
        measured = [c["steps_per_execution"] for c in cases if c["row"] == case["row"]]
        offset = (len(measured) - 1) / 2 - measured.index(length)
        y = rows.index(case["row"]) + offset * BAR_HEIGHT
        text = "{:,.0f}" if spread.median >= 100 else "{:.3g}"
        draw_spread(axis, y, spread, colour=colour, height=BAR_HEIGHT, text=text)
    name_bars(axis, [ROWS[row].title for row in rows], margin=0.22, label=label)
    axis.locator_params(axis="x", nbins=4)


def _draw_legend(figure: Any, lengths: list[int]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    # Beside the first entries where there is room, else below them; one more handle without a line.
    wide = figure.get_figwidth() > LEGEND_INCHES
    explained = LEGEND if wide else LEGEND.replace(". ", ".\n")
    entries: dict[str, Any] = {
        f"{counted(length, 'step')} per execution": Patch(color=GREY[length == lengths[-1]])
        for length in reversed(lengths)
    }
    entries["minimum to maximum"] = Line2D([], [], color=INK, linewidth=1)
    entries[explained] = Line2D([], [], linewidth=0)
    style: dict[str, Any] = {"ncols": len(entries) if wide else 1, "frameon": False}
    place = "outside lower center"
    figure.legend(entries.values(), entries.keys(), loc=place, fontsize=8.5, **style)


def memory_mib_by_role(case: Case) -> dict[str, Spread]:
    """Return the largest peak memory of each role's tasks, in MiB."""
    runs = [run["memory_mib"] for run in case.runs.values()]
    return {role: Spread.from_samples(run[role] for run in runs) for role in runs[0]}


def switches_per_step_of_workers(case: Case) -> Spread | None:
    """Return the voluntary context switches of a step in the workers; None without workers."""
    if not all("worker" in sample.group_switches for sample in case.samples):
        return None
    return case.spread_of_samples(lambda sample: sample.group_switches_per_step("worker"))


def largest_mib(spreads: Mapping[str, Spread]) -> float:
    """Return the largest peak memory of all tasks."""
    return max(spreads[role].median for role in spreads if role != "chief" or len(spreads) == 1)


def _first_step_s(case: Case) -> Spread:
    return case.spread("first_step_s")


def ratio(results: Results, row: str, case: Case) -> float | None:
    """Return the case's median rate over that of another row, all else equal."""
    other = {**case.axes, "row": row}
    return results.ratio(tuple(case.axes.values()), tuple(other.values()))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _bar(results: Results, shape: Shape, aim: Aim) -> Bar:
    ours, theirs = (
        (*shape.place.values(), row, aim.steps_per_execution) for row in (aim.row, aim.with_row)
    )
    value = results.ratio(ours, theirs, cpu_ms if aim.of_cpu else rate)
    what = "CPU per step of " if aim.of_cpu else ""
    name = (
        f"{shape.title}, {aim.steps_per_execution} per execution: "
        f"{what}{ROWS[aim.row].title} over {ROWS[aim.with_row].title}"
    )
    return Bar(name, value, aim.value, is_cost=aim.of_cpu)
