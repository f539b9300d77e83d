"""Steps per second and CPU per step of seven ways to train the same model on the same data.

Rows take turns, several times; every turn is a fresh cluster and a fresh chief process. What a
shape's rows are compared on was thus measured within minutes of each other, and neither the memory
of a task nor what its first step takes has anything of another row in it. Keras's flavour is
decided by the environment (TF_USE_LEGACY_KERAS), which is why each row has a process of its own.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.table import Table

import tfps
from tfps.bench.images import Images, write_images
from tfps.bench.picture import BLUE, GREY, INK, draw_spread, name_bars, picture
from tfps.bench.results import Bar, Case, Results, Spread
from tfps.bench.runner import Bench, Benchmark, TaskNumbers
from tfps.bench.settings import option
from tfps.bench.table import Columns, case_table, ratio_text
from tfps.bench.throughput_rows import LEGEND, ROWS
from tfps.bench.throughput_shapes import SHAPES, Aim, Shape, shape_at
from tfps.bench.training import measured_epochs
from tfps.bench.usage import peak_mib, steps_way
from tfps.bench.workload import MODELS
from tfps.errors import ConfigError

BASELINE = "stock_fit"
SINGLE = "single_fit"
BAR_HEIGHT = 0.38
LEGEND_INCHES = 10.5  # of the picture's legend in one line
MOST_ACROSS = 3  # shapes beside each other

Quantity = Callable[[Case], Spread]


@dataclass(frozen=True)
class Throughput(Benchmark):
    """Steps per second and CPU per step, against TensorFlow's strategy and a single process.

    Trains a Fashion-MNIST classifier and a model of 60 variables in seven ways, which take turns,
    and a CNN and a model of 25 million parameters in three: about 20 minutes on two cores, a few
    minutes with --quick.
    """

    name = "throughput"

    epoch_s: float = option(
        1.0, click.FloatRange(min=0.1), "Length of an epoch.", flag="--epoch-seconds"
    )
    models: tuple[str, ...] = option(
        tuple(MODELS),
        click.Choice(list(MODELS)),
        "Only this model.",
        flag="--model",
        default_text="",
    )
    workers: tuple[int, ...] = option(
        (1, 2), click.IntRange(1, 2), "Only so many workers.", default_text=""
    )
    rows: Sequence[str] = tuple(ROWS)
    steps_per_executions: Sequence[int] = (1, 50)
    batch_size: int = 64
    epochs: int = 2  # measured ones in a turn, after a warm-up epoch

    def quick(self) -> Throughput:
        return replace(self, repetitions=1, epochs=1, epoch_s=0.5)

    def as_json(self) -> dict[str, Any]:
        names = ("batch_size", "repetitions", "epochs", "epoch_s")
        return {name: getattr(self, name) for name in names}

    @property
    def shapes(self) -> list[Shape]:
        """Those with one of the models and one of the numbers of workers."""
        return [s for s in SHAPES if s.model in self.models and s.workers in self.workers]

    @property
    def turns(self) -> int:
        return sum(len(self.rows_of(s)) * self.repetitions_of(s) for s in self.shapes)

    def rows_of(self, shape: Shape) -> list[str]:
        return [row for row in self.rows if row in (shape.rows or ROWS)]

    def repetitions_of(self, shape: Shape) -> int:
        return min(self.repetitions, shape.most_repetitions)

    def lengths(self, shape: Shape, row: str) -> Sequence[int]:
        """The lengths of execution at which a row is measured on a shape."""
        lengths = shape.lengths or self.steps_per_executions
        return (max(lengths),) if ROWS[row].longest_only else lengths

    def run(self, bench: Bench) -> None:
        needs_tf_keras = any(ROWS[row].needs_tf_keras for row in self.rows)
        if needs_tf_keras and importlib.util.find_spec("tf_keras") is None:
            raise ConfigError(
                "TensorFlow's own strategy trains only with tf_keras, which is not installed; "
                "install it: pip install 'tfps[bench]'",
                source="tfps bench throughput",
            )
        with tempfile.TemporaryDirectory(prefix="tfps-bench-") as folder:
            images_path = str(write_images(Path(folder)))
            for shape in self.shapes:
                for row in self.rows_of(shape) * self.repetitions_of(shape):
                    bench.progress(f"{shape.title}: {ROWS[row].title}")
                    case = {"row": row, "place": shape.place, "images_path": images_path}
                    with bench.cluster(shape.workers, shape.ps) as cluster:
                        answer = bench.turn(
                            cluster,
                            name=row,
                            case=case,
                            needs_cluster=row != SINGLE,
                            environment=ROWS[row].environment,
                        )
                    self.add(bench.results, shape, row, answer)

    def add(self, results: Results, shape: Shape, row: str, answer: Any) -> None:
        """Take the result of one turn: what was measured by the length of an execution."""
        for length, measured in answer["lengths"].items():
            place = {**shape.place, "row": row, "steps_per_execution": int(length)}
            results.add(measured | {"details": answer["details"]}, **place)

    def measure(
        self, tasks: TaskNumbers, *, row: str, place: Mapping[str, Any], images_path: str
    ) -> Any:
        """Train in one way, at each length of execution."""
        shape = shape_at(place)
        if row == SINGLE:
            tasks = TaskNumbers({})
        way = ROWS[row]
        strategy = way.begin()
        images = Images.load(images_path, batch_size=self.batch_size)
        measured = {}
        for length in self.lengths(shape, row):
            begin_s = time.perf_counter()
            epochs = way.prepare(strategy, MODELS[shape.model], length)(images)
            epochs(1, length * shape.workers, tasks.clock())
            first_step_s = time.perf_counter() - begin_s
            clock = measured_epochs(
                epochs,
                lambda: tasks.clock(by_role=False),
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
        details = steps_way(strategy) if isinstance(strategy, tfps.ParameterServerStrategy) else {}
        return {"lengths": measured, "details": details}

    def cases(self, results: Results) -> list[Case]:
        return [case for cases in by_shape(results).values() for case in cases]

    def quantities(self, results: Results, case: Case) -> dict[str, Any]:
        memory_mib = memory_mib_by_role(case).items()
        ratios = {f"ratio_to_{row}": ratio(results, case, row) for row in (BASELINE, SINGLE)}
        return {
            "batch_size": self.batch_size,
            "steps_per_s": case.steps_per_s,
            "cpu_ms_per_step": case.cpu_ms_per_step,
            "seconds_to_first_step": case.spread("first_step_s"),
            "memory_mib": {role: spread.as_json() for role, spread in memory_mib},
            "other_cores": round(case.other_cores, 2),
            **{name: None if value is None else round(value, 3) for name, value in ratios.items()},
        }

    def bars(self, results: Results) -> list[Bar]:
        return [_bar(results, shape, aim) for shape in SHAPES for aim in shape.aims]

    def tables(self, results: Results) -> list[Table]:
        columns: Columns = {
            "per\nexec.": lambda case: str(case["steps_per_execution"]),
            "steps/s": lambda case: case.steps_per_s,
            "CPU ms\n/ step": lambda case: case.cpu_ms_per_step.median,
            "vs.\nstock": lambda case: (
                "" if case["row"] == SINGLE else ratio_text(ratio(results, case, BASELINE))
            ),
            "vs.\nsingle": lambda case: ratio_text(ratio(results, case, SINGLE)),
            "first\nstep": lambda case: case.spread("first_step_s").median,
            "MiB": memory_mib,
        }
        tables = []
        for shape, cases in by_shape(results).items():
            first = {case["row"]: case for case in reversed(cases)}
            names = [ROWS[c["row"]].title if c is first[c["row"]] else "" for c in cases]
            tables.append(case_table(shape.title, names, cases, columns))
        return tables

    def explanation(self, results: Results) -> str:
        return (
            f"Medians (minimum-maximum). {LEGEND} First step: seconds from making the model to the "
            "end of each worker's first execution. MiB: the most that the largest task had at "
            "once, with the libraries."
        )

    def draw(self, results: Results, path: Path) -> None:
        """Draw for each shape steps/s above CPU per step; bars end at medians."""
        measured = list(by_shape(results).items())
        across = min(len(measured), MOST_ACROSS)
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
            for number, (band, names) in enumerate(zip(bands, rows, strict=True)):
                for (shape, cases), rates, costs in zip(
                    band, *axes[2 * number :][:2], strict=False
                ):
                    label = "steps/s: more is better"
                    _draw_panel(rates, cases, names, lambda case: case.steps_per_s, label)
                    label = "CPU ms per step, all processes: less is better"
                    _draw_panel(costs, cases, names, lambda case: case.cpu_ms_per_step, label)
                    model, _, tasks = shape.title.partition(", ")
                    title = f"{model}\n{tasks}"
                    rates.set_title(title, fontsize=10, color=INK, fontweight="bold")
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
        offset = (len(measured) - 1) / 2 - sorted(measured).index(length)
        y = rows.index(case["row"]) + offset * BAR_HEIGHT
        text = "{:,.0f}" if spread.median >= 100 else "{:.3g}"
        draw_spread(axis, y, spread, colour=colour, height=BAR_HEIGHT, text=text)
    name_bars(axis, [ROWS[row].title for row in rows], margin=0.22, label=label)
    axis.locator_params(axis="x", nbins=4)


def _draw_legend(figure: Any, lengths: list[int]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    longest_first = list(reversed(lengths))
    labels = [f"{length} step{'s' if length > 1 else ''} per execution" for length in longest_first]
    # Beside the first entries where there is room, else below them; one more handle without a line.
    wide = figure.get_figwidth() > LEGEND_INCHES
    explained = LEGEND if wide else LEGEND.replace(". ", ".\n")
    handles: list[Any] = [Patch(color=GREY[length == lengths[-1]]) for length in longest_first]
    handles += [Line2D([], [], color=INK, linewidth=1), Line2D([], [], linewidth=0)]
    labels += ["minimum to maximum", explained]
    style: dict[str, Any] = {"ncols": len(handles) if wide else 1, "frameon": False}
    figure.legend(handles, labels, loc="outside lower center", fontsize=8.5, **style)


def memory_mib_by_role(case: Case) -> dict[str, Spread]:
    """The most that the largest task of each role had at once, with the libraries."""
    runs = [run["memory_mib"] for run in case.runs.values()]
    return {role: Spread.of(run[role] for run in runs) for role in runs[0]}


def memory_mib(case: Case) -> float:
    """The most that the largest of all tasks had at once; the chief is one where it trains."""
    spreads = memory_mib_by_role(case)
    return max(spreads[role].median for role in spreads if role != "chief" or len(spreads) == 1)


def by_shape(results: Results) -> dict[Shape, list[Case]]:
    """The cases of the shapes that were measured, in the order of the shapes and of the rows."""

    def order(case: Case) -> tuple[int, int]:
        return list(ROWS).index(case["row"]), case["steps_per_execution"]

    found = {shape: sorted(results.of(**shape.place), key=order) for shape in SHAPES}
    return {shape: cases for shape, cases in found.items() if cases}


def ratio(
    results: Results,
    case: Case,
    row: str,
    quantity: Quantity = lambda case: case.steps_per_s,
) -> float | None:
    """The case's median of a quantity over that of another row, all else equal."""
    other = {**case.axes, "row": row}
    return results.ratio(tuple(case.axes.values()), tuple(other.values()), quantity)


def _bar(results: Results, shape: Shape, aim: Aim) -> Bar:
    case = results.find(*shape.place.values(), aim.row, aim.steps_per_execution)

    def quantity(case: Case) -> Spread:
        return case.cpu_ms_per_step if aim.of_cpu else case.steps_per_s

    value = None if case is None else ratio(results, case, aim.with_row, quantity)
    what = "CPU per step of " if aim.of_cpu else ""
    name = (
        f"{shape.title}, {aim.steps_per_execution} per execution: "
        f"{what}{ROWS[aim.row].title} over {ROWS[aim.with_row].title}"
    )
    return Bar(name, value, aim.value, is_cost=aim.of_cpu)
