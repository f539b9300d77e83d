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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.table import Table

import tfps
from tfps.bench.case import Case
from tfps.bench.delay import Delay
from tfps.bench.epochs import steps_way
from tfps.bench.goal import GOAL, NEVER_S, curves_json, ends_s, final_accuracy, goal_s
from tfps.bench.images import LabelledImages, image_files
from tfps.bench.mode_comparison import (
    bytes_per_example,
    comparisons,
    examples_per_s,
    gain,
    largest_gap_steps,
    rate,
    staleness_updates,
)
from tfps.bench.modes import (
    ALL_MODES,
    COUNTED,
    FREE,
    FREE_DELAY,
    FREE_MODES,
    FREE_WORKERS,
    LOCAL_MODES,
    MODES,
    SCENARIOS,
    TITLES,
)
from tfps.bench.report import Bar, Spread
from tfps.bench.results import Results
from tfps.bench.runner import Bench, Benchmark, TaskNumbers
from tfps.bench.settings import IMAGES, REPETITIONS
from tfps.bench.slow_input import SlowInput
from tfps.bench.staleness_counts import mean_staleness, staleness_between
from tfps.bench.table import case_table, goal_text, number_text, spread_text


@dataclass(frozen=True)
class Training:
    """One of a chief process's trainings.

    Args:
        delay: how long steps take.
        train_s: after which it ends; None: after its steps.
        look_every_s: between two looks at the test accuracy; None: only at the ends. A look takes
            time of the cores that steps without waits are short of.
        steps: of all workers together, without ``train_s``.
    """

    delay: Delay
    train_s: float | None = None
    look_every_s: float | None = None
    steps: int | None = None


Trainings = Mapping[str, Training]


@dataclass(frozen=True)
class Consistency(Benchmark):
    """The consistency modes with a worker that is slow, and with workers slow at times.

    Steps wait 50 ms, so workers of one machine do not fight for its cores. Updates per second,
    staleness, and the time to a test accuracy of 0.85; what local steps save in bytes and cost in
    accuracy: half an hour on two cores.

    Args:
        workers: with delays; one of them is slow.
        repetitions: turns of each mode, each with a seed of its own.
        train_s: a training with stragglers.
        free_s: a training without any wait.
        examples: of a training that is compared with local steps.
        local_repetitions: turns of each number of local steps, with the first of the seeds.
        look_every_s: between two looks at the test accuracy.
        batch_size: examples in one worker's step.
        learning_rate: of Adam.
        images: a folder with the full Fashion-MNIST; None: the shipped subset.
    """

    name = "consistency"

    workers: int = 3
    repetitions: int = field(default=5, metadata=REPETITIONS)
    train_s: float = 24.0
    free_s: float = 6.0
    examples: int = 64_000
    local_repetitions: int = 3
    look_every_s: float = 0.5
    batch_size: int = 64
    learning_rate: float = 1e-3
    images: Path | None = field(default=None, metadata=IMAGES)

    def quick(self) -> Consistency:
        return replace(self, repetitions=1, train_s=3.0, free_s=1.0, examples=12_800)

    def as_json(self) -> dict[str, Any]:
        delays = {name: asdict(scenario.delay) for name, scenario in SCENARIOS.items()}
        return super().as_json() | {"delays": delays, "seeds": self.seeds}

    @property
    def local_seeds(self) -> list[int]:
        """Of the repetitions with local steps."""
        return self.seeds[: self.local_repetitions]

    @property
    def turns(self) -> int:
        plain = self.repetitions * (len(MODES) + len(FREE_MODES))
        return plain + len(self.local_seeds) * len(LOCAL_MODES)

    def run(self, bench: Bench) -> None:
        delayed = {
            name: Training(scenario.delay, scenario.train_share * self.train_s, self.look_every_s)
            for name, scenario in SCENARIOS.items()
        }
        with image_files(self.images) as paths:
            for workers, plan, delays in (
                (self.workers, _turns(self.seeds, dict.fromkeys(MODES, delayed)), "with"),
                (FREE_WORKERS, self._free_turns(), "without"),
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
        counted = {COUNTED: Training(FREE_DELAY, steps=self.examples // self.batch_size)}
        free = {FREE: Training(FREE_DELAY, self.free_s), **counted}
        plain: dict[str, Trainings] = dict.fromkeys(FREE_MODES, free)
        local: dict[str, Trainings] = dict.fromkeys(LOCAL_MODES, counted)
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
        """Train as ordered; the answer has counts and test accuracies over time, by scenario.

        Args:
            tasks: of the cluster.
            mode: a key of `ALL_MODES`.
            seed: of the initial weights, the order of the images and the delays.
            trainings: the fields of a `Training` by the name of the scenario, one after the other.
            images_path: the data, an .npz file.
            pixels_path: the training images alone, as workers read them.
        """
        import keras

        from tfps.bench.classifier import NO_END_STEPS, Classifier
        from tfps.bench.watch import Watch

        data = LabelledImages.load(Path(images_path))
        keras.utils.set_random_seed(seed)
        consistency = ALL_MODES[mode].make()
        strategy = tfps.ParameterServerStrategy(consistency=consistency, batch_callbacks="sampled")
        classifier = Classifier(strategy, lambda: keras.optimizers.Adam(self.learning_rate), data)

        def slow(delay: Delay) -> Any:
            return SlowInput(pixels_path, data.labels, self.batch_size, delay, seed).function()

        classifier.warm_up(slow(Delay(step_s=0.0)))
        measured = {}
        for scenario, fields in trainings.items():
            training = Training(**{**fields, "delay": Delay(**fields["delay"])})
            watch = Watch(
                strategy,
                clock=tasks.clock(),
                accuracy=classifier.accuracy,
                train_s=training.train_s or math.inf,
                look_every_s=training.look_every_s or math.inf,
            )
            drained = strategy.stats()
            steps = training.steps or NO_END_STEPS
            classifier.train(slow(training.delay), seed=seed, callbacks=[watch], steps=steps)
            traffic = _traffic(drained, strategy.stats(), self.batch_size)
            measured[scenario] = _answer(watch) | traffic
        return {"scenarios": measured, "details": steps_way(strategy)}

    def cases(self, results: Results) -> list[Case]:
        return [case for name in scenarios(results) for case in of_scenario(results, name)]

    def quantities(self, results: Results, case: Case) -> dict[str, Any]:
        scenario, mode = case["scenario"], case["mode"]
        others = [c["mode"] for c in of_scenario(results, scenario) if c is not case]
        gains = {other: gain(results, scenario, mode, other) for other in others}
        return {
            "updates_per_s": rate(case, "updates"),
            "examples_per_s": examples_per_s(case, self.batch_size),
            "bytes_per_example": bytes_per_example(case),
            "dropped_per_s": rate(case, "dropped"),
            "staleness_updates": staleness_updates(case),
            "largest_gap_steps": largest_gap_steps(case),
            "seconds_to_goal": {
                # Without a look before the end nobody knows.
                seed: None if at_s == NEVER_S or scenario == COUNTED else round(at_s, 2)
                for seed, at_s in goal_s(case).items()
            },
            "final_accuracy": {seed: round(a, 4) for seed, a in final_accuracy(case).items()},
            "final_accuracy_minus": {
                other: None if gained is None else gained.as_json()
                for other, gained in gains.items()
            },
            "cpu_ms_per_step": case.cpu_ms_per_step,
            "other_cores": round(case.other_cores, 2),
            "worker_steps": {seed: run["worker_steps"] for seed, run in case.runs.items()},
            "curves": curves_json(case),
        }

    def bars(self, results: Results) -> list[Bar]:
        return comparisons(results)

    def tables(self, results: Results) -> list[Table]:
        accuracy_column = {"accuracy, %": lambda case: spread_text(_accuracy_percent(case))}
        delayed: dict[str, Callable[[Case], str]] = {
            "updates/s": lambda case: spread_text(rate(case, "updates")),
            "exam-\nples/s": lambda case: number_text(examples_per_s(case, self.batch_size).median),
            "stale-\nness": _staleness_text,
            f"s to\n{GOAL:g}": lambda case: goal_text(
                list(goal_s(case).values()), list(ends_s(case).values())
            ),
            **accuracy_column,
        }
        counted: dict[str, Callable[[Case], str]] = {
            "examples/s": lambda case: spread_text(examples_per_s(case, self.batch_size)),
            "bytes per\nexample": lambda case: number_text(bytes_per_example(case).median),
            **accuracy_column,
        }
        tables = []
        for scenario in scenarios(results):
            cases = of_scenario(results, scenario)
            names = [ALL_MODES[case["mode"]].title for case in cases]
            columns = counted if scenario == COUNTED else delayed
            tables.append(case_table(title_of(results, scenario), names, cases, columns))
        return tables

    def explanation(self, results: Results) -> str:
        return (
            "Medians (minimum-maximum) over the seeds. An update of a synchronous mode is a round. "
            "Examples of gradients that were applied. Staleness in updates: mean, largest. Seconds "
            f"until a look at the test accuracy saw {GOAL:g}, and accuracy at the end. Bytes "
            "pushed and pulled; local steps are those between two exchanges of a worker."
        )

    def draw(self, results: Results, path: Path) -> None:
        from tfps.bench.mode_picture import draw_modes

        titles = {scenario: title_of(results, scenario) for scenario in scenarios(results)}
        cases = {scenario: of_scenario(results, scenario) for scenario in titles}
        draw_modes(cases, titles, path, batch_size=self.batch_size)


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


def scenarios(results: Results) -> list[str]:
    """Those that were measured, in their order."""
    found = results.on("scenario")
    return [name for name in (*SCENARIOS, FREE, COUNTED) if name in found]


def of_scenario(results: Results, scenario: str) -> list[Case]:
    """Its cases, in the order of the modes."""
    found = [results.find(scenario, mode) for mode in ALL_MODES]
    return [case for case in found if case is not None]


def title_of(results: Results, scenario: str) -> str:
    """What tables and plots call a scenario."""
    if scenario != COUNTED:
        return TITLES[scenario]
    run = next(iter(of_scenario(results, COUNTED)[0].runs.values()))
    return f"{TITLES[COUNTED]}, {run['examples']:,} examples each"


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
        "staleness_updates": staleness_between(
            before.gradient_staleness_updates, after.gradient_staleness_updates
        ),
        "largest_gap_steps": after.clock_gap_steps[1],  # since the turn began
    }


def _traffic(before: Any, after: Any, batch_size: int) -> dict[str, Any]:
    """What a whole training sent, with what workers fetch when it begins, and for how much."""
    return {
        "examples": batch_size * (sum(after.worker_steps) - sum(before.worker_steps)),
        "bytes_pulled": after.bytes_pulled - before.bytes_pulled,
        "bytes_pushed": after.bytes_pushed - before.bytes_pushed,
    }


def _accuracy_percent(case: Case) -> Spread:
    return Spread.of([100 * each for each in final_accuracy(case).values()])


def _staleness_text(case: Case) -> str:
    counts = staleness_updates(case)
    return f"{mean_staleness(counts):.1f}, {max(counts, default=0)}"
