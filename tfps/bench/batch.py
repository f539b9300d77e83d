"""The batch per worker and the steps between two exchanges: speed, bytes, time to an accuracy.

A larger batch makes more examples per second of a step's fixed costs, and fewer, larger updates of
the same examples; more local steps make fewer exchanges, and workers that drift apart. Workers
exchange each by itself or all at once, at the same intervals. So neither speed nor accuracy alone
says what to take: the time to an accuracy does. The learning rate follows the batch by a rule,
since none that is fixed suits both ends of the sweep.

Pairs take turns, seed by seed. Each turn is a cluster and a chief of its own: the most memory that
a process has had does not shrink, and what workers keep between steps begins anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

import tfps
from tfps.bench.accuracy import GOAL, NEVER_S, curves_json, ends_s, goal_json, goal_s
from tfps.bench.batch_choice import Choice, Pair, choose
from tfps.bench.example_bytes import bytes_per_example, traffic_between
from tfps.bench.exchange import ASYNCHRONOUS, ELASTIC, KINDS, SYNCHRONOUS, Exchange, exchanges
from tfps.bench.images import LabelledImages, image_files
from tfps.bench.picture import BLUE, GREY, INK, draw_curve, legend_below, name_axis, picture
from tfps.bench.results import Bar, Case, Results, Spread
from tfps.bench.runner import Bench, Benchmark, TaskNumbers
from tfps.bench.settings import IMAGES, option
from tfps.bench.slow_input import SlowInput
from tfps.bench.table import Columns, case_table, spread_text
from tfps.bench.usage import peak_mib, steps_way

# Grey for exchanges at every step; the more local steps, the darker.
COLOURS = (GREY[1], BLUE[0], BLUE[1], "#0b4ea2")
LINES = {ASYNCHRONOUS: "solid", SYNCHRONOUS: "dashed", ELASTIC: "dotted"}


@dataclass(frozen=True)
class Batch(Benchmark):
    """Which batch per worker and which exchange: speed, bytes, memory, time to an accuracy.

    Trains a Fashion-MNIST classifier on two workers with each batch, whose workers exchange after
    1, 4 and 16 steps, each by itself or all at once, or elastically, and says which pair to take:
    20 minutes on two cores.
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
    kinds: tuple[str, ...] = option(
        KINDS,
        click.Choice(KINDS),
        "How workers exchange, elastic ones after the most steps; may be repeated.",
        flag="--exchange",
    )
    rule: str = option(  # of `tfps.optimizers.ScaledRate`
        "square_root",
        click.Choice(["square_root", "linear"]),
        "How the learning rate follows the batch.",
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
        names = ("workers", "batch_sizes", "periods", "kinds")
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
        return self.repetitions * len(self.batch_sizes) * len(self.exchanges)

    @property
    def exchanges(self) -> list[Exchange]:
        """With which each batch is trained."""
        return exchanges(self.kinds, self.periods)

    def run(self, bench: Bench) -> None:
        pairs = [(size, exchange) for size in self.batch_sizes for exchange in self.exchanges]
        with image_files(self.images) as paths:
            for seed in self.seeds:
                for size, exchange in pairs:
                    bench.progress(f"seed {seed}: batch {size}, {exchange.title}")
                    name = f"batch_{size}_{exchange.kind}_{exchange.period_steps}"
                    axes = {"batch_size": size, **asdict(exchange)}
                    with bench.cluster(self.workers, 1, name=name) as cluster:
                        case = {**axes, "seed": seed, **paths}
                        answer = bench.turn(cluster, name=name, case=case)
                    bench.results.add(answer, seed=seed, **axes)

    def rate(self, batch_size: int) -> Any:
        """The schedule of the learning rate for a batch; imports TensorFlow."""
        sizes = {"base_batch_size": self.base_batch_size, "batch_size": batch_size}
        return tfps.optimizers.ScaledRate(self.base_rate, rule=self.rule, **sizes)

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
        """Train one pair; the answer has speed, accuracy over time, bytes and workers' memory."""
        import keras

        from tfps.bench.classifier import Classifier
        from tfps.bench.watch import Watch

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

    def cases(self, results: Results) -> list[Case]:
        return [case for cases in self._by_exchange(results).values() for case in cases]

    def choice(self, results: Results) -> Choice:
        """The pair to take."""
        return choose([pair_of(case) for case in self.cases(results)])

    def quantities(self, results: Results, case: Case) -> dict[str, Any]:
        return {
            "learning_rate": round(case.run["learning_rate"], 7),
            "is_chosen": pair_of(case) == self.choice(results).pair,
            "examples_per_s": examples_per_s(case),
            "bytes_per_example": bytes_per_example(case),
            "memory_mib": case.spread("memory_mib"),
            "seconds_to_goal": goal_json(case),
            "cpu_ms_per_step": case.cpu_ms_per_step,
            "other_cores": round(case.other_cores, 2),
            "curves": curves_json(case),
        }

    def findings(self, results: Results) -> dict[str, Any]:
        taken = self.choice(results)
        found = {
            "batch_size": taken.pair and taken.pair.batch_size,
            "kind": taken.pair and taken.pair.exchange.kind,
            "period_steps": taken.pair and taken.pair.exchange.period_steps,
            "reason": taken.reason,
        }
        return {"choice": found}

    def bars(self, results: Results) -> list[Bar]:
        """What the choice gains over the usual pair, and local steps where steps are short."""
        usual = results.find(self.base_batch_size, ASYNCHRONOUS, 1)
        taken = self.choice(results).pair
        gain = None
        if usual is not None and taken is not None:
            # Who does not arrive does so at the very end: too kind to the usual pair.
            times_s = (min(goal_s(usual)[seed], ends_s(usual)[seed]) for seed in usual.runs)
            gain = taken.goal_s.median / Spread.of(times_s).median
        name = f"time to {GOAL:g}, the pair to take over batch {self.base_batch_size}, asynchronous"
        smallest, most = min(results.on("batch_size")), max(results.on("period_steps"))
        speed = None
        if most > 1:
            local, plain = ((smallest, ASYNCHRONOUS, steps) for steps in (most, 1))
            speed = results.ratio(local, plain, examples_per_s)
        title = f"batch {smallest}, examples/s, {most} local steps over asynchronous"
        return [Bar(name, gain, 1.0, is_cost=True), Bar(title, speed, 1.0)]

    def tables(self, results: Results) -> list[Table]:
        taken = self.choice(results).pair
        columns: Columns = {
            "examples/s": examples_per_s,
            "bytes per\nexample": lambda case: bytes_per_example(case).median,
            "MiB per\nworker": lambda case: case.spread("memory_mib").median,
            f"s to {GOAL:g}": _time_text,
            "": lambda case: "<-" if pair_of(case) == taken else "",
        }
        tables = []
        for exchange, cases in self._by_exchange(results).items():
            title = exchange.title
            names = [f"batch {case['batch_size']}" for case in cases]
            tables.append(case_table(title[0].upper() + title[1:], names, cases, columns))
        return tables

    def _by_exchange(self, results: Results) -> dict[Exchange, list[Case]]:
        cases: dict[Exchange, list[Case]] = {}
        order = sorted(results.cases, key=lambda c: (KINDS.index(c["kind"]), c["period_steps"]))
        for case in order:
            cases.setdefault(exchange_of(case), []).append(case)
        return {
            exchange: sorted(own, key=lambda case: case["batch_size"])
            for exchange, own in cases.items()
        }

    def explanation(self, results: Results) -> str:
        count = len(self.cases(results)[0].runs)
        return (
            f"Medians (minimum-maximum) of {count} seed{'s' if count > 1 else ''}. Memory: the "
            "most that a worker's process had at once, with the libraries. Bytes: parameters and "
            "gradients both ways, and what workers fetch when they begin. Seconds until a look "
            f"at the test accuracy saw {GOAL:g}; where a training missed it, how long it had, and "
            "how many did not miss it."
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
            "Memory of a worker, MiB": lambda case: case.spread("memory_mib"),
        }
        with picture(path, 2, 2, size=(10, 7.5)) as (figure, axes):
            for axis, (title, spread_of) in zip(axes.flat, panels.items(), strict=True):
                self._draw_by_batch(axis, results, spread_of)
                name_axis(axis, title=title, label="examples in a worker's step")
            pair, first = self.choice(results).pair, axes[0, 0]
            if pair is not None:
                ring = {"markersize": 15, "markerfacecolor": "none", "markeredgecolor": INK}
                first.plot(pair.batch_size, pair.goal_s.median, "o", label="to take", **ring)
            entries = len(first.get_legend_handles_labels()[1])
            legend_below(figure, first, entries=entries, columns=4)

    def _draw_by_batch(
        self, axis: Any, results: Results, spread_of: Callable[[Case], Spread]
    ) -> None:
        sizes = sorted(results.on("batch_size"))
        largest = 0.0
        periods = sorted(results.on("period_steps"))
        for exchange, cases in self._by_exchange(results).items():
            # Who has not arrived is not drawn; the table has it.
            points = [(case["batch_size"], spread_of(case)) for case in cases]
            arrived = {size: spread for size, spread in points if math.isfinite(spread.maximum)}
            largest = max([largest, *(spread.maximum for spread in arrived.values())])
            colour = COLOURS[min(periods.index(exchange.period_steps), len(COLOURS) - 1)]
            style = {"marker": "o", "markersize": 4.5, "label": exchange.title}
            style["linestyle"] = LINES[exchange.kind]
            draw_curve(axis, list(arrived), list(arrived.values()), colour=colour, **style)
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.minorticks_off()
        # The same in all of them, whoever has arrived.
        axis.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
        axis.set_ylim(0, 1.1 * largest or 1.0)
        axis.tick_params(axis="y", labelsize=8)


def from_first_step(
    curve: Sequence[tuple[float, float]], *, unseen_s: float
) -> list[tuple[float, float]]:
    """A curve whose times count from the first step, not from the first that the chief saw.

    By then some steps are done, of large batches and many local steps enough to learn much. They
    are taken to have been as fast as those that follow; the workers' pipelines, which are made
    before, take a time that says nothing about batches.

    >>> from_first_step([(0.0, 0.5), (1.0, 0.75)], unseen_s=0.25)
    [(0.25, 0.5), (1.25, 0.75)]
    """
    return [(at_s + unseen_s, accuracy) for at_s, accuracy in curve]


def examples_per_s(case: Case) -> Spread:
    """Of all workers together."""
    return case.spread_of_samples(lambda sample: case["batch_size"] * sample.steps_per_s)


def exchange_of(case: Case) -> Exchange:
    """How its workers exchanged."""
    return Exchange(case["kind"], case["period_steps"])


def pair_of(case: Case) -> Pair:
    """What the choice looks at."""
    spread = Spread.of(goal_s(case).values())
    return Pair(case["batch_size"], exchange_of(case), spread, case.spread("memory_mib"))


def _time_text(case: Case) -> str:
    times_s, ended_s = goal_s(case), ends_s(case)
    missed_s = [ended_s[seed] for seed, at_s in times_s.items() if at_s == NEVER_S]
    if not missed_s:
        return spread_text(Spread.of(times_s.values()))
    return f"> {min(missed_s):.0f}, {len(times_s) - len(missed_s)} of {len(times_s)}"
