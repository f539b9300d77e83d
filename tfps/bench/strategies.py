"""Ways to train one model on several tasks, each by the script that a user would write.

A turn runs a script of examples/strategies as its first lines say, and takes the numbers that it
reports: all train the same examples in batches of one size with one optimizer, from weights of the
same seed, and are tested without a strategy. Rows take turns; a repetition is a seed for all of
them. Memory and CPU are looked at from outside, for all processes of the script.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from tfps.bench.picture import BLUE, GREY, draw_spread, name_bars, picture
from tfps.bench.process_tree import ProcessTree
from tfps.bench.results import Case, Results, Spread
from tfps.bench.runner import TURN_TIMEOUT_S, Bench, Benchmark, TaskNumbers
from tfps.bench.settings import option
from tfps.bench.strategy_rows import MODELS, ROWS
from tfps.bench.table import Columns, case_table
from tfps.launch.environment import common_environment
from tfps.launch.process import start_program

SCRIPT_TIMEOUT_S = TURN_TIMEOUT_S - 30  # ends before its turn, so that the reason can be reported
CANNOT = "cannot"


@dataclass(frozen=True)
class Strategies(Benchmark):
    """Compare strategies: speed, accuracy, memory, and the lines that a script changes.

    One process, mirrored workers, TensorFlow's parameter servers, the modes of tfps, and models
    that lie on several tasks, each by its script of examples/strategies: 40 minutes on two cores.
    """

    name = "strategies"

    models: tuple[str, ...] = option(
        tuple(MODELS),
        click.Choice(list(MODELS)),
        "Only this model.",
        flag="--model",
        default_text="",
    )
    workers: tuple[int, ...] = option((1, 2, 4), click.IntRange(min=1), "Only so many workers.")
    rows: tuple[str, ...] = option(
        tuple(ROWS), click.Choice(list(ROWS)), "Only this row.", flag="--row", default_text=""
    )
    examples: int = 10_000  # of an epoch
    epochs: int = 4  # the first one traces the model, and counts for the accuracy alone

    def quick(self) -> Strategies:
        return replace(self, repetitions=1, workers=(2,), examples=1280, epochs=2)

    @property
    def places(self) -> list[dict[str, Any]]:
        """What is measured, or cannot be: rows in their order on every model and cluster."""
        return [
            {"model": model, "workers": workers, "row": row}
            for model in MODELS
            if model in self.models
            for workers in self.workers
            for row in ROWS
            if row in self.rows and self._counts(row, workers)
        ]

    def _counts(self, row: str, workers: int) -> bool:
        """Whether a row is measured on so many workers; one process is, beside the fewest."""
        return ROWS[row].only_workers is None or workers == min(self.workers)

    @property
    def turns(self) -> int:
        return self.repetitions * sum(_why_not(**place) is None for place in self.places)

    def run(self, bench: Bench) -> None:
        for seed in self.seeds:
            for place in self.places:
                reason = _why_not(**place)
                if reason is None:
                    bench.progress(f"{_title(**place)}, seed {seed}")
                    case = {**place, "seed": seed}
                    answer = bench.turn(None, name=place["row"], case=case)
                else:
                    answer = {CANNOT: reason}
                bench.results.add(answer, seed=seed, **place)

    def measure(self, tasks: TaskNumbers, *, model: str, workers: int, row: str, seed: int) -> Any:
        """Run the script; the answer has what it reports, or why it ended without a report."""
        del tasks  # the script starts its own
        with tempfile.TemporaryDirectory(prefix="tfps-bench-") as folder:
            report, log = Path(folder) / "report.json", Path(folder) / "log"
            values = {"model": model, "epochs": self.epochs, "examples": self.examples}
            values |= {"seed": seed, "report-file": report}
            arguments = [text for name, value in values.items() for text in (f"--{name}", value)]
            begin_s = time.perf_counter()
            process = start_program(
                name=ROWS[row].title,
                command=[*ROWS[row].command(workers), *map(str, arguments)],
                environment=common_environment(),
                log_path=log,
            )
            try:
                with ProcessTree(process.pid) as tree:
                    status = process.wait(SCRIPT_TIMEOUT_S)
            finally:
                process.kill()
            if status != 0:
                how = "did not end in time" if status is None else f"status {status}"
                words = process.last_lines(1) or ["it printed nothing"]
                return {CANNOT: f"{how}: {words[-1]}"}
            return {
                **json.loads(report.read_text()),
                "seconds": time.perf_counter() - begin_s,
                "largest_task_mib": max(tree.peaks_mib.values()),
                "all_tasks_mib": sum(tree.peaks_mib.values()),
                "cpu_s": sum(tree.cpu_s.values()),
            }

    def quantities(self, results: Results, case: Case) -> dict[str, Any]:
        row = ROWS[case["row"]]
        described = {"lines_changed": row.lines_changed, "needs": row.needs}
        reasons = {run[CANNOT] for run in case.runs.values() if CANNOT in run}
        if reasons:
            return {**described, CANNOT: sorted(reasons)}
        names = ("seconds", "largest_task_mib", "all_tasks_mib", "cpu_s")
        return {
            "examples_per_s": examples_per_s(case),
            "accuracy": case.by_seed(lambda run: round(run["accuracy"], 4)),
            **{name: case.spread(name) for name in names},
            **described,
        }

    def tables(self, results: Results) -> list[Table]:
        columns: Columns = {
            "examples/s": examples_per_s,
            "accuracy\n%": lambda case: accuracy_percent(case).median,
            "largest\ntask MiB": lambda case: case.spread("largest_task_mib").median,
            "CPU s": lambda case: case.spread("cpu_s").median,
            "lines": lambda case: str(ROWS[case["row"]].lines_changed),
        }
        return [
            case_table(shape_title(*shape), [ROWS[c["row"]].title for c in cases], cases, columns)
            for shape, cases in by_shape(results).items()
        ]

    def explanation(self, results: Results) -> str:
        return (
            "Medians (minimum-maximum) over the seeds. Examples/s without the epoch that traces "
            "the model; accuracy after equal examples. MiB: the most that a task had at once, with "
            "the libraries. CPU of all processes from start to end. Lines changed in the script "
            "for one process. All processes share this machine."
        )

    def verdicts(self, results: Results) -> Sequence[Text]:
        return [
            Text(f"{_title(**case.axes)} cannot run: {run[CANNOT]}", style="yellow")
            for case in results.cases
            for run in case.runs.values()
            if CANNOT in run
        ]

    def draw(self, results: Results, path: Path) -> None:
        """Draw for each model and cluster examples/s beside the accuracy."""
        shapes = by_shape(results)
        heights = [0.9 + 0.32 * len(cases) for cases in shapes.values()]
        grid = {"gridspec_kw": {"height_ratios": heights, "width_ratios": (1.6, 1)}}
        with picture(path, len(shapes), 2, size=(9, sum(heights)), **grid) as (_, axes):
            for (rates, accuracies), (shape, cases) in zip(axes, shapes.items(), strict=True):
                for y, case in enumerate(cases):
                    colour = (BLUE if "tfps" in ROWS[case["row"]].title else GREY)[1]
                    bar: dict[str, Any] = {"colour": colour, "height": 0.6, "text": "{:,.0f}"}
                    draw_spread(rates, y, examples_per_s(case), **bar)
                    dot: dict[str, Any] = {"colour": colour, "text": " {:.1f}"}
                    draw_spread(accuracies, y, accuracy_percent(case), **dot)
                names = [ROWS[case["row"]].title for case in cases]
                title = shape_title(*shape)
                name_bars(rates, names, margin=0.2, title=title, label="examples/s")
                label = "test accuracy, %"
                name_bars(accuracies, names, margin=0.2, is_from_zero=False, label=label)
                accuracies.set_yticks([])


def shape_title(model: str, workers: int) -> str:
    """What tables and plots call a model on a cluster."""
    return f"{MODELS[model]}, {workers} worker" + ("s" if workers > 1 else "")


def _why_not(*, model: str, workers: int, row: str) -> str | None:
    return ROWS[row].why_not(model, workers)


def _title(*, model: str, workers: int, row: str) -> str:
    return f"{shape_title(model, workers)}: {ROWS[row].title}"


def by_shape(results: Results) -> dict[tuple[str, int], list[Case]]:
    """The cases that were measured, by model and number of workers."""
    shapes: dict[tuple[str, int], list[Case]] = {}
    for case in results.cases:
        if not any(CANNOT in run for run in case.runs.values()):
            shapes.setdefault((case["model"], case["workers"]), []).append(case)
    return shapes


def examples_per_s(case: Case) -> Spread:
    """Of every epoch behind the one that traces the model."""
    return Spread.of(
        run["examples"] / seconds for run in case.runs.values() for seconds in run["epochs_s"][1:]
    )


def accuracy_percent(case: Case) -> Spread:
    """Of the test examples, after the last epoch."""
    return Spread.of(100 * run["accuracy"] for run in case.runs.values())
