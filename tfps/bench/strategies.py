"""Ways to train one model on several tasks, each by the script that a user would write.

A turn runs a script of examples/strategies as its first lines say, and looks at it from outside:
all train the same examples in batches of one size with one optimizer, from weights of the same
seed, and are tested without a strategy. Rows take turns; a repetition is a seed for all of them.
Memory, CPU and bytes are the system's counts of all processes of the script.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from tfps.bench.picture import BLUE, GREY, draw_spread, name_bars, picture
from tfps.bench.results import Case, Results, Spread
from tfps.bench.runner import TURN_TIMEOUT_S, Bench, Benchmark, TaskNumbers
from tfps.bench.script_run import CANNOT, script_run
from tfps.bench.settings import option
from tfps.bench.slow_script import SlowScript
from tfps.bench.strategy_rows import ROWS
from tfps.bench.strategy_shapes import DENSE, LARGE, MIXED, SHAPES, SLOW_WORKERS
from tfps.bench.table import Columns, case_table, ratio_text

SCRIPT_TIMEOUT_S = TURN_TIMEOUT_S - 30  # ends before its turn, so that the reason can be reported
BATCH_SIZE = 64  # of the scripts
SLOW_EXAMPLES, ENDLESS = 60_000, 10_000  # of an epoch, and epochs, of scripts that are ended
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

    shapes: tuple[str, ...] = option(
        tuple(SHAPES),
        click.Choice(list(SHAPES)),
        "Only this model and cluster.",
        flag="--shape",
        default_text="",
    )
    rows: tuple[str, ...] = option(
        tuple(ROWS), click.Choice(list(ROWS)), "Only this row.", flag="--row", default_text=""
    )
    examples: int = 10_000  # of an epoch
    epochs: int = 4  # the first one traces the model, and counts for the accuracy alone
    window_s: float = 5.0  # in which the pace of steps that wait is counted
    table_rows: int = 0  # of each table of the large model; 0: as many as the scripts have

    def quick(self) -> Strategies:
        return replace(
            self, repetitions=1, examples=1280, epochs=2, window_s=1.0, table_rows=20_000
        )

    @property
    def places(self) -> list[dict[str, Any]]:
        """What is measured, or cannot be: rows in their order on every shape, by seeds."""
        return [
            {"shape": name, "row": row, "seed": seed}
            for seed in self.seeds
            for name, shape in SHAPES.items()
            if name in self.shapes and (shape.has_seeds or seed == self.seeds[0])
            for row in ROWS
            if row in self.rows and ROWS[row].counts(shape)
        ]

    @property
    def turns(self) -> int:
        return sum(_why_not(place) is None for place in self.places)

    def run(self, bench: Bench) -> None:
        for place in self.places:
            reason = _why_not(place)
            if reason is None:
                title = ROWS[place["row"]].title
                bench.progress(f"{SHAPES[place['shape']].title}: {title}, seed {place['seed']}")
                answer = bench.turn(None, name=place["row"], case=place)
            else:
                answer = {CANNOT: reason}
            bench.results.add(answer, **place)

    def measure(self, tasks: TaskNumbers, *, shape: str, row: str, seed: int) -> Any:
        """Run the script; the answer has what was seen of it, or why it ended without a report."""
        del tasks  # the script starts its own
        place, entry = SHAPES[shape], ROWS[row]
        options: dict[str, Any] = {"model": place.model, "seed": seed}
        if shape == LARGE:
            options |= {"epochs": 2, "examples": self.examples, "table-rows": self.table_rows}
        elif not place.is_slow:
            options |= {"epochs": self.epochs, "examples": self.examples}
        start = partial(
            script_run, entry.command(place), title=entry.title, memory_kib=place.memory_kib
        )
        if not place.is_slow:
            with start(**options) as run:
                return run.report(timeout_s=SCRIPT_TIMEOUT_S)
        # Tasks of a script that is killed may note one more step while the folder goes.
        folder = tempfile.TemporaryDirectory(prefix="tfps-bench-steps-", ignore_cleanup_errors=True)
        with folder as steps_folder:
            options |= {"epochs": ENDLESS, "examples": SLOW_EXAMPLES, "steps-folder": steps_folder}
            with start(**options) as run:
                return SlowScript(
                    run=run,
                    steps_folder=Path(steps_folder),
                    processes=1 if entry.steps_alone else place.workers,
                    spare=entry.spare,
                    window_s=self.window_s,
                    has_faults=entry.has_faults and place.workers == max(SLOW_WORKERS),
                ).answer()

    def quantities(self, results: Results, case: Case) -> dict[str, Any]:
        shape, row = SHAPES[case["shape"]], ROWS[case["row"]]
        found: dict[str, Any] = {"model": shape.model, "workers": shape.workers, "ps": shape.ps}
        found |= {"lines_changed": row.lines_changed, "needs": row.needs}
        if case["shape"] == LARGE:
            found["largest_model_per_gib"] = largest_model_per_gib(results, case["row"])
        if reasons := {run[CANNOT] for run in case.runs.values() if CANNOT in run}:
            return {**found, CANNOT: sorted(reasons)}
        if shape.is_slow:
            seen = ("steps_per_s", "beside_slow", "after_kill", "rest_s", "back_s")
            return {
                **found,
                "examples_per_s": examples_per_s(case),
                "share_of_linear": share_of_linear(results, case),
                "waiting_share": waiting_share(results, case),
                **{name: case.run[name] for name in seen if name in case.run},
            }
        names = ("seconds", "largest_task_mib", "all_tasks_mib", "cpu_s")
        return {
            **found,
            "examples_per_s": examples_per_s(case),
            "accuracy": case.by_seed(lambda run: [round(each, 4) for each in run["accuracies"]]),
            "seconds_to_goal": case.by_seed(lambda run: seconds_to_goal(run, shape.goal)),
            **{name: case.spread(name) for name in names},
            "tasks": case.run["tasks"],
            **{name: bytes_of(case, name) for name in ("bytes_up", "bytes_down")},
        }

    def tables(self, results: Results) -> list[Table]:
        columns: Columns = {
            "examples/s": examples_per_s,
            "s to\ngoal": goal_text,
            "test\n%": lambda case: None if not (found := accuracy_percent(case)) else found.median,
            "KB\nup": lambda case: kilobytes(case, "bytes_up"),
            "KB\ndown": lambda case: kilobytes(case, "bytes_down"),
            "task\nMiB": lambda case: case.spread("largest_task_mib").median,
            "CPU\ns": lambda case: f"{case.spread('cpu_s').median:.0f}",
        }
        trained = [
            case_table(SHAPES[shape].title, [ROWS[c["row"]].title for c in cases], cases, columns)
            for shape, cases in by_shape(results).items()
            if not SHAPES[shape].is_slow
        ]
        asks: Columns = {
            "lines": lambda row: str(ROWS[row].lines_changed),
            "of the cluster": lambda row: ROWS[row].needs,
            "GiB of tables\nper GiB of a task": lambda row: largest_model_per_gib(results, row),
        }
        rows = [row for row in ROWS if results.of(row=row)]
        titles = [ROWS[row].title for row in rows]
        return [
            *trained,
            *self._slow_tables(results),
            case_table("What it asks of who uses it", titles, rows, asks),
        ]

    def _slow_tables(self, results: Results) -> list[Table]:
        counts = [n for n in SLOW_WORKERS if by_shape(results).get(f"slow_{n}")]
        if not counts:
            return []
        rows = [row for row in ROWS if any(_ran(results, f"slow_{n}", row) for n in counts)]

        def at(workers: int, quantity: Any) -> Any:
            def cell(row: str) -> Any:
                case = _ran(results, f"slow_{workers}", row)
                return None if case is None else quantity(case)

            return cell

        most = max(counts)
        columns: Columns = {
            **{f"{n}": at(n, lambda case: examples_per_s(case).median) for n in counts},
            "of\nlinear": at(most, lambda case: ratio_text(share_of_linear(results, case))),
            "waits": at(most, lambda case: ratio_text(waiting_share(results, case))),
            "slow\none": at(most, lambda case: ratio_text(share_beside_slow(case))),
            "kill:\nrests s": at(most, after_kill_text),
            "back\nin s": at(most, lambda case: case.run.get("back_s")),
        }
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
            "machine, and talk TCP. Kill: seconds in which nobody trains, and until the worker is "
            "back."
        )

    def verdicts(self, results: Results) -> Sequence[Text]:
        reasons: dict[tuple[str, str], list[str]] = {}
        for case in results.cases:
            for reason in {run[CANNOT] for run in case.runs.values() if CANNOT in run}:
                title = SHAPES[case["shape"]].title
                reasons.setdefault((ROWS[case["row"]].title, reason), []).append(title)
        return [
            Text(f"{row} cannot run: {reason} ({'; '.join(shapes)})", style="yellow")
            for (row, reason), shapes in reasons.items()
        ]

    def draw(self, results: Results, path: Path) -> None:
        """Draw examples/s beside the accuracy, and beside what a slow worker leaves of them."""
        shapes = {name: cases for name, cases in by_shape(results).items() if name in DRAWN}
        shapes = shapes or dict([*by_shape(results).items()][:1])
        heights = [0.9 + 0.32 * len(cases) for cases in shapes.values()]
        grid = {"gridspec_kw": {"height_ratios": heights, "width_ratios": (1.6, 1)}}
        with picture(path, len(shapes), 2, size=(9, sum(heights)), **grid) as (_, axes):
            for (rates, others), (shape, cases) in zip(axes, shapes.items(), strict=True):
                is_slow = SHAPES[shape].is_slow
                names = [ROWS[case["row"]].title for case in cases]
                for y, case in enumerate(cases):
                    colour = (BLUE if "tfps" in names[y] else GREY)[1]
                    bar: dict[str, Any] = {"colour": colour, "height": 0.6, "text": "{:,.0f}"}
                    draw_spread(rates, y, examples_per_s(case), **bar)
                    share = share_beside_slow(case)
                    kept = None if share is None else Spread.of([100 * share])
                    dot: dict[str, Any] = {"colour": colour, "text": " {:.1f}"}
                    if (found := kept if is_slow else accuracy_percent(case)) is not None:
                        draw_spread(others, y, found, **dot)
                title = SHAPES[shape].title
                name_bars(rates, names, margin=0.2, title=title, label="examples/s")
                label = "% of them kept beside a slow worker" if is_slow else "test accuracy, %"
                name_bars(others, names, margin=0.2, is_from_zero=is_slow, label=label)
                others.set_yticks([])


def _why_not(place: dict[str, Any]) -> str | None:
    return ROWS[place["row"]].why_not(SHAPES[place["shape"]])


def by_shape(results: Results) -> dict[str, list[Case]]:
    """The cases that were measured, by model and cluster."""
    shapes: dict[str, list[Case]] = {}
    for case in results.cases:
        if not any(CANNOT in run for run in case.runs.values()):
            shapes.setdefault(case["shape"], []).append(case)
    return shapes


def _ran(results: Results, shape: str, row: str) -> Case | None:
    return next((c for c in by_shape(results).get(shape, ()) if c["row"] == row), None)


def examples_per_s(case: Case) -> Spread:
    """Of every epoch behind the one that traces the model; of steps that wait, in the window."""
    if SHAPES[case["shape"]].is_slow:
        return Spread.of(BATCH_SIZE * run["steps_per_s"] for run in case.runs.values())
    return Spread.of(
        run["examples"] / seconds for run in case.runs.values() for seconds in run["epochs_s"][1:]
    )


def accuracy_percent(case: Case) -> Spread | None:
    """Of the test examples, after the last epoch; None of a model that nobody can test."""
    found = [100 * run["accuracies"][-1] for run in case.runs.values() if run.get("accuracies")]
    return Spread.of(found) if found else None


def seconds_to_goal(run: Any, goal: float | None) -> float | None:
    """Seconds of training to the end of the first epoch that reaches an accuracy; None: none."""
    if goal is None:
        return None
    trained = zip(accumulate(run["epochs_s"]), run["accuracies"], strict=True)
    return next((round(seconds, 2) for seconds, accuracy in trained if accuracy >= goal), None)


def goal_text(case: Case) -> str | float | None:
    """The median of those seconds; how many seeds reached it, where one did not."""
    goal = SHAPES[case["shape"]].goal
    times_s = [seconds_to_goal(run, goal) for run in case.runs.values()]
    reached = [seconds for seconds in times_s if seconds is not None]
    if goal is None or len(reached) == len(times_s):
        return Spread.of(reached).median if reached else None
    return f"{len(reached)} of {len(times_s)}"


def bytes_of(case: Case, way: str) -> float | None:
    """The median of an example's bytes; None where nobody counts them."""
    found = [run[way] for run in case.runs.values() if run.get(way) is not None]
    return Spread.of(found).median if found else None


def kilobytes(case: Case, way: str) -> float | None:
    """The same in thousands."""
    found = bytes_of(case, way)
    return None if found is None else found / 1e3


def share_of_linear(results: Results, case: Case) -> float | None:
    """The pace over so many times that of one worker of the same strategy."""
    workers, one = SHAPES[case["shape"]].workers, _ran(results, "slow_1", case["row"])
    if one is None:
        return None
    return examples_per_s(case).median / (workers * examples_per_s(one).median)


def waiting_share(results: Results, case: Case) -> float | None:
    """The share of a worker's step that is more than a step of one process."""
    workers, one = SHAPES[case["shape"]].workers, _ran(results, "slow_1", "one_process")
    if one is None:
        return None
    return 1 - examples_per_s(case).median / (workers * examples_per_s(one).median)


def share_beside_slow(case: Case) -> float | None:
    """Of the pace, kept while one worker is five times as slow."""
    run = case.run
    return run["beside_slow"] / run["steps_per_s"] if run.get("beside_slow") else None


def after_kill_text(case: Case) -> str | float | None:
    """How long nobody trained when a worker was killed, or what else became of training."""
    is_going_on = case.run.get("after_kill") == "goes on"
    found: str | float | None = case.run.get("rest_s" if is_going_on else "after_kill")
    return found


def largest_model_per_gib(results: Results, row: str) -> float | None:
    """GiB of tables for each GiB that a task has on the large shape, computed.

    The fullest task holds its share of the tables beside what it had with small ones, which was
    measured. Slots of an optimizer are not in it.
    """
    small = _ran(results, MIXED, row)
    if small is None:
        return None
    free = 1 - small.spread("largest_task_mib").median / TASK_MIB
    return round(free / ROWS[row].share.of(SHAPES[LARGE]), 2)
