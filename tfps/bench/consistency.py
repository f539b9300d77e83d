"""The consistency modes with a worker that is slow all the time, or workers slow at times.

A step waits 50 ms for its batch and computes for a few, so that three workers on two cores behave
like machines of their own; the waits are drawn from a seed, the same for every mode. Modes take
turns; a turn is a fresh chief process that trains the same MLP from the same weights for the same
time under each kind of delay, and looks at its test accuracy without stopping the workers. All use
Adam with one learning rate; a synchronous update has the batches of two or three workers in it.

What a synchronous mode costs where nobody is slow is measured apart: two workers without any wait.
There, too, workers take local steps: fewer bytes for the same examples, and what that costs in
accuracy. Those trainings end after a number of examples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

import tfps
from tfps.bench import modes
from tfps.bench.accuracy import GOAL, curves_json, final_accuracy, goal_json, goal_text
from tfps.bench.example_bytes import bytes_per_example, traffic_between
from tfps.bench.images import LabelledImages, image_files
from tfps.bench.mode_comparison import (
    comparisons,
    examples_per_s,
    gain,
    largest_gap_steps,
    rate,
)
from tfps.bench.modes import ALL_MODES
from tfps.bench.picture import GREY, INK, draw_spread, name_axis, name_bars, picture
from tfps.bench.results import Bar, Case, Results, Spread
from tfps.bench.runner import Bench, Benchmark, TaskNumbers
from tfps.bench.settings import IMAGES, REPETITIONS
from tfps.bench.slow_input import Delay, SlowInput
from tfps.bench.staleness_counts import mean_staleness, staleness_between, staleness_of
from tfps.bench.table import Columns, case_table
from tfps.bench.usage import steps_way

STALENESS_SHOWN = 16  # what lies above is added to the last bar


@dataclass(frozen=True)
class Training:
    """One of a chief process's trainings."""

    delay: Delay
    train_s: float | None = None  # after which it ends; None: after its steps
    # Between two looks at the test accuracy; None: only at the ends. A look takes time of the
    # cores that steps without waits are short of.
    look_every_s: float | None = None
    steps: int | None = None  # of all workers together, without `train_s`


Trainings = Mapping[str, Training]  # by scenario


@dataclass(frozen=True)
class Consistency(Benchmark):
    """The consistency modes with a worker that is slow, and with workers slow at times.

    Steps wait 50 ms, so workers of one machine do not fight for its cores. Updates per second,
    staleness, and the time to a test accuracy of 0.85; what local steps save in bytes and cost in
    accuracy: half an hour on two cores.
    """

    name = "consistency"

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
        delays = {name: asdict(scenario.delay) for name, scenario in modes.SCENARIOS.items()}
        return super().as_json() | {"delays": delays, "seeds": self.seeds}

    @property
    def local_seeds(self) -> list[int]:
        """Of the repetitions with local steps."""
        return self.seeds[: self.local_repetitions]

    @property
    def turns(self) -> int:
        plain = self.repetitions * (len(modes.MODES) + len(modes.FREE_MODES))
        return plain + len(self.local_seeds) * len(modes.LOCAL_MODES)

    def run(self, bench: Bench) -> None:
        delayed = {
            name: Training(scenario.delay, scenario.train_share * self.train_s, self.look_every_s)
            for name, scenario in modes.SCENARIOS.items()
        }
        with image_files(self.images) as paths:
            for workers, plan, delays in (
                (self.workers, _turns(self.seeds, dict.fromkeys(modes.MODES, delayed)), "with"),
                (modes.FREE_WORKERS, self._free_turns(), "without"),
            ):
                with bench.cluster(workers, 1, name=f"cluster-{workers}") as cluster:
                    for seed, mode, trainings in plan:
                        title = ALL_MODES[mode].title
                        bench.progress(f"{workers} workers {delays} delays, seed {seed}: {title}")
                        ordered = {name: asdict(each) for name, each in trainings.items()}
                        case = {"mode": mode, "seed": seed, "trainings": ordered, **paths}
                        answer = bench.turn(cluster, name=mode, case=case)
                        add(bench.results, mode, seed, answer)

    def _free_turns(self) -> list[tuple[int, str, Trainings]]:
        steps = self.examples // self.batch_size
        counted = {modes.COUNTED: Training(modes.FREE_DELAY, steps=steps)}
        free = {modes.FREE: Training(modes.FREE_DELAY, self.free_s), **counted}
        plain: dict[str, Trainings] = dict.fromkeys(modes.FREE_MODES, free)
        local: dict[str, Trainings] = dict.fromkeys(modes.LOCAL_MODES, counted)
        others = self.seeds[len(self.local_seeds) :]
        return [*_turns(self.local_seeds, plain | local), *_turns(others, plain)]

    def measure(
        self,
        tasks: TaskNumbers,
        *,
        mode: str,
        seed: int,
        trainings: Mapping[str, Mapping[str, Any]],
        images_path: str,
        pixels_path: str,
    ) -> Any:
        """Train as ordered, one after the other; the answer has what happened by scenario.

        The seed is that of the initial weights, the order of the images and the delays.
        """
        import keras

        from tfps.bench.classifier import NO_END_STEPS, Classifier
        from tfps.bench.watch import Watch

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
        for scenario, fields in trainings.items():
            training = Training(**{**fields, "delay": Delay(**fields["delay"])})
            watch = Watch(
                strategy=strategy,
                clock=tasks.clock(),
                accuracy=accuracy,
                train_s=training.train_s or math.inf,
                look_every_s=training.look_every_s or math.inf,
            )
            drained = strategy.stats()
            steps = training.steps or NO_END_STEPS
            classifier.restore(seed)
            classifier.train(slow(training.delay), steps=steps, callbacks=[watch])
            counted = traffic_between(drained, strategy.stats(), batch_size=self.batch_size)
            measured[scenario] = _answer(watch) | counted
        return {"scenarios": measured, "details": steps_way(strategy)}

    def cases(self, results: Results) -> list[Case]:
        return [case for cases in by_scenario(results).values() for case in cases]

    def quantities(self, results: Results, case: Case) -> dict[str, Any]:
        scenario, mode = case["scenario"], case["mode"]
        others = [c["mode"] for c in by_scenario(results)[scenario] if c is not case]
        gains = {other: gain(results, scenario, mode, other) for other in others}
        # Without a look before the end nobody knows.
        times_s = dict.fromkeys(case.runs) if scenario == modes.COUNTED else goal_json(case)
        return {
            "updates_per_s": rate(case),
            "examples_per_s": examples_per_s(case, self.batch_size),
            "bytes_per_example": bytes_per_example(case),
            "dropped_per_s": rate(case, "dropped"),
            "staleness_updates": staleness_of(case.runs.values()),
            "largest_gap_steps": largest_gap_steps(case),
            "seconds_to_goal": times_s,
            "final_accuracy": {seed: round(a, 4) for seed, a in final_accuracy(case).items()},
            "final_accuracy_minus": {
                other: gained and gained.as_json() for other, gained in gains.items()
            },
            "cpu_ms_per_step": case.cpu_ms_per_step,
            "other_cores": round(case.other_cores, 2),
            "worker_steps": case.by_seed(lambda run: run["worker_steps"]),
            "curves": curves_json(case),
        }

    def bars(self, results: Results) -> list[Bar]:
        return comparisons(results)

    def tables(self, results: Results) -> list[Table]:
        delayed: Columns = {
            "updates/s": rate,
            "exam-\nples/s": lambda case: examples_per_s(case, self.batch_size).median,
            "stale-\nness": _staleness_text,
            f"s to\n{GOAL:g}": goal_text,
            "accuracy, %": accuracy_percent,
        }
        counted: Columns = {
            "examples/s": lambda case: examples_per_s(case, self.batch_size),
            "bytes per\nexample": lambda case: bytes_per_example(case).median,
            "accuracy, %": accuracy_percent,
        }
        tables = []
        for scenario, cases in by_scenario(results).items():
            columns = counted if scenario == modes.COUNTED else delayed
            tables.append(case_table(title_of(scenario, cases), _titles(cases), cases, columns))
        return tables

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
        cases = by_scenario(results)
        even, counted = cases.pop(modes.EVEN, []), cases.pop(modes.COUNTED, [])
        cases.pop(modes.FREE, None)
        rows = len(cases) + bool(counted)
        ratios = {"width_ratios": (1.1, 1.2, 1)}
        with picture(path, rows, 3, size=(12, 0.8 + 2.9 * rows), gridspec_kw=ratios) as (_, axes):
            for (rates, curves, counts), scenario in zip(axes, cases, strict=False):
                _draw_rates(rates, cases[scenario], even, title=modes.TITLES[scenario])
                _draw_curves(curves, cases[scenario])
                _draw_staleness(counts, cases[scenario])
            if counted:
                self._draw_counted(axes[-1], counted)

    def _draw_counted(self, axes: Sequence[Any], cases: Sequence[Case]) -> None:
        (traffic, accuracies, speeds), names = axes, _titles(cases)
        for y, case in enumerate(cases):
            colour = ALL_MODES[case["mode"]].colour
            bar: dict[str, Any] = {"colour": colour, "height": 0.6, "text": "{:.0f}"}
            dot: dict[str, Any] = {"colour": colour, "text": " {:.1f}", "markersize": 7}
            draw_spread(traffic, y, bytes_per_example(case), **bar)
            draw_spread(accuracies, y, accuracy_percent(case), **dot)
            draw_spread(speeds, y, examples_per_s(case, self.batch_size), **bar)
        traffic.set_xscale("log")
        traffic.minorticks_off()
        for axis, title, label in (
            (traffic, title_of(modes.COUNTED, cases), "bytes per example, pushed and pulled"),
            (accuracies, None, "test accuracy at the end, %"),
            (speeds, None, "examples/s"),
        ):
            is_rate = axis is speeds
            name_bars(axis, names, margin=0.18, is_from_zero=is_rate, title=title, label=label)
        accuracies.set_yticks([])
        speeds.set_yticks([])


def _turns(
    seeds: Sequence[int], trainings: Mapping[str, Trainings]
) -> list[tuple[int, str, Trainings]]:
    """Seed, mode and what to train: modes take turns."""
    return [(seed, mode, trainings[mode]) for seed in seeds for mode in trainings]


def add(results: Results, mode: str, seed: int, answer: Mapping[str, Any]) -> None:
    """Take the result of one turn."""
    for scenario, run in answer["scenarios"].items():
        found = {**run, "details": answer["details"]}
        results.add(found, seed=seed, scenario=scenario, mode=mode)


def by_scenario(results: Results) -> dict[str, list[Case]]:
    """The cases of those that were measured, in their order and that of the modes."""
    found = {name: [results.find(name, mode) for mode in ALL_MODES] for name in modes.TITLES}
    cases = {name: [case for case in row if case is not None] for name, row in found.items()}
    return {name: row for name, row in cases.items() if row}


def title_of(scenario: str, cases: Sequence[Case]) -> str:
    """What tables and plots call a scenario."""
    examples = f", {cases[0].run['examples']:,} examples each" if scenario == modes.COUNTED else ""
    return f"{modes.TITLES[scenario]}{examples}"


def _titles(cases: Sequence[Case]) -> list[str]:
    return [ALL_MODES[case["mode"]].title for case in cases]


def _answer(watch: Any) -> dict[str, Any]:
    """What happened while it watched."""
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
    """At the end."""
    return Spread.of(100 * each for each in final_accuracy(case).values())


def _staleness_text(case: Case) -> str:
    counts = staleness_of(case.runs.values())
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
    width = 0.8 / len(cases)
    for number, case in enumerate(cases):
        counts = staleness_of(case.runs.values())
        total = max(1, sum(counts.values()))
        shares = np.zeros(STALENESS_SHOWN + 1)
        for value, count in counts.items():
            shares[min(value, STALENESS_SHOWN)] += 100 * count / total
        left = np.arange(STALENESS_SHOWN + 1) + (number - (len(cases) - 1) / 2) * width
        axis.bar(left, shares, width, color=ALL_MODES[case["mode"]].colour)
    axis.set_xticks(range(0, STALENESS_SHOWN + 1, 4))
    label = f"staleness in updates; the last is {STALENESS_SHOWN} and more"
    name_axis(axis, label=label, y_label="% of gradients")
