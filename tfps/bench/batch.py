"""The batch per worker and the number of local steps: speed, memory and time to an accuracy.

A larger batch makes more examples per second of a step's fixed costs, and fewer, larger updates of
the same examples; more local steps make fewer exchanges, and workers that drift apart. So neither
speed nor accuracy alone says what to take: the time to an accuracy does. The learning rate follows
the batch by a rule, since none that is fixed suits both ends of the sweep.

Pairs take turns, seed by seed. Each turn is a cluster and a chief of its own: the most memory that
a process has had does not shrink, and what workers keep between steps begins anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

import tfps
from tfps.bench.batch_choice import Choice, Pair, choose, period_title
from tfps.bench.case import Case
from tfps.bench.epochs import steps_way
from tfps.bench.goal import GOAL, NEVER_S, curves_json, ends_s, goal_s
from tfps.bench.images import LabelledImages, image_files
from tfps.bench.memory import peak_mib
from tfps.bench.report import Bar, Spread
from tfps.bench.results import Results
from tfps.bench.runner import Bench, Benchmark, TaskNumbers
from tfps.bench.settings import IMAGES, option
from tfps.bench.slow_input import SlowInput
from tfps.bench.style import BLUE, GREY, INK
from tfps.bench.table import case_table, number_text, spread_text

# Grey for plain asynchronous training; the more local steps, the darker.
COLOURS = (GREY[1], BLUE[0], BLUE[1], "#0b4ea2")


@dataclass(frozen=True)
class Batch(Benchmark):
    """Which batch per worker and how many local steps: speed, memory, time to an accuracy.

    Trains a Fashion-MNIST classifier on two workers with each pair, and says which one to take:
    about a quarter of an hour on two cores.

    Args:
        images: a folder with the full Fashion-MNIST; None: the shipped subset.
        batch_sizes: examples in one worker's step.
        periods: numbers of local steps; 1 is plain asynchronous.
        rule: how the learning rate follows the batch, of `tfps.optimizers.ScaledRate`.
        base_rate: the learning rate of Adam at the base batch size.
        base_batch_size: examples in one worker's step.
        workers: how many.
        repetitions: seeds.
        train_s: after which a training ends that has not reached the accuracy.
        least_s: how long one that has goes on, so that its speed can be told.
        look_every_s: between two looks at the test accuracy.
    """

    name = "batch"

    images: Path | None = field(default=None, metadata=IMAGES)
    batch_sizes: tuple[int, ...] = option(
        (16, 32, 64, 128, 256),
        click.IntRange(min=1),
        "A worker's batch; may be repeated.",
        flag="--batch-size",
    )
    periods: tuple[int, ...] = option(
        (1, 4, 16),
        click.IntRange(min=1),
        "Steps between two exchanges; may be repeated.",
        flag="--local-steps",
    )
    rule: str = option(
        "square_root",
        click.Choice(["square_root", "linear"]),
        "How the learning rate follows the batch.",
    )
    base_rate: float = 1e-3
    base_batch_size: int = 64
    workers: int = 2
    train_s: float = 15.0
    least_s: float = 3.0
    look_every_s: float = 0.2

    def quick(self) -> Batch:
        return replace(
            self, batch_sizes=(32, 256), periods=(1, 16), repetitions=1, train_s=6.0, least_s=1.0
        )

    def as_json(self) -> dict[str, Any]:
        settings = super().as_json()
        names = ("workers", "batch_sizes", "periods")
        rate = ("base_rate", "base_batch_size", "rule")
        others = ("repetitions", "train_s", "least_s", "look_every_s", "images")
        return {
            **{name: settings[name] for name in names},
            "rate": {name.removesuffix("_rate"): settings[name] for name in rate},
            **{name: settings[name] for name in others},
            "seeds": self.seeds,
        }

    @property
    def turns(self) -> int:
        return self.repetitions * len(self.batch_sizes) * len(self.periods)

    def run(self, bench: Bench) -> None:
        """Start a cluster for each training, train on it, and end it."""
        with image_files(self.images) as paths:
            for seed in self.seeds:
                for batch_size in self.batch_sizes:
                    for steps in self.periods:
                        bench.progress(f"seed {seed}: batch {batch_size}, {period_title(steps)}")
                        name = f"batch_{batch_size}_{steps}"
                        axes = {"batch_size": batch_size, "period_steps": steps}
                        with bench.cluster(self.workers, 1, name=name) as cluster:
                            case = {**axes, "seed": seed, **paths}
                            answer = bench.turn(cluster, name=name, case=case)
                        bench.results.add(answer, seed=seed, **axes)

    def rate(self, batch_size: int) -> Any:
        """The schedule of the learning rate for a batch; imports TensorFlow."""
        return tfps.optimizers.ScaledRate(
            self.base_rate,
            base_batch_size=self.base_batch_size,
            batch_size=batch_size,
            rule=self.rule,
        )

    def measure(
        self,
        tasks: TaskNumbers,
        *,
        batch_size: int,
        period_steps: int,
        seed: int,
        images_path: str,
        pixels_path: str,
    ) -> Any:
        """Train one pair; the answer has speed, accuracy over time and the workers' memory."""
        import keras

        from tfps.bench.classifier import Classifier
        from tfps.bench.watch import Watch

        data = LabelledImages.load(Path(images_path))
        keras.utils.set_random_seed(seed)
        consistency = tfps.Asynchronous() if period_steps == 1 else tfps.LocalSteps(period_steps)
        strategy = tfps.ParameterServerStrategy(consistency=consistency, batch_callbacks="sampled")
        rate = self.rate(batch_size)
        classifier = Classifier(strategy, lambda: keras.optimizers.Adam(rate), data)
        batches = SlowInput(pixels_path, data.labels, batch_size, None, seed)
        classifier.warm_up(batches.function())
        watch = Watch(
            strategy,
            clock=tasks.clock(),
            accuracy=classifier.accuracy,
            goal=GOAL,
            train_s=self.train_s,
            least_s=self.least_s,
            look_every_s=self.look_every_s,
        )
        drained = strategy.stats()
        classifier.train(batches.function(), seed=seed, callbacks=[watch])
        (sample,) = watch.clock.samples
        unseen_steps = sum(watch.before.worker_steps) - sum(drained.worker_steps)
        return {
            "learning_rate": rate.factor * rate.learning_rate,
            "samples": [asdict(sample)],
            "curve": from_first_step(watch.curve, unseen_s=unseen_steps / sample.steps_per_s),
            "memory_mib": max(peak_mib(number) for number in tasks.groups["worker"]),
            "details": steps_way(strategy),
        }

    def cases(self, results: Results) -> list[Case]:
        return by_period(results)

    def quantities(self, results: Results, case: Case) -> dict[str, Any]:
        taken = choice(results).pair
        return {
            "learning_rate": round(learning_rate(case), 7),
            "is_chosen": pair_of(case) == taken,
            "examples_per_s": examples_per_s(case),
            "memory_mib": case.spread("memory_mib"),
            "seconds_to_goal": {
                seed: None if at_s == NEVER_S else round(at_s, 2)
                for seed, at_s in goal_s(case).items()
            },
            "cpu_ms_per_step": case.cpu_ms_per_step,
            "other_cores": round(case.other_cores, 2),
            "curves": curves_json(case),
        }

    def findings(self, results: Results) -> dict[str, Any]:
        taken = choice(results)
        found = {
            "batch_size": taken.pair and taken.pair.batch_size,
            "period_steps": taken.pair and taken.pair.period_steps,
            "reason": taken.reason,
        }
        return {"choice": found}

    def bars(self, results: Results) -> list[Bar]:
        """What the choice gains over the usual pair, and local steps where steps are short."""
        usual, taken = results.find(self.base_batch_size, 1), choice(results).pair
        gain = None
        if usual is not None and taken is not None:
            # Who does not arrive does so at the very end: too kind to the usual pair.
            times_s = [min(goal_s(usual)[seed], ends_s(usual)[seed]) for seed in usual.runs]
            gain = taken.goal_s.median / Spread.of(times_s).median
        name = f"time to {GOAL:g}, the pair to take over batch {self.base_batch_size}, asynchronous"
        smallest, most = min(results.on("batch_size")), max(results.on("period_steps"))
        speed = None
        if most > 1:
            speed = results.ratio((smallest, most), (smallest, 1), examples_per_s)
        title = f"batch {smallest}, examples/s, {most} local steps over asynchronous"
        return [Bar(name, gain, 1.0, is_cost=True), Bar(title, speed, 1.0)]

    def tables(self, results: Results) -> list[Table]:
        taken = choice(results).pair
        columns: dict[str, Callable[[Case], str]] = {
            "learning\nrate": lambda case: f"{learning_rate(case):.2g}",
            "examples/s": lambda case: spread_text(examples_per_s(case)),
            "MiB per\nworker": lambda case: number_text(case.spread("memory_mib").median),
            f"s to {GOAL:g}": _time_text,
            "": lambda case: "<-" if pair_of(case) == taken else "",
        }
        tables = []
        for period_steps in sorted(results.on("period_steps")):
            cases = of_period(results, period_steps)
            title = period_title(period_steps)
            names = [f"batch {case['batch_size']}" for case in cases]
            tables.append(case_table(title[0].upper() + title[1:], names, cases, columns))
        return tables

    def explanation(self, results: Results) -> str:
        count = len(by_period(results)[0].runs)
        return (
            f"Medians (minimum-maximum) of {count} seed{'s' if count > 1 else ''}. Memory: the "
            "most that a worker's process had at once, with the libraries. Seconds until a look "
            f"at the test accuracy saw {GOAL:g}; where a training missed it, how long it had, and "
            "how many did not miss it."
        )

    def verdicts(self, results: Results) -> Sequence[Text]:
        taken = choice(results)
        title = "no pair" if taken.pair is None else taken.pair.title
        return [Text(f"Take {title}: {taken.reason}.", style="bold")]

    def draw(self, results: Results, path: Path) -> None:
        """Draw time to the accuracy, speed and memory over the batch."""
        from tfps.bench.picture import legend_below, picture

        panels: Mapping[str, Callable[[Case], Spread]] = {
            f"Seconds to {GOAL:g}": lambda case: pair_of(case).goal_s,
            "Examples per second": examples_per_s,
            "Memory of a worker, MiB": lambda case: case.spread("memory_mib"),
        }
        with picture(path, 1, 3, size=(12, 4.0)) as (figure, axes):
            for axis, (title, spread_of) in zip(axes[0], panels.items(), strict=True):
                _by_batch(axis, results, spread_of, title=title)
            pair = choice(results).pair
            if pair is not None:
                axes[0, 0].plot(
                    pair.batch_size,
                    pair.goal_s.median,
                    "o",
                    markersize=15,
                    markerfacecolor="none",
                    markeredgecolor=INK,
                    label="to take",
                )
            entries = len(axes[0, 0].get_legend_handles_labels()[1])
            legend_below(figure, axes[0, 0], entries=entries, columns=entries)


def from_first_step(
    curve: Sequence[tuple[float, float]], *, unseen_s: float
) -> list[tuple[float, float]]:
    """A curve whose times count from the first step, not from the first that the chief saw.

    By then some steps are done, of large batches and many local steps enough to learn much. They
    are taken to have been as fast as those that follow; the workers' pipelines, which are made
    before, take a time that says nothing about batches.

    Example:

    >>> from_first_step([(0.0, 0.5), (1.0, 0.75)], unseen_s=0.25)
    [(0.25, 0.5), (1.25, 0.75)]
    """
    return [(at_s + unseen_s, accuracy) for at_s, accuracy in curve]


def of_period(results: Results, period_steps: int) -> list[Case]:
    """The cases with a number of local steps, by batch."""
    found = results.of(period_steps=period_steps)
    return sorted(found, key=lambda case: case["batch_size"])


def by_period(results: Results) -> list[Case]:
    """All cases, in the order of the tables."""
    periods = sorted(results.on("period_steps"))
    return [case for period_steps in periods for case in of_period(results, period_steps)]


def examples_per_s(case: Case) -> Spread:
    """Of all workers together."""
    return case.spread_of_samples(lambda sample: case["batch_size"] * sample.steps_per_s)


def learning_rate(case: Case) -> float:
    """That the batch got."""
    rate: float = next(iter(case.runs.values()))["learning_rate"]
    return rate


def pair_of(case: Case) -> Pair:
    """What the choice looks at."""
    spread = Spread.of(list(goal_s(case).values()))
    return Pair(case["batch_size"], case["period_steps"], spread, case.spread("memory_mib"))


def choice(results: Results) -> Choice:
    """The pair to take."""
    return choose([pair_of(case) for case in by_period(results)])


def _time_text(case: Case) -> str:
    times_s, ended_s = goal_s(case), ends_s(case)
    missed_s = [ended_s[seed] for seed, at_s in times_s.items() if at_s == NEVER_S]
    if not missed_s:
        return spread_text(Spread.of(list(times_s.values())))
    return f"> {min(missed_s):.0f}, {len(times_s) - len(missed_s)} of {len(times_s)}"


def _by_batch(
    axis: Any, results: Results, spread_of: Callable[[Case], Spread], *, title: str
) -> None:
    from tfps.bench.picture import name_axis

    sizes = sorted(results.on("batch_size"))
    largest = 0.0
    for number, period_steps in enumerate(sorted(results.on("period_steps"))):
        cases = of_period(results, period_steps)
        # Who has not arrived is not drawn; the table has it.
        points = [(case["batch_size"], spread_of(case)) for case in cases]
        points = [point for point in points if math.isfinite(point[1].maximum)]
        largest = max([largest, *(spread.maximum for _, spread in points)])
        axis.errorbar(
            [size for size, _ in points],
            [spread.median for _, spread in points],
            yerr=[
                [spread.median - spread.minimum for _, spread in points],
                [spread.maximum - spread.median for _, spread in points],
            ],
            marker="o",
            markersize=4.5,
            linewidth=1.6,
            elinewidth=1,
            color=COLOURS[min(number, len(COLOURS) - 1)],
            label=period_title(period_steps),
        )
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
    # The same in all three, whoever has arrived.
    axis.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
    axis.set_ylim(0, 1.1 * largest or 1.0)
    axis.tick_params(axis="y", labelsize=8)
    name_axis(axis, title=title, label="examples in a worker's step")
