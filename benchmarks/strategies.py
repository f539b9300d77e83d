"""Ways to train one model on several tasks, each by the script that a user would write.

A turn runs a script of examples/strategies as its first lines say, and looks at it from outside:
memory, CPU and bytes are the system's counts of all processes of the script.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, product
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from benchmarks.benchmark import Benchmark, grouped
from benchmarks.picture import BLUE, GREY, draw_spread, name_bars, picture
from benchmarks.results import Case, Measure, Results, Spread
from benchmarks.script_run import CANNOT, script_run
from benchmarks.settings import choices
from benchmarks.slow_script import SlowScript
from benchmarks.strategy_rows import DENSE, LARGE, MIXED, ROWS, SHAPES, SLOW_WORKERS
from benchmarks.table import Columns, case_table, columns_of, middle, ratio_text
from benchmarks.turn import TURN_TIMEOUT_S, TaskNumbers, Turn

SCRIPT_TIMEOUT_S = TURN_TIMEOUT_S - 30  # ends before its turn, so that the reason can be reported
BATCH_SIZE = 64  # of the scripts
SLOW_EXAMPLES, ENDLESS = 60_000, 10_000  # of an epoch, and epochs, of steps that wait
TASK_MIB = 4096  # for the largest model per GiB
DRAWN = (DENSE, MIXED, f"slow_{max(SLOW_WORKERS)}")


@dataclass(frozen=True)
class Strategies(Benchmark):
    """Compare strategies: pace, accuracy, bytes, memory, faults, and lines that a script changes.

    One process, mirrored workers, TensorFlow's parameter servers, the modes of tfps, and models
    that lie on several tasks, each by its script of examples/strategies: 25 minutes on two cores.
    """

    name = "strategies"
    chooses = ("repetitions", "shapes", "rows")

    shapes: tuple[str, ...] = choices(SHAPES, "Only this model and cluster.", flag="--shape")
    rows: tuple[str, ...] = choices(ROWS, "Only this row.", flag="--row")
    examples: int = 10_000  # of an epoch
    epochs: int = 4  # the first one traces the model, and counts for the accuracy alone
    window_s: float = 5.0  # in which the pace of steps that wait is counted
    table_rows: int = 0  # of each table of the large model; 0: as many as the scripts have

    def quick(self) -> Strategies:
        small = replace(self, repetitions=1, examples=1280, epochs=2)
        return replace(small, window_s=1.0, table_rows=20_000)

    def plan(self, folder: Path) -> Iterator[Turn]:
        places = product(self.seeds, SHAPES.items(), ROWS.items())
        for seed, (shape_name, shape), (row_name, row) in places:
            is_chosen = shape_name in self.shapes and row_name in self.rows
            if is_chosen and row.counts(shape) and (shape.has_seeds or seed == self.seeds[0]):
                reason = row.why_not(shape)
                axes = {"shape": shape_name, "row": row_name}
                yield Turn(
                    title=f"{shape.title}: {row.title}, seed {seed}",
                    name=row_name,
                    case={**axes, "seed": seed},
                    axes=axes,
                    seed=seed,
                    known=None if reason is None else {CANNOT: reason},
                )

    def measure(self, tasks: TaskNumbers, *, shape: str, row: str, seed: int) -> Any:
        """Run the script; the result has what was seen of it, or why it ended without a report."""
        del tasks  # the script starts its own
        place, entry = SHAPES[shape], ROWS[row]
        sizes = {"examples": self.examples, "epochs": self.epochs}
        if shape == LARGE:
            sizes |= {"epochs": 2, "table-rows": self.table_rows}
        elif place.is_slow:  # it is ended
            sizes = {"examples": SLOW_EXAMPLES, "epochs": ENDLESS}
        with script_run(
            entry.command(place),
            title=entry.title,
            memory_kib=place.memory_kib,
            is_slow=place.is_slow,
            model=place.model,
            seed=seed,
            **sizes,
        ) as run:
            if not place.is_slow:
                return run.report(timeout_s=SCRIPT_TIMEOUT_S)
            return SlowScript(
                run=run,
                processes=1 if entry.steps_alone else place.workers,
                spare=entry.spare,
                window_s=self.window_s,
                has_faults=entry.has_faults and place.workers == max(SLOW_WORKERS),
            ).measure()

    def measures(self, results: Results) -> list[Measure]:
        """Return the measures of trainings to an accuracy."""
        return [
            Measure("examples_per_s", examples_per_s, "examples/s"),
            Measure("seconds_to_goal", goal_s),
            Measure("", goal_text, "s to\ngoal"),
            Measure("accuracy", accuracies),
            Measure("", accuracy_percent, "test\n%", middle),
            Measure("bytes_up", partial(bytes_of, way="bytes_up"), "KB\nup", kilobytes),
            Measure("bytes_down", partial(bytes_of, way="bytes_down"), "KB\ndown", kilobytes),
            Measure.from_results("largest_task_mib", "task\nMiB", middle),
            Measure.from_results("cpu_s", "CPU\ns", lambda found: f"{found.median:.0f}"),
            Measure.from_results("seconds"),
            Measure.from_results("all_tasks_mib"),
            Measure("tasks", lambda case: case.run["tasks"]),
        ]

    def slow_measures(self, results: Results) -> list[Measure]:
        """Return the measures of steps that wait; the table has the case with the most workers."""
        return [
            Measure("examples_per_s", examples_per_s),
            Measure("share_of_linear", partial(share_of, results), "of\nlinear", ratio_text),
            Measure("waiting_share", partial(waiting_share, results), "waits", ratio_text),
            Measure("", share_beside_slow, "slow\none", ratio_text),
            Measure("", after_kill_text, "kill:\nrests s"),
            Measure("", lambda case: case.run.get("back_s"), "back\nin s"),
        ]

    def compute_quantities(self, results: Results, case: Case) -> dict[str, Any]:
        shape, row = SHAPES[case["shape"]], ROWS[case["row"]]
        found: dict[str, Any] = {"model": shape.model, "workers": shape.workers, "ps": shape.ps}
        found |= {"lines_changed": row.lines_changed, "needs": row.needs}
        if case["shape"] == LARGE:
            found["largest_model_per_gib"] = largest_model_per_gib(results, case["row"])
        if why := reasons(case):
            return {**found, CANNOT: why}
        if not shape.is_slow:
            return found | super().compute_quantities(results, case)
        found |= {each.key: each.of(case) for each in self.slow_measures(results) if each.key}
        seen = ("steps_per_s", "beside_slow", "after_kill", "rest_s", "back_s")
        return found | {name: case.run[name] for name in seen if name in case.run}

    def tables(self, results: Results) -> list[Table]:
        columns = columns_of(self.measures(results))
        trained = [
            case_table(SHAPES[shape].title, titles_of(cases), cases, columns)
            for shape, cases in by_shape(results).items()
            if not SHAPES[shape].is_slow
        ]
        asks: Columns = {
            "lines": lambda row: str(ROWS[row].lines_changed),
            "of the cluster": lambda row: ROWS[row].needs,
            "GiB of tables\nper GiB of a task": partial(largest_model_per_gib, results),
        }
        rows = results.on("row")
        titles = [ROWS[row].title for row in rows]
        last = case_table("What it requires of its user", titles, rows, asks)
        return [*trained, *self._slow_tables(results), last]

    def _slow_tables(self, results: Results) -> list[Table]:
        found = {name: cases for name, cases in by_shape(results).items() if SHAPES[name].is_slow}
        if not found:
            return []

        def at(shape: str, cell: Callable[[Case], Any]) -> Callable[[str], Any]:
            return lambda row: (
                None if (case := find_measured(results, shape, row)) is None else cell(case)
            )

        paces = {f"{SHAPES[name].workers}": at(name, pace) for name in found}
        most = max(found, key=lambda name: SHAPES[name].workers)
        cells = columns_of(self.slow_measures(results))
        columns = paces | {heading: at(most, cell) for heading, cell in cells.items()}
        rows = [row for row in ROWS if any(find_measured(results, name, row) for name in found)]
        title = "Steps that wait 50 ms: examples/s by workers"
        return [case_table(title, [ROWS[row].title for row in rows], rows, columns)]

    def explanation(self, results: Results) -> str:
        return (
            "Medians (minimum-maximum) over the seeds. Examples/s without the epoch that traces "
            "the model; seconds of training to the goal, with it. KB of an example that workers "
            "send (up) and receive. MiB: the most that a task had at once, with the libraries. CPU "
            "of all processes from start to end. Lines: changed in the script for one process. "
            "Waits: the share of a step that is more than one process takes. Slow one: the share "
            "of the pace kept while one worker is five times as slow. All processes share this "
            "machine, and talk TCP. Kill: seconds in which no worker trains, and until the worker "
            "is back."
        )

    def verdicts(self, results: Results) -> Sequence[Text]:
        shapes = defaultdict(list)
        for case in results.cases:
            for reason in reasons(case):
                shapes[ROWS[case["row"]].title, reason].append(SHAPES[case["shape"]].title)
        return [
            Text(f"{row} cannot run: {reason} ({'; '.join(titles)})", style="yellow")
            for (row, reason), titles in shapes.items()
        ]

    def draw(self, results: Results, path: Path) -> None:
        """Draw examples/s beside the accuracy, and beside what a slow worker leaves of them."""
        shapes = {name: cases for name, cases in by_shape(results).items() if name in DRAWN}
        shapes = shapes or dict([*by_shape(results).items()][:1])
        heights = [0.9 + 0.32 * len(cases) for cases in shapes.values()]
        grid = {"gridspec_kw": {"height_ratios": heights, "width_ratios": (1.6, 1)}}
        with picture(path, len(shapes), 2, size=(9, sum(heights)), **grid) as (_, axes):
            for (rates, others), (shape, cases) in zip(axes, shapes.items(), strict=True):
                is_slow, names = SHAPES[shape].is_slow, titles_of(cases)
                for y, case in enumerate(cases):
                    colour = (BLUE if "tfps" in names[y] else GREY)[1]
                    bar: dict[str, Any] = {"colour": colour, "height": 0.6, "text": "{:,.0f}"}
                    draw_spread(rates, y, examples_per_s(case), **bar)
                    share = share_beside_slow(case)
                    kept = None if share is None else Spread.from_samples([100 * share])
                    if (found := kept if is_slow else accuracy_percent(case)) is not None:
                        draw_spread(others, y, found, colour=colour, text=" {:.1f}")
                title = SHAPES[shape].title
                name_bars(rates, names, margin=0.2, title=title, label="examples/s")
                label = "% of them kept beside a slow worker" if is_slow else "test accuracy, %"
                name_bars(others, names, margin=0.2, is_from_zero=is_slow, label=label)
                others.set_yticks([])


def reasons(case: Case) -> list[str]:
    """Return the reasons why a case cannot run; empty if it can."""
    return sorted({run[CANNOT] for run in case.runs.values() if CANNOT in run})


def by_shape(results: Results) -> dict[str, list[Case]]:
    """Return the cases that were measured, by model and cluster."""
    measured = [case for case in results.cases if not reasons(case)]
    return grouped(measured, lambda case: case["shape"])


def titles_of(cases: Sequence[Case]) -> list[str]:
    """Return the titles of the cases' rows."""
    return [ROWS[case["row"]].title for case in cases]


def find_measured(results: Results, shape: str, row: str) -> Case | None:
    """Return the case of a shape and a row if it was measured."""
    case = results.find(shape, row)
    return None if case is None or reasons(case) else case


def examples_per_s(case: Case) -> Spread:
    """Return the rate after the epoch that traces the model; of steps that wait, in the window."""
    if SHAPES[case["shape"]].is_slow:
        return Spread.from_samples(BATCH_SIZE * run["steps_per_s"] for run in case.runs.values())
    return Spread.from_samples(
        run["examples"] / seconds for run in case.runs.values() for seconds in run["epochs_s"][1:]
    )


def pace(case: Case) -> float:
    """Return the median examples per second."""
    return examples_per_s(case).median


def accuracies(case: Case) -> dict[int, list[float]]:
    """Return the test accuracy after each epoch, by seed; empty for a model without test data."""
    return case.by_seed(lambda run: [round(each, 4) for each in run["accuracies"]])


def accuracy_percent(case: Case) -> Spread | None:
    """Return the test accuracy after the last epoch, in percent."""
    found = [100 * run["accuracies"][-1] for run in case.runs.values() if run.get("accuracies")]
    return Spread.from_samples(found) if found else None


def seconds_to_goal(run: Any, goal: float | None) -> float | None:
    """Return the seconds of training until an epoch reaches an accuracy, or None."""
    if goal is None:
        return None
    trained = zip(accumulate(run["epochs_s"]), run["accuracies"], strict=True)
    return next((round(seconds, 2) for seconds, accuracy in trained if accuracy >= goal), None)


def goal_s(case: Case) -> dict[int, float | None]:
    """Return the seconds to the shape's accuracy, by seed."""
    goal = SHAPES[case["shape"]].goal
    return case.by_seed(lambda run: seconds_to_goal(run, goal))


def goal_text(case: Case) -> str | float | None:
    """Return the median seconds to the goal, or how many seeds reached it."""
    times_s = goal_s(case).values()
    reached = [seconds for seconds in times_s if seconds is not None]
    if SHAPES[case["shape"]].goal is None or len(reached) == len(times_s):
        return Spread.from_samples(reached).median if reached else None
    return f"{len(reached)} of {len(times_s)}"


def bytes_of(case: Case, way: str) -> float | None:
    """Return the median of an example's bytes; None where they are not counted."""
    found = [run[way] for run in case.runs.values() if run.get(way) is not None]
    return Spread.from_samples(found).median if found else None


def kilobytes(count: float | None) -> float | None:
    """Convert bytes to kilobytes (10^3)."""
    return None if count is None else count / 1e3


def share_of(results: Results, case: Case, row: str | None = None) -> float | None:
    """Divide the pace by the number of workers and one worker's pace in `row` (None: its own)."""
    one = find_measured(results, "slow_1", row or case["row"])
    return None if one is None else pace(case) / (SHAPES[case["shape"]].workers * pace(one))


def waiting_share(results: Results, case: Case) -> float | None:
    """Return the share of a worker's step that is more than a step of one process."""
    share = share_of(results, case, "one_process")
    return None if share is None else 1 - share


def share_beside_slow(case: Case) -> float | None:
    """Return the share of the pace that is left while one worker is five times as slow."""
    run = case.run
    return run["beside_slow"] / run["steps_per_s"] if run.get("beside_slow") else None


def after_kill_text(case: Case) -> str | float | None:
    """Return how long training rested after a worker was killed, or how it ended."""
    is_going_on = case.run.get("after_kill") == "goes on"
    found: str | float | None = case.run.get("rest_s" if is_going_on else "after_kill")
    return found


def largest_model_per_gib(results: Results, row: str) -> float | None:
    """GiB of tables for each GiB that a task has on the large shape, computed.

    The fullest task holds its share of the tables beside what it had with small ones, which was
    measured. Slots of an optimizer are not in it.
    """
    small = find_measured(results, MIXED, row)
    if small is None:
        return None
    free = 1 - small.spread("largest_task_mib").median / TASK_MIB
    return round(free / ROWS[row].share(SHAPES[LARGE]), 2)
