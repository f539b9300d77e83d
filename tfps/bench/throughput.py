"""Steps per second and CPU per step of seven ways to train the same model on the same data.

Rows take turns, several times; every turn is a fresh cluster and a fresh chief process. What a
shape's rows are compared on was thus measured within minutes of each other, and neither the memory
of a task nor what its first step takes has anything of another row in it. Keras's flavour is
decided by the environment (TF_USE_LEGACY_KERAS), which is why each row has a process of its own.
"""

from __future__ import annotations

import importlib.util
import math
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
from tfps.bench.case import Case
from tfps.bench.epochs import steps_way
from tfps.bench.images import write_images
from tfps.bench.memory import peak_mib
from tfps.bench.report import Bar, Spread
from tfps.bench.results import Results
from tfps.bench.runner import Bench, Benchmark, TaskNumbers
from tfps.bench.settings import option
from tfps.bench.table import case_table, number_text, ratio_text, spread_text
from tfps.bench.throughput_cases import (
    memory_mib,
    memory_mib_by_role,
    of_shape,
    ratio,
    shapes,
)
from tfps.bench.throughput_rows import LEGEND, ROWS, Epochs, Setting
from tfps.bench.throughput_shapes import SHAPES, Aim, Shape, shape_at
from tfps.bench.usage import Sample
from tfps.bench.workload import MODELS, Images
from tfps.errors import ConfigError

BASELINE = "stock_fit"
SINGLE = "single_fit"


@dataclass(frozen=True)
class Throughput(Benchmark):
    """Steps per second and CPU per step, against TensorFlow's strategy and a single process.

    Trains a Fashion-MNIST classifier and a model of 60 variables in seven ways, which take turns,
    and a CNN and a model of 25 million parameters in three: about 20 minutes on two cores, a few
    minutes with --quick.

    Args:
        models: of the shapes, those with one of these models.
        workers: of the shapes, those with one of these numbers of workers.
        rows: ways to train, keys of `ROWS`.
        steps_per_executions: each turn measures all of them, but for rows of the longest only.
        batch_size: examples in one worker's step.
        repetitions: turns of each row, on slow shapes fewer.
        epochs: measured epochs in a turn, after a warm-up epoch.
        epoch_s: how long an epoch takes, about.
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
        return sum(len(self.rows_of(s)) * self.repetitions_of(s) for s in self.shapes)

    def rows_of(self, shape: Shape) -> list[str]:
        """The rows that are measured on a shape."""
        return [row for row in self.rows if row in (shape.rows or ROWS)]

    def repetitions_of(self, shape: Shape) -> int:
        """The turns of each row on a shape."""
        return min(self.repetitions, shape.most_repetitions)

    def lengths(self, shape: Shape, row: str) -> Sequence[int]:
        """The lengths of execution at which a row is measured on a shape."""
        lengths = shape.lengths or self.steps_per_executions
        return (max(lengths),) if ROWS[row].longest_only else lengths

    def run(self, bench: Bench) -> None:
        """Measure each turn on a cluster of its own.

        Raises:
            ConfigError: a row needs tf_keras, which is not installed.
        """
        self._check()
        with tempfile.TemporaryDirectory(prefix="tfps-bench-") as folder:
            images_path = str(write_images(Path(folder)))
            for shape in self.shapes:
                for _ in range(self.repetitions_of(shape)):
                    for row in self.rows_of(shape):
                        bench.progress(f"{shape.title}: {ROWS[row].title}")
                        case = {"row": row, "place": shape.place, "images_path": images_path}
                        needs_tf_keras = ROWS[row].needs_tf_keras
                        with bench.cluster(shape.workers, shape.ps) as cluster:
                            answer = bench.turn(
                                cluster,
                                name=row,
                                case=case,
                                needs_cluster=row != SINGLE,
                                environment={"TF_USE_LEGACY_KERAS": "1"} if needs_tf_keras else {},
                            )
                        self.add(bench.results, shape, row, answer)

    def add(self, results: Results, shape: Shape, row: str, answer: Any) -> None:
        """Take the result of one turn: what was measured by the length of an execution."""
        for length, measured in answer["lengths"].items():
            results.add(
                measured | {"details": answer["details"]},
                **shape.place,
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

    def measure(
        self, tasks: TaskNumbers, *, row: str, place: Mapping[str, Any], images_path: str
    ) -> Any:
        """Train in one way, at each length of execution."""
        shape = shape_at(place)
        if row == SINGLE:
            tasks = TaskNumbers({})
        way = ROWS[row]
        strategy = way.begin()
        images = Images.load(Path(images_path), batch_size=self.batch_size)
        measured = {}
        for length in self.lengths(shape, row):
            begin_s = time.perf_counter()
            epochs = way.prepare(strategy, Setting(MODELS[shape.model], images, length))
            epochs(1, length * shape.workers, tasks.clock())
            first_step_s = time.perf_counter() - begin_s
            samples = self._measured_epochs(epochs, tasks, unit_steps=shape.unit_steps)
            measured[str(length)] = {
                "samples": [asdict(sample) for sample in samples],
                "first_step_s": first_step_s,
                "memory_mib": {
                    role: max(map(peak_mib, numbers))
                    for role, numbers in {"chief": [os.getpid()], **tasks.groups}.items()
                },
            }
        details = steps_way(strategy) if isinstance(strategy, tfps.ParameterServerStrategy) else {}
        return {"lengths": measured, "details": details}

    def _measured_epochs(
        self, train: Epochs, tasks: TaskNumbers, *, unit_steps: int
    ) -> list[Sample]:
        trial = tasks.clock(by_role=False)
        train(1, unit_steps, trial)
        wanted = trial.samples[-1].steps_per_s * self.epoch_s
        steps = unit_steps * max(1, math.ceil(wanted / unit_steps))
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
            "seconds_to_first_step": case.spread("first_step_s"),
            "memory_mib": {
                role: spread.as_json() for role, spread in memory_mib_by_role(case).items()
            },
            "other_cores": round(case.other_cores, 2),
            "ratio_to_stock_fit": _rounded(ratio(results, case, BASELINE)),
            "ratio_to_single_fit": _rounded(ratio(results, case, SINGLE)),
        }

    def bars(self, results: Results) -> list[Bar]:
        return [_bar(results, shape, aim) for shape in SHAPES for aim in shape.aims]

    def tables(self, results: Results) -> list[Table]:
        columns: dict[str, Callable[[Case], str]] = {
            "per\nexec.": lambda case: str(case["steps_per_execution"]),
            "steps/s": lambda case: spread_text(case.steps_per_s),
            "CPU ms\n/ step": lambda case: number_text(case.cpu_ms_per_step.median),
            "vs.\nstock": lambda case: (
                "" if case["row"] == SINGLE else ratio_text(ratio(results, case, BASELINE))
            ),
            "vs.\nsingle": lambda case: ratio_text(ratio(results, case, SINGLE)),
            "first\nstep": lambda case: number_text(case.spread("first_step_s").median),
            "MiB": lambda case: number_text(memory_mib(case)),
        }
        tables = []
        for shape in shapes(results):
            cases = of_shape(results, shape)
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
        from tfps.bench.throughput_picture import draw_shapes

        draw_shapes(results, path)


def _bar(results: Results, shape: Shape, aim: Aim) -> Bar:
    case = results.find(*shape.place.values(), aim.row, aim.steps_per_execution)

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
