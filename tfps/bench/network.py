"""Training over links of a given rate: bytes, steps per second and CPU of each way to send less.

A chief, two workers and two servers have network namespaces of their own, joined by links that
carry 100 Mbit/s, 1 Gbit/s or as much as they can, each way. A turn trains one model in one way:
twice as many steps take so much longer than as many, and send so many more bytes, which leaves out
what joining costs. What a codec costs in accuracy is seen where nothing limits the links: the CNN
trains with each seed in every way, and how long links would take follows from the bytes.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from tfps.bench.network_accuracy import (
    ACCURACY,
    MB,
    SERVERS,
    STEPS,
    WORKERS,
    accuracy_gained,
    draw_trainings,
    training_quantities,
    training_table,
)
from tfps.bench.network_rows import (
    ACCOUNTING_AIM,
    ACCURACY_AIM,
    BOTH,
    BOTH_AIM,
    CODECS,
    CODING_AIM,
    FINE_TUNED,
    FINE_TUNING_AIM,
    MOST_STEPS,
    NETWORK_MODELS,
    RATES,
    SLOW_MBIT,
    SMALL,
    SMALL_AIM,
    SMALL_MODELS,
    STOCK,
    TRAINED,
    UNLIMITED,
    WAYS,
    is_usual,
)
from tfps.bench.network_steps import BATCH, LinkedSteps
from tfps.bench.picture import BLUE, draw_spread, legend_below, name_bars, picture
from tfps.bench.results import Bar, Case, Results
from tfps.bench.runner import Bench, Benchmark, TaskNumbers
from tfps.bench.settings import IMAGES, option
from tfps.bench.table import Columns, case_table
from tfps.bench.traffic import TrafficClock
from tfps.errors import ConfigError

WITHOUT_LINKS = (
    "This process may not make network namespaces (root and iproute2 are needed), so each task "
    "held back what it sent as a link of the rate would: nothing limits what it receives, what "
    "TensorFlow sends itself, or stock, which is left out. "
)


COLUMNS = 3  # of panels in the picture


@dataclass(frozen=True)
class NetworkBenchmark(Benchmark):
    """Bytes, steps per second, CPU and accuracy over links of 100 Mbit/s, 1 Gbit/s and any rate.

    Each task has a network namespace of its own, which needs root and iproute2; else tasks hold
    back what they send. About 40 minutes on two cores. On fast links some rows are left out, unless
    models or ways are named.
    """

    name = "network"
    chooses = ("repetitions", "rates", "models", "ways", "parts", "trainings")

    repetitions: int = option(1, click.IntRange(min=1), "Turns of each row.")
    parts: tuple[str, ...] = option(
        (STEPS, ACCURACY),
        click.Choice([STEPS, ACCURACY]),
        "Only this part; may be repeated.",
        flag="--part",
        default_text="",
    )
    rates: tuple[int, ...] = option(
        RATES,
        click.IntRange(min=0),
        "Mbit/s of each link, each way; 0 sets no limit. May be repeated.",
        flag="--rate",
    )
    models: tuple[str, ...] = option(
        tuple(NETWORK_MODELS),
        click.Choice(list(NETWORK_MODELS)),
        "Only this model; may be repeated.",
        flag="--model",
        default_text="",
    )
    ways: tuple[str, ...] = option(
        tuple(WAYS),
        click.Choice(list(WAYS)),
        "Only this way; may be repeated.",
        flag="--way",
        default_text="",
    )
    steps: int = option(30, click.IntRange(min=1), "At least so many are measured, of all workers.")
    epoch_s: float = 1.0  # at least, as long as there are not more steps than this:
    most_steps: int = 8000
    trainings: int = option(
        3, click.IntRange(min=1), "Seeds with which each way trains.", flag="--seeds"
    )
    looks: int = 10  # at the accuracy of a training
    look_steps: int = 150  # of all workers, from one to the next
    images: Path | None = field(default=None, metadata=IMAGES)

    def quick(self) -> NetworkBenchmark:
        ways = ("whole", "quantize_8", "everything", "changes")
        small = replace(self, rates=(1000,), models=("mlp", FINE_TUNED), ways=ways)
        return replace(small, steps=4, most_steps=4, trainings=2, looks=2, look_steps=4)

    @property
    def turns(self) -> int:
        return self.repetitions * len(self._rows) + len(self._trained)

    @property
    def _rows(self) -> list[tuple[int, str, str]]:
        """Each rate with each model and each way to train it."""
        if STEPS not in self.parts:
            return []
        is_named = set(self.models) != set(NETWORK_MODELS) or set(self.ways) != set(WAYS)
        return [
            (rate, model, way)
            for rate in self.rates
            for model in self.models
            for way in self.ways
            if model in WAYS[way].models and (is_named or is_usual(rate, model, way))
        ]

    @property
    def _trained(self) -> list[str]:
        """Ways that train to an accuracy."""
        if ACCURACY not in self.parts:
            return []
        return [way for way in self.ways if WAYS[way].over is not None]

    def run(self, bench: Bench) -> None:
        if "stock" in self.ways and importlib.util.find_spec("tf_keras") is None:
            raise ConfigError(
                "TensorFlow's own strategy trains only with tf_keras, which is not installed; "
                "install it: pip install 'tfps[bench]'",
                source="tfps bench network",
            )
        for rate, model, way in self._rows * self.repetitions:
            bench.progress(f"{link_title(rate)}: {_title(model)}, {WAYS[way].title}")
            found = bench.linked_turn(
                workers=WORKERS,
                ps=SERVERS,
                megabits_per_s=rate or None,
                name=f"{rate}-{model}-{way}",
                case={"model": model, "way": way, "is_limited": bool(rate)},
                environment=STOCK.environment if WAYS[way].is_stock else None,
            )
            if found is not None:  # else nothing holds back what TensorFlow sends
                bench.results.add(found, part=STEPS, rate=rate, model=model, way=way)
        for way in self._trained:
            bench.progress(f"trainings: {_title(TRAINED)}, {WAYS[way].title}")
            found = bench.linked_turn(
                workers=WORKERS,
                ps=SERVERS,
                megabits_per_s=None,
                name=f"trainings-{way}",
                case={"way": way, "seeds": list(range(1, self.trainings + 1))},
            )
            axes = {"part": ACCURACY, "rate": UNLIMITED, "model": TRAINED, "way": way}
            for seed, training in found["trainings"].items():
                answer = {**training, "details": found["details"]}
                bench.results.add(answer, seed=int(seed), **axes)

    def measure(
        self,
        tasks: TaskNumbers,
        *,
        way: str,
        has_links: bool,
        model: str = TRAINED,
        is_limited: bool = False,
        seeds: Sequence[int] = (),
    ) -> Any:
        """Train one model in one way: to an accuracy with each seed, or without seeds for steps."""
        if seeds:
            from tfps.bench.network_training import CountedTraining

            training = CountedTraining(WAYS[way], self.looks, self.look_steps, self.images)
            return training.answer(seeds, tasks.clock(by_role=False))
        if WAYS[way].is_stock and is_limited and not has_links:
            return None
        linked = LinkedSteps.of(way, model, TrafficClock(tasks), workers=WORKERS)
        return linked.measure(
            min(self.steps, MOST_STEPS.get(model, self.steps)),
            epoch_s=self.epoch_s,
            most_steps=self.most_steps,
            has_links=has_links,
        )

    def findings(self, results: Results) -> dict[str, Any]:
        return {"links": "namespaces" if _has_links(results) else "token buckets"}

    def quantities(self, results: Results, case: Case) -> dict[str, Any]:
        if case["part"] == ACCURACY:
            own = training_quantities(results, case)
        else:
            own = {
                name: case.run.get(name)
                for name in (
                    "up_bytes_per_step",
                    "down_bytes_per_step",
                    "socket_bytes_per_step",
                    "accounting",
                )
            }
        return {
            "steps_per_s": case.steps_per_s,
            "cpu_ms_per_step": case.cpu_ms_per_step,
            **own,
            "other_cores": round(case.other_cores, 2),
        }

    def bars(self, results: Results) -> list[Bar]:
        slow = link_title(SLOW_MBIT)
        bars = [
            Bar(
                f"{slow}, {_title(model)}: steps/s, {WAYS[way].title} over no codec",
                self._gain(results, SLOW_MBIT, model, way=way, over="whole"),
                aim,
            )
            for way, aim in ((SMALL, SMALL_AIM), (BOTH, BOTH_AIM))
            for model in SMALL_MODELS
        ]
        tuned = self._gain(results, SLOW_MBIT, FINE_TUNED, way="changes", over="everything")
        bars.append(
            Bar(f"{slow}, 90 % frozen: steps/s by only what changed", tuned, FINE_TUNING_AIM)
        )
        for way in (SMALL, BOTH):
            gained = accuracy_gained(results, way)
            name = f"final accuracy in points, {WAYS[way].title} minus no codec, low end of 95 %"
            low = None if gained is None else 100 * gained.low
            bars.append(Bar(name, low, -ACCURACY_AIM))
        free = [self._gain(results, UNLIMITED, TRAINED, way="whole", over=way) for way in CODECS]
        shares = [
            abs(case.run["accounting"] - 1)
            for case in results.of(part=STEPS)
            if case.run.get("accounting") is not None
        ]
        dearest = max((each for each in free if each is not None), default=None)
        name = (
            f"{link_title(UNLIMITED)}, {_title(TRAINED)}: a step with the dearest codec over none"
        )
        return [
            *bars,
            Bar(name, dearest, CODING_AIM, is_cost=True),
            Bar(
                "counted bytes apart from the sockets' own",
                max(shares, default=None),
                ACCOUNTING_AIM,
                is_cost=True,
            ),
        ]

    def _gain(
        self, results: Results, rate: int, model: str, *, way: str, over: str
    ) -> float | None:
        """Steps/s of a way over another's."""
        ours, theirs = ((STEPS, rate, model, each) for each in (way, over))
        return results.ratio(ours, theirs)

    def tables(self, results: Results) -> list[Table]:
        columns: Columns = {
            "steps/s": lambda case: case.steps_per_s,
            "CPU ms\n/ step": lambda case: case.cpu_ms_per_step.median,
            "MB up\n/ step": lambda case: _megabytes(case, "up_bytes_per_step"),
            "MB down\n/ step": lambda case: _megabytes(case, "down_bytes_per_step"),
            "MB of\nsockets": lambda case: _megabytes(case, "socket_bytes_per_step"),
        }
        tables = []
        for rate, model in itertools.product(results.on("rate"), results.on("model")):
            cases = results.of(part=STEPS, rate=rate, model=model)
            if cases:
                title = f"{link_title(rate)}: {_title(model)}"
                tables.append(case_table(title, _names(cases), cases, columns))
        if results.of(part=ACCURACY):
            tables.append(training_table(results))
        return tables

    def explanation(self, results: Results) -> str:
        links = "" if _has_links(results) else WITHOUT_LINKS
        return links + (
            f"{WORKERS} workers and {SERVERS} servers, Adam, batches of {BATCH}; a step is one "
            "worker's. Steps, CPU and bytes are those by which an epoch of twice as many steps "
            "exceeds one, so what a join costs is left out. Bytes up and down: "
            "stats().traffic; of sockets: what the system counts of the servers' TCP "
            "connections, both ways, TensorFlow's own among them. Trainings run without limit; "
            "at a rate their bytes take longer. Momentum there and SGD have plain SGD on the "
            "servers, and are compared with each other."
        )

    def draw(self, results: Results, path: Path) -> None:
        """Draw steps/s of each way at each rate, and what trainings reach by bytes and time."""
        model = TRAINED if results.of(part=STEPS, model=TRAINED) else results.cases[0]["model"]
        panels = {
            rate: cases
            for rate in results.on("rate")
            if (cases := results.of(part=STEPS, rate=rate, model=model))
        }
        trained = results.of(part=ACCURACY)
        rows = bool(panels) + bool(trained)
        longest = max(map(len, panels.values()), default=0)
        heights = [0.8 + 0.22 * longest] * bool(panels) + [3.4] * bool(trained)
        options = {"gridspec_kw": {"height_ratios": heights}}
        with picture(path, rows, COLUMNS, size=(13, 0.6 + sum(heights)), **options) as (
            figure,
            axes,
        ):
            for axis, (rate, cases) in zip(axes[0], panels.items(), strict=False):
                for place, case in enumerate(cases):
                    draw_spread(axis, place, case.steps_per_s, colour=BLUE[1], height=0.6)
                title = f"{link_title(rate)}: {_title(model)}"
                name_bars(axis, _names(cases), margin=0.25, title=title, label="steps/s")
            for axis in axes[0][len(panels) :] if panels else ():
                axis.remove()
            if trained:
                draw_trainings(axes[-1], trained)
                legend_below(figure, axes[-1][0], entries=len(trained), columns=5)


def _has_links(results: Results) -> bool:
    return all(run.get("has_links", True) for case in results.cases for run in case.runs.values())


def _names(cases: Iterable[Case]) -> list[str]:
    return [WAYS[case["way"]].title for case in cases]


def _megabytes(case: Case, name: str) -> float | None:
    value = case.run.get(name)
    return None if value is None else value / MB


def link_title(rate: int) -> str:
    """How a rate is called."""
    return f"{rate} Mbit/s" if rate else "no limit"


def _title(model: str) -> str:
    return NETWORK_MODELS[model].title
