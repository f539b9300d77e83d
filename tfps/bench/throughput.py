"""Steps per second and CPU per step of seven ways to train the same model on the same data.

Rows take turns, several times, on one cluster per shape; every turn is a fresh chief process that
attaches to the running servers. What a shape's rows are compared on was thus measured within
minutes of each other, on the same processes. Keras's flavour is decided by the environment
(TF_USE_LEGACY_KERAS), which is why each row has a process of its own.
"""

from __future__ import annotations

import importlib.util
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from tfps.bench.case import Case
from tfps.bench.images import write_images
from tfps.bench.report import Bar, Spread
from tfps.bench.results import Results
from tfps.bench.runner import Bench, Benchmark, TaskNumbers, option
from tfps.bench.style import BLUE, GREY, INK
from tfps.bench.table import case_table, ratio_text, spread_text
from tfps.bench.throughput_rows import ROWS, Epochs, Setting
from tfps.bench.throughput_shapes import SHAPES, Aim, Shape
from tfps.bench.usage import Sample
from tfps.bench.workload import MODELS, Images
from tfps.errors import ConfigError

BASELINE = "stock_fit"
SINGLE = "single_fit"
LEGEND = (
    "Single process and tfps: Keras 3. Stock: TensorFlow's own ParameterServerStrategy, tf_keras."
)
# Divisible by the longest execution and by two workers: no execution is cut short, no worker idles.
STEPS_UNIT = 100
BAR_HEIGHT = 0.38
LEGEND_INCHES = 10.5  # of the legend in one line


@dataclass(frozen=True)
class Throughput(Benchmark):
    """Steps per second and CPU per step, against TensorFlow's strategy and a single process.

    Trains a Fashion-MNIST classifier and a model of 60 variables in seven ways, which take turns
    on one cluster: about half an hour on two cores, a few minutes with --quick.

    Args:
        models: of the shapes, those with one of these models.
        workers: of the shapes, those with one of these numbers of workers.
        rows: ways to train, keys of `ROWS`.
        steps_per_executions: each turn measures all of them, but for rows of the longest only.
        batch_size: examples in one worker's step.
        repetitions: turns of each row.
        epochs: measured epochs in a turn, after a warm-up epoch.
        epoch_s: how long an epoch takes, about.
    """

    name = "throughput"

    epoch_s: float = option(
        1.5, click.FloatRange(min=0.1), "Length of an epoch.", flag="--epoch-seconds"
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
    repetitions: int = 3
    epochs: int = 2

    def quick(self) -> Throughput:
        return replace(self, repetitions=1, epochs=1, epoch_s=0.5)

    def as_json(self) -> dict[str, Any]:
        names = ("batch_size", "repetitions", "epochs", "epoch_s")
        return {name: getattr(self, name) for name in names}

    @property
    def shapes(self) -> list[Shape]:
        """Clusters and models."""
        return [
            shape
            for shape in SHAPES
            if shape.model in self.models and shape.workers in self.workers
        ]

    @property
    def turns(self) -> int:
        return len(self.shapes) * len(self.rows) * self.repetitions

    def lengths(self, row: str) -> Sequence[int]:
        """The lengths of execution at which a row is measured."""
        longest = max(self.steps_per_executions)
        return (longest,) if ROWS[row].longest_only else self.steps_per_executions

    def run(self, bench: Bench) -> None:
        """Measure on a cluster for each shape.

        Raises:
            ConfigError: a row needs tf_keras, which is not installed.
        """
        self._check()
        with tempfile.TemporaryDirectory(prefix="tfps-bench-") as folder:
            images_path = str(write_images(Path(folder)))
            for number, shape in enumerate(self.shapes):
                with bench.cluster(shape.workers, shape.ps, name=f"cluster-{number}") as cluster:
                    for _ in range(self.repetitions):
                        for row in self.rows:
                            bench.progress(f"{shape.title}: {ROWS[row].title}")
                            case = {"row": row, "model": shape.model, "images_path": images_path}
                            needs_tf_keras = ROWS[row].needs_tf_keras
                            answer = bench.turn(
                                cluster,
                                name=row,
                                case=case,
                                needs_cluster=row != SINGLE,
                                environment={"TF_USE_LEGACY_KERAS": "1"} if needs_tf_keras else {},
                            )
                            self.add(bench.results, shape, row, answer)

    def add(self, results: Results, shape: Shape, row: str, answer: Any) -> None:
        """Take the result of one turn: samples by the length of an execution."""
        for length, samples in answer["samples"].items():
            results.add(
                {"samples": samples, "details": answer["details"]},
                model=shape.model,
                workers=shape.workers,
                ps=shape.ps,
                row=row,
                steps_per_execution=int(length),
            )

    def _check(self) -> None:
        needed = any(ROWS[row].needs_tf_keras for row in self.rows)
        if needed and importlib.util.find_spec("tf_keras") is None:
            raise ConfigError(
                "TensorFlow's own strategy trains only with tf_keras, which is not installed; "
                "install it: pip install 'tfps[bench]'",
                source="tfps bench throughput",
            )

    def measure(self, tasks: TaskNumbers, *, row: str, model: str, images_path: str) -> Any:
        """Train in one way, at each length of execution."""
        if row == SINGLE:
            tasks = TaskNumbers({})
        way = ROWS[row].kind()
        images = Images.load(Path(images_path), batch_size=self.batch_size)
        samples = {}
        for length in self.lengths(row):
            epochs = way.prepare(Setting(MODELS[model], images, length))
            found = self._measured_epochs(epochs, tasks)
            samples[str(length)] = [asdict(sample) for sample in found]
        return {"samples": samples, "details": way.details()}

    def _measured_epochs(self, train: Epochs, tasks: TaskNumbers) -> list[Sample]:
        trial = tasks.clock(by_role=False)
        train(2, STEPS_UNIT, trial)  # the first one traces
        wanted = trial.samples[-1].steps_per_s * self.epoch_s
        steps = STEPS_UNIT * max(1, math.ceil(wanted / STEPS_UNIT))
        clock = tasks.clock(by_role=False)
        train(1 + self.epochs, steps, clock)  # the first one fills the buffers of the input
        return clock.samples[1:]

    def cases(self, results: Results) -> list[Case]:
        return [case for shape in shapes(results) for case in of_shape(results, shape)]

    def quantities(self, results: Results, case: Case) -> dict[str, Any]:
        return {
            "batch_size": self.batch_size,
            "steps_per_s": case.steps_per_s,
            "cpu_ms_per_step": case.cpu_ms_per_step,
            "other_cores": round(case.other_cores, 2),
            "ratio_to_stock_fit": _rounded(ratio(results, case, BASELINE)),
            "ratio_to_single_fit": _rounded(ratio(results, case, SINGLE)),
        }

    def bars(self, results: Results) -> list[Bar]:
        return [_bar(results, shape, aim) for shape in SHAPES for aim in shape.aims]

    def tables(self, results: Results) -> list[Table]:
        columns: dict[str, Callable[[Case], str]] = {
            "steps/\nexec.": lambda case: str(case["steps_per_execution"]),
            "steps/s": lambda case: spread_text(case.steps_per_s),
            "CPU ms\nper step": lambda case: spread_text(case.cpu_ms_per_step),
            "vs.\nstock": lambda case: (
                "" if case["row"] == SINGLE else ratio_text(ratio(results, case, BASELINE))
            ),
            "vs.\nsingle": lambda case: ratio_text(ratio(results, case, SINGLE)),
        }
        tables = []
        for shape in shapes(results):
            cases = of_shape(results, shape)
            first = {case["row"]: case for case in reversed(cases)}
            names = [ROWS[c["row"]].title if c is first[c["row"]] else "" for c in cases]
            tables.append(case_table(shape.title, names, cases, columns))
        return tables

    def explanation(self, results: Results) -> str:
        return f"Medians (minimum-maximum). {LEGEND}"

    def draw(self, results: Results, path: Path) -> None:
        """Draw a column per shape; steps/s above, CPU per step below; bars end at medians."""
        from tfps.bench.picture import picture

        columns = shapes(results)
        rows = [row for row in ROWS if row in results.on("row")]
        size = (2.6 + 3.0 * len(columns), 1.9 + 0.95 * len(rows))
        with picture(path, 2, len(columns), size=size, sharey=True) as (figure, axes):
            for (rates, costs), shape in zip(axes.T, columns, strict=True):
                cases = of_shape(results, shape)
                _panel(rates, cases, rows, lambda case: case.steps_per_s)
                _panel(costs, cases, rows, lambda case: case.cpu_ms_per_step)
                model, _, tasks = shape.title.partition(", ")
                rates.set_title(f"{model}\n{tasks}", fontsize=10, color=INK, fontweight="bold")
                rates.set_xlabel("steps/s: more is better", fontsize=8.5)
                costs.set_xlabel("CPU ms per step, all processes: less is better", fontsize=8.5)
            _legend(figure, sorted(results.on("steps_per_execution")))


def of_shape(results: Results, shape: Shape) -> list[Case]:
    """The cases of one shape, in the order of the rows."""
    return sorted(
        results.of(model=shape.model, workers=shape.workers, ps=shape.ps),
        key=lambda case: (list(ROWS).index(case["row"]), case["steps_per_execution"]),
    )


def shapes(results: Results) -> list[Shape]:
    """The shapes in the order in which they were measured."""
    places = dict.fromkeys((case["model"], case["workers"], case["ps"]) for case in results.cases)
    return [Shape(*place) for place in places]


def ratio(
    results: Results,
    case: Case,
    row: str,
    quantity: Callable[[Case], Spread] = lambda case: case.steps_per_s,
) -> float | None:
    """The case's median of a quantity over that of another row, all else equal."""
    other = {**case.axes, "row": row}
    return results.ratio(tuple(case.axes.values()), tuple(other.values()), quantity)


def _bar(results: Results, shape: Shape, aim: Aim) -> Bar:
    case = results.find(shape.model, shape.workers, shape.ps, aim.row, aim.steps_per_execution)

    def quantity(case: Case) -> Spread:
        return case.cpu_ms_per_step if aim.is_cost else case.steps_per_s

    value = None if case is None else ratio(results, case, aim.with_row, quantity)
    what = "CPU per step of " if aim.is_cost else ""
    name = (
        f"{shape.title}, {aim.steps_per_execution} per execution: "
        f"{what}{ROWS[aim.row].title} over {ROWS[aim.with_row].title}"
    )
    return Bar(name, value, aim.value, is_cost=aim.is_cost)


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 3)


def _panel(
    axis: Any, cases: list[Case], rows: list[str], quantity: Callable[[Case], Spread]
) -> None:
    from tfps.bench.picture import draw_spread, name_axis, name_rows

    lengths = sorted({case["steps_per_execution"] for case in cases})
    for case in cases:
        length, spread = case["steps_per_execution"], quantity(case)
        # The lighter shade is for the shortest execution.
        shade = 0 if length == lengths[0] and len(lengths) > 1 else 1
        # The longest execution is the upper bar of its row; one alone stands in the middle.
        measured = [c["steps_per_execution"] for c in cases if c["row"] == case["row"]]
        offset = (len(measured) - 1) / 2 - sorted(measured).index(length)
        colour = (BLUE if case["row"].startswith("tfps") else GREY)[shade]
        y = rows.index(case["row"]) + offset * BAR_HEIGHT
        text = "{:,.0f}" if spread.median >= 100 else "{:.3g}"
        draw_spread(axis, y, spread, colour=colour, height=BAR_HEIGHT, text=text)
    name_rows(axis, [ROWS[row].title for row in rows], margin=0.22)
    axis.set_xlim(left=0)
    axis.locator_params(axis="x", nbins=4)
    name_axis(axis)


def _legend(figure: Any, lengths: list[int]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    longest_first = list(reversed(lengths))
    patches: list[Any] = [Patch(color=GREY[length == lengths[-1]]) for length in longest_first]
    labels = [f"{length} step{'s' if length > 1 else ''} per execution" for length in longest_first]
    patches.append(Line2D([], [], color=INK, linewidth=1))
    # Beside the first entries where there is room, else below them; one more handle without a line.
    wide = figure.get_figwidth() > LEGEND_INCHES
    patches.append(Line2D([], [], linewidth=0))
    explained = LEGEND if wide else LEGEND.replace(". ", ".\n")
    figure.legend(
        patches,
        [*labels, "minimum to maximum", explained],
        loc="outside lower center",
        ncols=len(patches) if wide else 1,
        frameon=False,
        fontsize=8.5,
    )
