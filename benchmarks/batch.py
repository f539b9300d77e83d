"""The batch per worker and the steps between two exchanges: speed, bytes, time to an accuracy.

Each turn is a cluster and a chief of its own: the most memory that a process has had does not
shrink, and what workers keep between steps begins anew. The learning rate follows the batch by a
rule, since none that is fixed suits both ends of the sweep.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import click
from rich.text import Text

import tfps
from benchmarks.accuracy import GOAL, NEVER_S, curves_json, ends_s, goal_json, goal_s
from benchmarks.batch_choice import Choice, Pair, choose
from benchmarks.benchmark import Benchmark, Order, grouped
from benchmarks.example_bytes import bytes_per_example, traffic_between
from benchmarks.exchange import ASYNCHRONOUS, ELASTIC, KINDS, SYNCHRONOUS, Exchange, exchanges
from benchmarks.images import LabelledImages, image_paths
from benchmarks.picture import BLUE, GREY, INK, draw_curves, legend_below, picture
from benchmarks.results import Bar, Case, Measure, Results, Spread, cpu_ms
from benchmarks.settings import IMAGES, choices, option
from benchmarks.slow_input import SlowInput
from benchmarks.table import middle, spread_text
from benchmarks.turn import TaskNumbers, Tasks, Turn
from benchmarks.usage import peak_mib, steps_way
from tfps.units import counted

# Grey for exchanges at every step; the more local steps, the darker.
COLOURS = (GREY[1], BLUE[0], BLUE[1], "#0b4ea2")
LINES = {ASYNCHRONOUS: "solid", SYNCHRONOUS: "dashed", ELASTIC: "dotted"}


@dataclass(frozen=True)
class Batch(Benchmark):
    """The best batch per worker and exchange: speed, bytes, memory, time to an accuracy.

    Trains a Fashion-MNIST classifier on two workers with each batch, whose workers exchange after
    1, 4 and 16 steps, each by itself or all at once, or elastically, and says which pair to take:
    20 minutes on two cores.
    """

    name = "batch"
    chooses = ("repetitions", "batch_sizes", "periods", "kinds")
    order: ClassVar[Order] = {"kind": KINDS, "period_steps": None, "batch_size": None}

    images: Path | None = field(default=None, metadata=IMAGES)
    batch_sizes: tuple[int, ...] = option(
        (16, 32, 64, 128, 256), "A worker's batch; may be repeated.", flag="--batch-size"
    )
    periods: tuple[int, ...] = option(
        (1, 4, 16), "Steps between two exchanges; may be repeated.", flag="--local-steps"
    )
    kinds: tuple[str, ...] = choices(
        KINDS, "Only this exchange; elastic ones come after the most steps.", flag="--exchange"
    )
    rule: str = option(  # of `tfps.schedules.ScaledLearningRate`
        "square_root",
        "How the learning rate follows the batch.",
        click.Choice(["square_root", "linear"]),
    )
    base_rate: float = 1e-3  # the learning rate of Adam at the base batch size
    base_batch_size: int = 64
    workers: int = 2
    train_s: float = 15.0  # after which a training ends that has not reached the accuracy
    least_s: float = 3.0  # how long one that has goes on, so that its speed can be told
    look_every_s: float = 0.2  # between two looks at the test accuracy

    def quick(self) -> Batch:
        return replace(
            self, batch_sizes=(64,), periods=(1, 16), repetitions=1, train_s=6.0, least_s=1.0
        )

    def as_json(self) -> dict[str, Any]:
        settings = super().as_json()
        names = ("base_rate", "base_batch_size", "rule")
        rate = {name.removesuffix("_rate"): settings.pop(name) for name in names}
        return {**settings, "rate": rate, "seeds": self.seeds}

    def plan(self, folder: Path) -> Iterator[Turn]:
        paths = image_paths(self.images, folder)
        every = exchanges(self.kinds, self.periods)
        for seed, size, exchange in itertools.product(self.seeds, self.batch_sizes, every):
            axes = {"batch_size": size, **asdict(exchange)}
            yield Turn(
                title=f"seed {seed}: batch {size}, {exchange.title}",
                name=f"batch_{size}_{exchange.kind}_{exchange.period_steps}",
                case={**axes, "seed": seed, **paths},
                axes=axes,
                seed=seed,
                tasks=Tasks(workers=self.workers, ps=1),
            )

    def rate(self, batch_size: int) -> Any:
        """Return the schedule of the learning rate for a batch; imports TensorFlow."""
        sizes = {"base_batch_size": self.base_batch_size, "batch_size": batch_size}
        return tfps.schedules.ScaledLearningRate(self.base_rate, rule=self.rule, **sizes)

    def measure(
        self,
        tasks: TaskNumbers,
        *,
        batch_size: int,
        kind: str,
        period_steps: int,
        seed: int,
        images_path: str,
        pixels_path: str,
    ) -> Any:
        """Train one pair; the result has speed, accuracy over time, bytes and workers' memory."""
        import keras

        from benchmarks.classifier import Classifier
        from benchmarks.watch import Watch

        data = LabelledImages.load(images_path)
        keras.utils.set_random_seed(seed)
        consistency = Exchange(kind, period_steps).mode(workers=self.workers)
        strategy = tfps.ParameterServerStrategy(consistency=consistency, batch_callbacks="sampled")
        rate = self.rate(batch_size)
        classifier = Classifier(strategy, lambda: keras.optimizers.Adam(rate))
        batches = SlowInput(pixels_path, data.labels, batch_size, None, seed)
        classifier.warm_up(batches.function())
        watch = Watch(
            strategy=strategy,
            clock=tasks.clock(),
            accuracy=classifier.accuracy_now(data),
            goal=GOAL,
            train_s=self.train_s,
            least_s=self.least_s,
            look_every_s=self.look_every_s,
        )
        drained = strategy.stats()
        classifier.restore(seed)
        classifier.train(batches.function(), callbacks=[watch])
        (sample,) = watch.clock.samples
        unseen_steps = sum(watch.before.worker_steps) - sum(drained.worker_steps)
        return {
            "learning_rate": rate.factor * rate.learning_rate,
            "samples": [asdict(sample)],
            "curve": from_first_step(watch.curve, unseen_s=unseen_steps / sample.steps_per_s),
            "memory_mib": max(peak_mib(number) for number in tasks.groups["worker"]),
            **traffic_between(drained, strategy.stats(), batch_size=batch_size),
            "details": steps_way(strategy),
        }

    def choice(self, results: Results) -> Choice:
        """Return the batch and the exchange that the results recommend."""
        return choose(list(map(pair_of, self.cases(results))))

    def measures(self, results: Results) -> list[Measure]:
        taken = self.choice(results).pair
        return [
            Measure("learning_rate", lambda case: round(case.run["learning_rate"], 7)),
            Measure("examples_per_s", examples_per_s, "examples/s"),
            Measure("bytes_per_example", bytes_per_example, "bytes per\nexample", middle),
            Measure("memory_mib", memory_mib, "MiB per\nworker", middle),
            Measure("", _time_text, f"s to {GOAL:g}"),
            Measure("is_chosen", lambda case: pair_of(case) == taken, "", _arrow),
            Measure("seconds_to_goal", goal_json),
            Measure("cpu_ms_per_step", cpu_ms),
            Measure("curves", curves_json),
        ]

    def findings(self, results: Results) -> dict[str, Any]:
        taken = self.choice(results)
        pair = taken.pair
        found = {
            "batch_size": pair and pair.batch_size,
            "kind": pair and pair.exchange.kind,
            "period_steps": pair and pair.exchange.period_steps,
            "reason": taken.reason,
        }
        return {"choice": found}

    def bars(self, results: Results) -> list[Bar]:
        """Compare the choice with the usual pair, and local steps with none at the least batch."""
        usual = results.find(self.base_batch_size, ASYNCHRONOUS, 1)
        taken = self.choice(results).pair
        gain = None
        if usual is not None and taken is not None:
            # A goal that is missed counts as reached at the end: too kind to the usual pair.
            times_s = (min(goal_s(usual)[seed], ends_s(usual)[seed]) for seed in usual.runs)
            gain = taken.goal_s.median / Spread.from_samples(times_s).median
        name = f"time to {GOAL:g}, the pair to take over batch {self.base_batch_size}, asynchronous"
        smallest, most = min(results.on("batch_size")), max(results.on("period_steps"))
        speed = None
        if most > 1:
            local, plain = ((smallest, ASYNCHRONOUS, steps) for steps in (most, 1))
            speed = results.ratio(local, plain, examples_per_s)
        title = f"batch {smallest}, examples/s, {most} local steps over asynchronous"
        return [Bar.cost(name, gain, 1.0), Bar(title, speed, 1.0)]

    def title_of(self, case: Case) -> str:
        return exchange_of(case).title.capitalize()

    def row_of(self, case: Case) -> str:
        return f"batch {case['batch_size']}"

    def explanation(self, results: Results) -> str:
        seeds = counted(len(self.cases(results)[0].runs), "seed")
        return (
            f"Medians (minimum-maximum) of {seeds}. Memory: the most that a worker's process had "
            "at once, with the libraries. Bytes: parameters and gradients both ways, and what "
            "workers fetch when they begin. Seconds until a look at the test accuracy saw "
            f"{GOAL:g}; where a training missed it, how long it had, and how many did not miss it."
        )

    def verdicts(self, results: Results) -> Sequence[Text]:
        taken = self.choice(results)
        title = "no pair" if taken.pair is None else taken.pair.title
        return [Text(f"Take {title}: {taken.reason}.", style="bold")]

    def draw(self, results: Results, path: Path) -> None:
        """Draw time to the accuracy, speed, bytes and memory over the batch."""
        panels: dict[str, Callable[[Case], Spread]] = {
            f"Seconds to {GOAL:g}": lambda case: pair_of(case).goal_s,
            "Examples per second": examples_per_s,
            "Bytes per example": bytes_per_example,
            "Memory of a worker, MiB": memory_mib,
        }
        sizes, periods = (sorted(results.on(axis)) for axis in ("batch_size", "period_steps"))
        curves = [
            (cases, _style(exchange, periods))
            for exchange, cases in grouped(self.cases(results), exchange_of).items()
        ]
        with picture(path, 2, 2, size=(10, 7.5)) as (figure, axes):
            for axis, (title, quantity) in zip(axes.flat, panels.items(), strict=True):
                axis.set_xscale("log", base=2)
                # A training that missed the goal is not drawn; the table has it.
                draw_curves(
                    axis,
                    curves,
                    over="batch_size",
                    quantity=quantity,
                    has_grid=False,
                    title=title,
                    label="examples in a worker's step",
                )
                # The same in all of them, whichever trainings have arrived, also if none has.
                axis.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
                axis.set_ylim(0, 1.1 * max(0.0, axis.dataLim.y1) or 1.0)
            pair, first = self.choice(results).pair, axes[0, 0]
            if pair is not None:
                ring = {"markersize": 15, "markerfacecolor": "none", "markeredgecolor": INK}
                first.plot(pair.batch_size, pair.goal_s.median, "o", label="to take", **ring)
            legend_below(figure, first, columns=4)


def _style(exchange: Exchange, periods: Sequence[int]) -> dict[str, Any]:
    """Return how the curve of an exchange is drawn, which has one of these numbers of steps."""
    colour = COLOURS[min(periods.index(exchange.period_steps), len(COLOURS) - 1)]
    style = {"colour": colour, "linestyle": LINES[exchange.kind], "label": exchange.title}
    return {**style, "marker": "o", "markersize": 4.5}


def from_first_step(
    curve: Sequence[tuple[float, float]], *, unseen_s: float
) -> list[tuple[float, float]]:
    """Return a curve whose times count from the first step, not from the first that the chief saw.

    By then some steps are done, of large batches and many local steps enough to learn much. They
    are taken to have been as fast as those that follow; the workers' pipelines, which are made
    before, take a time that says nothing about batches.

    >>> from_first_step([(0.0, 0.5), (1.0, 0.75)], unseen_s=0.25)
    [(0.25, 0.5), (1.25, 0.75)]
    """
    return [(at_s + unseen_s, accuracy) for at_s, accuracy in curve]


def examples_per_s(case: Case) -> Spread:
    """Return the examples per second of all workers together."""
    return case.spread_of_samples(lambda sample: case["batch_size"] * sample.steps_per_s)


def memory_mib(case: Case) -> Spread:
    """Return the memory of the worker that used the most."""
    return case.spread("memory_mib")


def exchange_of(case: Case) -> Exchange:
    """Return the kind and period of a case's exchanges."""
    return Exchange(case["kind"], case["period_steps"])


def pair_of(case: Case) -> Pair:
    """Return what the choice compares: the sizes, the time to the goal and the memory."""
    spread = Spread.from_samples(goal_s(case).values())
    return Pair(case["batch_size"], exchange_of(case), spread, memory_mib(case))


def _arrow(is_chosen: bool) -> str:
    return "<-" if is_chosen else ""


def _time_text(case: Case) -> str:
    times_s, ended_s = goal_s(case), ends_s(case)
    missed_s = [ended_s[seed] for seed, at_s in times_s.items() if at_s == NEVER_S]
    if not missed_s:
        return spread_text(Spread.from_samples(times_s.values()))
    return f"> {min(missed_s):.0f}, {len(times_s) - len(missed_s)} of {len(times_s)}"
