"""The consistency modes with a worker that is slow all the time, or workers slow at times.

A turn is a fresh chief process that trains under each kind of delay, and looks at its test accuracy
without stopping the workers. All modes use Adam with one learning rate; a synchronous update has
the batches of two or three workers in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.table import Table

import tfps
from benchmarks import modes
from benchmarks.accuracy import GOAL, curves_json, final_accuracy, goal_json, goal_text
from benchmarks.benchmark import Benchmark, Order, grouped
from benchmarks.example_bytes import bytes_per_example, traffic_between
from benchmarks.images import LabelledImages, image_paths
from benchmarks.interval import Interval
from benchmarks.mode_comparison import applied_rates, comparisons, gain, largest_gap_steps, rate
from benchmarks.modes import ALL_MODES, SCENARIOS
from benchmarks.picture import GREY, INK, draw_spread, name_axis, name_bars, picture
from benchmarks.results import Bar, Case, Measure, Results, Spread, cpu_ms
from benchmarks.settings import IMAGES, REPETITIONS
from benchmarks.slow_input import Delay, SlowInput
from benchmarks.staleness_counts import (
    draw_staleness,
    mean_staleness,
    shares,
    staleness_between,
    staleness_of,
)
from benchmarks.table import Columns, case_table, middle
from benchmarks.turn import TaskNumbers, Tasks, Turn
from benchmarks.usage import steps_way

EVEN_SHARE = 0.4  # of the time of a training with stragglers, for one without
STALENESS_SHOWN = 16  # what lies above is added to the last bar


@dataclass(frozen=True)
class Consistency(Benchmark):
    """The consistency modes with a worker that is slow, and with workers slow at times.

    Steps wait 50 ms, so workers of one machine do not fight for its cores. Updates per second,
    staleness, and the time to a test accuracy of 0.85; what local steps save in bytes and cost in
    accuracy: half an hour on two cores.
    """

    name = "consistency"
    order: ClassVar[Order] = {"scenario": SCENARIOS, "mode": ALL_MODES}

    workers: int = 3  # with delays; one of them is slow
    repetitions: int = field(default=5, metadata=REPETITIONS)
    train_s: float = 24.0  # a training with stragglers
    free_s: float = 6.0  # a training without any wait
    examples: int = 64_000  # of a training that is compared with local steps
    local_repetitions: int = 3  # of each number of local steps, with the first of the seeds
    look_every_s: float = 0.5  # between two looks at the test accuracy
    batch_size: int = 64
    learning_rate: float = 1e-3  # of Adam
    images: Path | None = field(default=None, metadata=IMAGES)

    def quick(self) -> Consistency:
        return replace(self, repetitions=1, train_s=3.0, free_s=1.0, examples=12_800)

    def as_json(self) -> dict[str, Any]:
        delays = {name: asdict(SCENARIOS[name].delay) for name in modes.DELAYED}
        return super().as_json() | {"delays": delays, "seeds": self.seeds}

    @property
    def lengths_s(self) -> dict[str, float]:
        """Return the seconds of a training by scenario; examples end `COUNTED`, not seconds."""
        return {
            modes.TRANSIENT: self.train_s,
            modes.CONSTANT: self.train_s,
            modes.EVEN: EVEN_SHARE * self.train_s,
            modes.FREE: self.free_s,
            modes.COUNTED: math.inf,
        }

    def plan(self, folder: Path) -> Iterator[Turn]:
        paths = image_paths(self.images, folder)
        orders = [(seed, mode, modes.DELAYED) for seed in self.seeds for mode in modes.MODES]
        for seed in self.seeds:
            orders += [(seed, mode, (modes.FREE, modes.COUNTED)) for mode in modes.FREE_MODES]
            if seed <= self.local_repetitions:
                orders += [(seed, mode, (modes.COUNTED,)) for mode in modes.LOCAL_MODES]
        for seed, mode, scenarios in orders:
            workers, delays = self.workers, "with"
            if scenarios != modes.DELAYED:
                workers, delays = modes.FREE_WORKERS, "without"
            yield Turn(
                title=f"{workers} workers {delays} delays, seed {seed}: {ALL_MODES[mode].title}",
                name=mode,
                case={"mode": mode, "seed": seed, "scenarios": scenarios, **paths},
                seed=seed,
                tasks=Tasks(workers=workers, ps=1, name=f"cluster-{workers}"),
            )

    def measure(
        self,
        tasks: TaskNumbers,
        *,
        mode: str,
        seed: int,
        scenarios: Sequence[str],
        images_path: str,
        pixels_path: str,
    ) -> Any:
        """Train in one scenario after the other; the result has what happened in each.

        The seed is that of the initial weights, the order of the images and the delays.
        """
        import keras

        from benchmarks.classifier import NO_END_STEPS, Classifier
        from benchmarks.watch import Watch

        data = LabelledImages.load(images_path)
        keras.utils.set_random_seed(seed)
        consistency = ALL_MODES[mode].make()
        strategy = tfps.ParameterServerStrategy(consistency=consistency, batch_callbacks="sampled")
        classifier = Classifier(strategy, lambda: keras.optimizers.Adam(self.learning_rate))

        def slow(delay: Delay) -> Any:
            return SlowInput(pixels_path, data.labels, self.batch_size, delay, seed).function()

        classifier.warm_up(slow(modes.FREE_DELAY))
        accuracy = classifier.accuracy_now(data)
        measured = {}
        for scenario in scenarios:
            is_delayed, is_counted = scenario in modes.DELAYED, scenario == modes.COUNTED
            watch = Watch(
                strategy=strategy,
                clock=tasks.clock(),
                accuracy=accuracy,
                train_s=self.lengths_s[scenario],
                # A look takes time of the cores that steps without waits are short of.
                look_every_s=self.look_every_s if is_delayed else math.inf,
            )
            drained = strategy.stats()
            steps = self.examples // self.batch_size if is_counted else NO_END_STEPS
            classifier.restore(seed)
            classifier.train(slow(SCENARIOS[scenario].delay), steps=steps, callbacks=[watch])
            counted = traffic_between(drained, strategy.stats(), batch_size=self.batch_size)
            measured[scenario] = _training_counts(watch) | counted
        return {"scenarios": measured, "details": steps_way(strategy)}

    def take(self, results: Results, turn: Turn, result: Any) -> None:
        for scenario, run in result["scenarios"].items():
            found = {**run, "details": result["details"]}
            results.add(found, seed=turn.seed, scenario=scenario, mode=turn.case["mode"])

    def examples_per_s(self, case: Case) -> Spread:
        """Return the examples per second whose gradients were applied."""
        return Spread.from_samples(self.batch_size * each for each in applied_rates(case).values())

    def measures(self, results: Results) -> list[Measure]:
        return [
            Measure("updates_per_s", rate),
            Measure("examples_per_s", self.examples_per_s),
            Measure("bytes_per_example", bytes_per_example),
            Measure("dropped_per_s", partial(rate, count="dropped")),
            Measure("staleness_updates", staleness_of),
            Measure("largest_gap_steps", largest_gap_steps),
            Measure("seconds_to_goal", _seconds_to_goal),
            Measure("final_accuracy", _final_accuracy),
            Measure("final_accuracy_minus", partial(_gains, results)),
            Measure("cpu_ms_per_step", cpu_ms),
            Measure("worker_steps", lambda case: case.by_seed(lambda run: run["worker_steps"])),
            Measure("curves", curves_json),
        ]

    def bars(self, results: Results) -> list[Bar]:
        return comparisons(results)

    def tables(self, results: Results) -> list[Table]:
        delayed: Columns = {
            "updates/s": rate,
            "exam-\nples/s": lambda case: middle(self.examples_per_s(case)),
            "stale-\nness": _staleness_text,
            f"s to\n{GOAL:g}": goal_text,
            "accuracy, %": accuracy_percent,
        }
        counted: Columns = {
            "examples/s": self.examples_per_s,
            "bytes per\nexample": lambda case: middle(bytes_per_example(case)),
            "accuracy, %": accuracy_percent,
        }
        tables = []
        for scenario, cases in self.by_scenario(results).items():
            columns = counted if scenario == modes.COUNTED else delayed
            tables.append(case_table(self.title_of(cases[0]), _titles(cases), cases, columns))
        return tables

    def by_scenario(self, results: Results) -> dict[str, list[Case]]:
        """Return the measured cases of each scenario, in the order of the modes."""
        return grouped(self.cases(results), lambda case: case["scenario"])

    def title_of(self, case: Case) -> str:
        scenario = case["scenario"]
        counted = f", {case.run['examples']:,} examples each" if scenario == modes.COUNTED else ""
        return f"{SCENARIOS[scenario].title}{counted}"

    def explanation(self, results: Results) -> str:
        return (
            "Medians (minimum-maximum) over the seeds. An update of a synchronous mode is a round. "
            "Examples of gradients that were applied. Staleness in updates: mean, largest. Seconds "
            f"until a look at the test accuracy saw {GOAL:g}, and accuracy at the end. Bytes "
            "pushed and pulled; local steps are those between two exchanges of a worker."
        )

    def draw(self, results: Results, path: Path) -> None:
        """Draw a row per kind of straggler, and one of local steps with the same examples.

        Updates/s, accuracy over time and staleness; bytes, accuracy and speed.
        """
        cases = self.by_scenario(results)
        even, counted = cases.pop(modes.EVEN, []), cases.pop(modes.COUNTED, [])
        cases.pop(modes.FREE, None)
        rows = len(cases) + bool(counted)
        ratios = {"width_ratios": (1.1, 1.2, 1)}
        with picture(path, rows, 3, size=(12, 0.8 + 2.9 * rows), gridspec_kw=ratios) as (_, axes):
            for (rates, curves, counts), scenario in zip(axes, cases, strict=False):
                _draw_rates(rates, cases[scenario], even, title=SCENARIOS[scenario].title)
                _draw_curves(curves, cases[scenario])
                _draw_staleness(counts, cases[scenario])
            if counted:
                self._draw_counted(axes[-1], counted)

    def _draw_counted(self, axes: Sequence[Any], cases: Sequence[Case]) -> None:
        bar: dict[str, Any] = {"height": 0.6, "text": "{:.0f}"}
        dot: dict[str, Any] = {"text": " {:.1f}", "markersize": 7}
        for axis, spread_of, style, label in (
            (axes[0], bytes_per_example, bar, "bytes per example, pushed and pulled"),
            (axes[1], accuracy_percent, dot, "test accuracy at the end, %"),
            (axes[2], self.examples_per_s, bar, "examples/s"),
        ):
            for y, case in enumerate(cases):
                colour = ALL_MODES[case["mode"]].colour
                draw_spread(axis, y, spread_of(case), colour=colour, **style)
            is_rate, names = axis is axes[2], _titles(cases)
            name_bars(axis, names, margin=0.18, is_from_zero=is_rate, label=label)
        name_axis(axes[0], title=self.title_of(cases[0]))
        axes[0].set_xscale("log")
        axes[0].minorticks_off()
        for axis in axes[1:]:
            axis.set_yticks([])


def _titles(cases: Sequence[Case]) -> list[str]:
    return [ALL_MODES[case["mode"]].title for case in cases]


def _training_counts(watch: Any) -> dict[str, Any]:
    """Return the counts of a training between the watch's begin and end."""
    before, after = watch.before, watch.after
    steps = zip(before.worker_steps, after.worker_steps, strict=True)
    return {
        "samples": [asdict(sample) for sample in watch.clock.samples],
        "curve": watch.curve,
        "updates": after.updates_applied - before.updates_applied,
        "dropped": after.gradients_dropped - before.gradients_dropped,
        "worker_steps": [b - a for a, b in steps],
        "staleness_updates": staleness_between(before, after),
        "largest_gap_steps": after.clock_gap_steps[1],  # since the turn began
    }


def accuracy_percent(case: Case) -> Spread:
    """Return the accuracy at the end of each training, in percent."""
    return Spread.from_samples(100 * each for each in final_accuracy(case).values())


def _final_accuracy(case: Case) -> dict[int, float]:
    return {seed: round(accuracy, 4) for seed, accuracy in final_accuracy(case).items()}


def _gains(results: Results, case: Case) -> dict[str, Interval | None]:
    """Final accuracy minus that of each other mode in the scenario."""
    others = [
        other["mode"] for other in results.select(scenario=case["scenario"]) if other is not case
    ]
    return {other: gain(results, case["scenario"], case["mode"], other) for other in others}


def _seconds_to_goal(case: Case) -> dict[int, float | None]:
    """Return the seconds to the goal by seed; unknown where accuracy is tested at the end only."""
    return dict.fromkeys(case.runs) if case["scenario"] == modes.COUNTED else goal_json(case)


def _staleness_text(case: Case) -> str:
    counts = staleness_of(case)
    return f"{mean_staleness(counts):.1f}, {max(counts, default=0)}"


def _draw_rates(axis: Any, cases: Sequence[Case], even: Sequence[Case], *, title: str) -> None:
    own = {case["mode"]: rate(case).median for case in even}
    for y, case in enumerate(cases):
        without = own.get(case["mode"], 0.0)
        axis.barh(y, without, 0.66, facecolor="none", edgecolor=GREY[0], linewidth=1)
        colour = ALL_MODES[case["mode"]].colour
        draw_spread(axis, y, rate(case), colour=colour, height=0.46, beside=without)
    label = "updates/s; a synchronous one is a round\nframes: without stragglers"
    name_bars(axis, _titles(cases), margin=0.15, title=title, label=label)


def _draw_curves(axis: Any, cases: Sequence[Case]) -> None:
    for case in cases:
        mode = ALL_MODES[case["mode"]]
        curves = [np.asarray(run["curve"]) for run in case.runs.values()]
        times_s = np.linspace(0, min(curve[-1, 0] for curve in curves), 100)
        accuracies = [np.interp(times_s, curve[:, 0], curve[:, 1]) for curve in curves]
        median = 100 * np.median(accuracies, axis=0)
        axis.plot(times_s, median, color=mode.colour, linewidth=1.8, label=mode.title)
    axis.axhline(100 * GOAL, color=INK, linestyle=":", linewidth=1)
    axis.set_ylim(70, 90)
    axis.set_xlim(left=0)
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    name_axis(axis, label="seconds of training", y_label="test accuracy, %")


def _draw_staleness(axis: Any, cases: Sequence[Case]) -> None:
    counts = {ALL_MODES[case["mode"]].colour: staleness_of(case) for case in cases}
    bars = [(colour, shares(each, most=STALENESS_SHOWN)) for colour, each in counts.items()]
    label = f"staleness in updates; the last is {STALENESS_SHOWN} and more"
    draw_staleness(axis, bars, width=0.8, label=label)
    axis.set_xticks(range(0, STALENESS_SHOWN + 1, 4))
