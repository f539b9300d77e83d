"""Steps per second and CPU per step of four ways to train the same model on the same data.

Rows take turns, several times, on one cluster per shape; every turn is a fresh chief process that
attaches to the running servers. What a shape's rows are compared on was thus measured within
minutes of each other, on the same processes.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tfps.bench.chief import Order
from tfps.bench.images import write_images
from tfps.bench.report import Bar, Report, Spread
from tfps.bench.rows import NEEDS_TF_KERAS, ROWS, TITLES
from tfps.bench.usage import Sample
from tfps.bench.workload import MODELS
from tfps.errors import ConfigError, TaskFailed
from tfps.launch import LocalCluster
from tfps.launch.environment import task_environment
from tfps.launch.process import TaskProcess, describe_status

BASELINE = "stock_fit"
OURS = "tfps_fit"
TURN_TIMEOUT_S = 600.0  # a turn takes half a minute; one that hangs must not keep the others


@dataclass(frozen=True)
class Shape:
    """A cluster and what is trained on it.

    Args:
        model: a key of `MODELS`.
        workers: tasks that compute gradients.
        ps: tasks that keep parameters.
        aim: what tfps fit should reach against TensorFlow's, 50 steps per execution; None: no aim.
    """

    model: str
    workers: int
    ps: int
    aim: float | None = None

    @property
    def title(self) -> str:
        """The shape in words."""
        workers = f"{self.workers} worker" + ("s" if self.workers > 1 else "")
        return f"{MODELS[self.model].title}, {workers} + {self.ps} ps"


SHAPES = (
    Shape("mlp", workers=1, ps=1, aim=1.5),
    Shape("mlp", workers=2, ps=1, aim=2.0),
    Shape("layers", workers=1, ps=2, aim=3.0),
    Shape("layers", workers=2, ps=2),
)


@dataclass(frozen=True)
class Throughput:
    """How to measure.

    Args:
        shapes: clusters and models.
        rows: ways to train, keys of `ROWS`.
        steps_per_executions: each turn measures all of them.
        batch_size: examples in one worker's step.
        repetitions: turns of each row.
        epochs: measured epochs in a turn, after a warm-up epoch.
        epoch_s: how long an epoch takes, about.
    """

    shapes: Sequence[Shape] = SHAPES
    rows: Sequence[str] = tuple(ROWS)
    steps_per_executions: Sequence[int] = (1, 50)
    batch_size: int = 64
    repetitions: int = 3
    epochs: int = 2
    epoch_s: float = 2.0

    def quick(self) -> Throughput:
        """Give a version that shows whether everything works, with numbers of little worth."""
        return replace(self, repetitions=1, epochs=1, epoch_s=0.5)

    @property
    def turns(self) -> int:
        """How many chief processes a run starts."""
        return len(self.shapes) * len(self.rows) * self.repetitions


@dataclass
class Case:
    """The samples of one row at one length of execution on one shape."""

    shape: Shape
    row: str
    steps_per_execution: int
    samples: list[Sample] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def steps_per_s(self) -> Spread:
        """Of all workers together."""
        return Spread.of([sample.steps_per_s for sample in self.samples])

    @property
    def other_cores(self) -> float:
        """Cores that something else kept busy meanwhile, in the median."""
        return Spread.of([sample.other_cores for sample in self.samples]).median

    @property
    def cpu_ms_per_step(self) -> Spread:
        """Summed over all processes."""
        return Spread.of([sample.cpu_ms_per_step for sample in self.samples])


class Results:
    """The cases of a run, found by what they are."""

    def __init__(self) -> None:
        self._cases: dict[tuple[Shape, str, int], Case] = {}

    def add(self, shape: Shape, row: str, result: dict[str, Any]) -> None:
        """Take the result of one turn."""
        for length, samples in result["samples"].items():
            key = (shape, row, int(length))
            case = self._cases.setdefault(key, Case(*key))
            case.samples += [Sample(**sample) for sample in samples]
            case.details = result["details"]

    def of_shape(self, shape: Shape) -> list[Case]:
        """The cases of one shape, in the order of the rows."""
        return sorted(
            (case for case in self._cases.values() if case.shape == shape),
            key=lambda case: (list(ROWS).index(case.row), case.steps_per_execution),
        )

    def ratio(self, case: Case, row: str) -> float | None:
        """The case's median steps/s over that of another row, all else equal."""
        other = self._cases.get((case.shape, row, case.steps_per_execution))
        return None if other is None else case.steps_per_s.median / other.steps_per_s.median

    @property
    def shapes(self) -> list[Shape]:
        """The shapes in the order in which they were measured."""
        return list(dict.fromkeys(case.shape for case in self._cases.values()))

    def report(self, settings: Throughput) -> Report:
        """Put the results into the form that all benchmarks share."""
        cases = [
            {
                "model": case.shape.model,
                "workers": case.shape.workers,
                "ps": case.shape.ps,
                "row": case.row,
                "steps_per_execution": case.steps_per_execution,
                "batch_size": settings.batch_size,
                "steps_per_s": case.steps_per_s.as_json(),
                "cpu_ms_per_step": case.cpu_ms_per_step.as_json(),
                "other_cores": round(case.other_cores, 2),
                "ratio_to_stock_fit": _rounded(self.ratio(case, BASELINE)),
                "ratio_to_single_fit": _rounded(self.ratio(case, "single_fit")),
                "samples": [asdict(sample) for sample in case.samples],
                "details": case.details,
            }
            for shape in self.shapes
            for case in self.of_shape(shape)
        ]
        lengths = {"repetitions": settings.repetitions, "epochs": settings.epochs}
        return Report("throughput", {**lengths, "epoch_s": settings.epoch_s}, cases, self.bars())

    @property
    def other_cores(self) -> float:
        """Cores that something else kept busy, in the worst case."""
        return max((case.other_cores for case in self._cases.values()), default=0.0)

    def bars(self) -> list[Bar]:
        """Compare tfps fit with TensorFlow's fit where there is an aim."""
        longest = max((key[2] for key in self._cases), default=0)
        bars = []
        for shape in SHAPES:
            if shape.aim is not None:
                ours = self._cases.get((shape, OURS, longest))
                value = None if ours is None else self.ratio(ours, BASELINE)
                name = f"{shape.title}, {longest} per execution: tfps fit over stock fit"
                bars.append(Bar(name, value, shape.aim))
        return bars


def run(settings: Throughput, *, progress: Callable[[str], None], log_dir: Path) -> Results:
    """Measure everything.

    Args:
        settings: what and how long.
        progress: is called with the name of each turn when it starts.
        log_dir: where the chiefs and the servers write what they have to say.

    Raises:
        ConfigError: a row needs tf_keras, which is not installed.
        TaskFailed: a chief process failed; the message has its last lines.
    """
    _check(settings)
    log_dir.mkdir(parents=True, exist_ok=True)
    results = Results()
    with tempfile.TemporaryDirectory(prefix="tfps-bench-") as folder:
        images_path = write_images(Path(folder))
        for number, shape in enumerate(settings.shapes):
            with LocalCluster(
                shape.workers, shape.ps, log_dir=log_dir / f"cluster-{number}"
            ) as cluster:
                for _ in range(settings.repetitions):
                    for row in settings.rows:
                        progress(f"{shape.title}: {TITLES[row]}")
                        order = _order(settings, shape, row, cluster, images_path)
                        results.add(shape, row, _turn(order, cluster, log_dir))
    return results


def _check(settings: Throughput) -> None:
    if set(settings.rows) & set(NEEDS_TF_KERAS) and importlib.util.find_spec("tf_keras") is None:
        raise ConfigError(
            "TensorFlow's own strategy trains only with tf_keras, which is not installed; "
            "install it: pip install 'tfps[bench]'",
            source="tfps bench throughput",
        )


def _order(
    settings: Throughput, shape: Shape, row: str, cluster: LocalCluster, images_path: Path
) -> Order:
    tasks = () if row == "single_fit" else tuple(cluster.spec.tasks("worker", "ps"))
    return Order(
        row=row,
        model=shape.model,
        steps_per_executions=settings.steps_per_executions,
        batch_size=settings.batch_size,
        epochs=settings.epochs,
        epoch_s=settings.epoch_s,
        images_path=str(images_path),
        processes=[cluster.pid(task_type, index) for task_type, index, _ in tasks],
    )


def _turn(order: Order, cluster: LocalCluster, log_dir: Path) -> dict[str, Any]:
    """Measure one row once, in a chief process of its own."""
    extra = {"TF_USE_LEGACY_KERAS": "1"} if order.row in NEEDS_TF_KERAS else {}
    environment = task_environment(cluster.spec, "chief", 0, extra=extra)
    if order.row == "single_fit":
        del environment["TF_CONFIG"]
    with tempfile.TemporaryDirectory(prefix="tfps-bench-") as folder:
        order_path, result_path = Path(folder) / "order.json", Path(folder) / "result.json"
        order_path.write_text(json.dumps(asdict(order)))
        chief = TaskProcess(
            name=f"chief for {order.row}",
            command=[
                sys.executable,
                "-P",
                "-m",
                "tfps.bench.chief",
                str(order_path),
                str(result_path),
            ],
            environment=environment,
            log_path=log_dir / f"{order.row}.log",
        )
        try:
            status = chief.wait(TURN_TIMEOUT_S)
        finally:
            chief.kill()
        if status != 0:
            raise TaskFailed(_failure(chief, status))
        result: dict[str, Any] = json.loads(result_path.read_text())
    return result


def _failure(chief: TaskProcess, status: int | None) -> str:
    end = (
        f"did not end within {TURN_TIMEOUT_S:.0f} s" if status is None else describe_status(status)
    )
    lines = [f"  | {line}" for line in chief.last_lines()] or ["  | (it wrote nothing)"]
    return "\n".join([f"{chief.name} {end}; its last lines:", *lines, f"Its log: {chief.log_path}"])


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 3)
