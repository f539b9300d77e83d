"""Training over links of a given rate: bytes, steps per second and CPU of each way to send less.

A chief, two workers and two servers have network namespaces of their own, joined by links that
carry 100 Mbit/s, 1 Gbit/s or as much as they can, each way. A turn trains one model in one way:
twice as many steps take so much longer than as many, and send so many more bytes, which leaves out
what joining costs.
"""

from __future__ import annotations

import importlib.util
import itertools
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

import tfps
from tfps.bench.examples import Examples
from tfps.bench.network_rows import (
    ACCOUNTING_AIM,
    FINE_TUNING_AIM,
    NETWORK_MODELS,
    SLOW_MBIT,
    STOCK,
    WAYS,
)
from tfps.bench.picture import BLUE, draw_spread, name_bars, picture
from tfps.bench.results import Bar, Case, Results
from tfps.bench.runner import Bench, Benchmark, TaskNumbers
from tfps.bench.settings import option
from tfps.bench.table import Columns, case_table
from tfps.bench.traffic import TrafficClock
from tfps.bench.training import Epochs
from tfps.bench.usage import EpochClock, Sample, clock_callback, steps_way
from tfps.bench.workload import Model
from tfps.errors import ConfigError

WORKERS, SERVERS = 2, 2
UNLIMITED = 0  # in the place of a rate
EXAMPLES, BATCH = 2048, 64
WITHOUT_LINKS = (
    "This process may not make network namespaces (root and iproute2 are needed), so each task "
    "held back what it sent as a link of the rate would: nothing limits what it receives, what "
    "TensorFlow sends itself, or stock, which is left out. "
)
MB = 1e6


@dataclass(frozen=True)
class NetworkBenchmark(Benchmark):
    """Bytes, steps per second and CPU over links of 100 Mbit/s, 1 Gbit/s and without a limit.

    Each task has a network namespace of its own, which needs root and iproute2; else tasks hold
    back what they send. About 40 minutes on two cores.
    """

    name = "network"
    chooses = ("repetitions", "rates", "models", "ways")

    repetitions: int = option(1, click.IntRange(min=1), "Turns of each row.")
    rates: tuple[int, ...] = option(
        (SLOW_MBIT, 1000, UNLIMITED),
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

    def quick(self) -> NetworkBenchmark:
        ways = ("whole", "everything", "changes")
        return replace(
            self, rates=(1000,), models=("mlp", "fine_tuned"), ways=ways, steps=4, most_steps=4
        )

    @property
    def turns(self) -> int:
        return self.repetitions * len(self.rates) * len(self._rows)

    @property
    def _rows(self) -> list[tuple[str, str]]:
        """Each model with each way to train it."""
        return [(m, way) for m in self.models for way in self.ways if m in WAYS[way].models]

    def run(self, bench: Bench) -> None:
        if "stock" in self.ways and importlib.util.find_spec("tf_keras") is None:
            raise ConfigError(
                "TensorFlow's own strategy trains only with tf_keras, which is not installed; "
                "install it: pip install 'tfps[bench]'",
                source="tfps bench network",
            )
        for rate in self.rates:
            for model, way in self._rows * self.repetitions:
                bench.progress(f"{link_title(rate)}: {_title(model)}, {WAYS[way].title}")
                found = bench.linked_turn(
                    workers=WORKERS,
                    ps=SERVERS,
                    megabits_per_s=rate or None,
                    name=f"{rate}-{model}-{way}",
                    case={"model": model, "way": way, "is_limited": bool(rate)},
                    environment=STOCK.environment if WAYS[way].is_stock else None,
                )
                if found is None:
                    continue  # nothing holds back what TensorFlow sends
                bench.results.add(found, rate=rate, model=model, way=way)

    def measure(
        self, tasks: TaskNumbers, *, model: str, way: str, is_limited: bool, has_links: bool
    ) -> Any:
        """Train one model in one way, for as many steps and for twice as many."""
        chosen, clock = WAYS[way], TrafficClock(tasks)
        if chosen.is_stock and is_limited and not has_links:
            return None
        unit = chosen.period_steps * WORKERS
        steps = -(-self.steps // unit) * unit
        with chosen.around():
            strategy: Any = STOCK.begin() if chosen.is_stock else _strategy(way)
            train = _stock(strategy, model) if chosen.is_stock else _fit(strategy, model)
            train(1, unit, clock)  # functions are traced, and connections open
            while True:
                counted = [_counted(strategy)]
                for count in (steps, 2 * steps):
                    train(1, count, clock)
                    counted.append(_counted(strategy))
                sample = difference(*clock.samples[-2:])
                # Less is lost in what begins and ends an epoch.
                if sample.seconds >= self.epoch_s or 4 * steps > self.most_steps:
                    break
                steps *= 4
        answer: dict[str, Any] = {"samples": [asdict(sample)], "details": _details(strategy)}
        answer["has_links"] = has_links
        sockets = [sum(counts) for counts in clock.server_bytes[-2:] if counts]
        if has_links and len(sockets) == 2:
            answer["socket_bytes_per_step"] = (sockets[1] - sockets[0]) / steps
        if counted[-1]:
            first, second = (
                [now - before for now, before in zip(after, earlier, strict=True)]
                for earlier, after in itertools.pairwise(counted)
            )
            up, down = ((b - a) / steps for a, b in zip(first, second, strict=True))
            answer |= {"up_bytes_per_step": up, "down_bytes_per_step": down}
            if has_links and sockets:
                answer["accounting"] = (sum(first) + sum(second)) / sum(sockets)
        return answer

    def findings(self, results: Results) -> dict[str, Any]:
        return {"links": "namespaces" if _has_links(results) else "token buckets"}

    def quantities(self, results: Results, case: Case) -> dict[str, Any]:
        return {
            "steps_per_s": case.steps_per_s,
            "cpu_ms_per_step": case.cpu_ms_per_step,
            **{
                name: case.run.get(name)
                for name in (
                    "up_bytes_per_step",
                    "down_bytes_per_step",
                    "socket_bytes_per_step",
                    "accounting",
                )
            },
            "other_cores": round(case.other_cores, 2),
        }

    def bars(self, results: Results) -> list[Bar]:
        changes, everything = ((SLOW_MBIT, "fine_tuned", way) for way in ("changes", "everything"))
        shares = [
            abs(case.run["accounting"] - 1)
            for case in results.of(rate=SLOW_MBIT)
            if case.run.get("accounting") is not None
        ]
        return [
            Bar(
                f"{link_title(SLOW_MBIT)}, 90 % frozen: steps/s by only what changed",
                results.ratio(changes, everything),
                FINE_TUNING_AIM,
            ),
            Bar(
                "counted bytes apart from the sockets' own",
                max(shares, default=None),
                ACCOUNTING_AIM,
                is_cost=True,
            ),
        ]

    def tables(self, results: Results) -> list[Table]:
        columns: Columns = {
            "steps/s": lambda case: case.steps_per_s,
            "CPU ms\n/ step": lambda case: case.cpu_ms_per_step.median,
            "MB up\n/ step": lambda case: _megabytes(case, "up_bytes_per_step"),
            "MB down\n/ step": lambda case: _megabytes(case, "down_bytes_per_step"),
            "MB of\nsockets": lambda case: _megabytes(case, "socket_bytes_per_step"),
        }
        tables = []
        for rate in results.on("rate"):
            for model in results.on("model"):
                cases = results.of(rate=rate, model=model)
                names = [WAYS[case["way"]].title for case in cases]
                tables.append(
                    case_table(f"{link_title(rate)}: {_title(model)}", names, cases, columns)
                )
        return tables

    def explanation(self, results: Results) -> str:
        links = "" if _has_links(results) else WITHOUT_LINKS
        return links + (
            f"{WORKERS} workers and {SERVERS} servers, Adam, batches of {BATCH}; a step is one "
            "worker's. Steps, CPU and bytes are those by which an epoch of twice as many steps "
            "exceeds one, so what a join costs is left out. Bytes up and down: "
            "stats().traffic; of sockets: what the system counts of the servers' TCP "
            "connections, both ways, TensorFlow's own among them."
        )

    def draw(self, results: Results, path: Path) -> None:
        """Draw steps/s of each way: a column of panels for each model, a row for each rate."""
        rates, models = results.on("rate"), results.on("model")
        size = (max(7.0, 4.6 * len(models)), 1.0 + 2.2 * len(rates))
        with picture(path, len(rates), len(models), size=size) as (_, axes):
            for rate, row in zip(rates, axes, strict=True):
                for model, axis in zip(models, row, strict=True):
                    cases = results.of(rate=rate, model=model)
                    for place, case in enumerate(cases):
                        draw_spread(axis, place, case.steps_per_s, colour=BLUE[1], height=0.6)
                    names = [WAYS[case["way"]].title for case in cases]
                    title = f"{link_title(rate)}: {_title(model)}"
                    name_bars(axis, names, margin=0.25, title=title, label="steps/s")


def difference(short: Sample, long: Sample) -> Sample:
    """By what an epoch of twice as many steps exceeds one.

    Half of it, where a busy machine has let it end sooner: nothing lasts less than no time.
    """
    seconds = long.seconds - short.seconds
    if seconds <= 0 or long.cpu_seconds <= short.cpu_seconds:
        cpu_s, others_s = long.cpu_seconds / 2, long.other_cpu_seconds / 2
        return Sample(short.steps, long.seconds / 2, cpu_s, others_s)
    others_s = max(0.0, long.other_cpu_seconds - short.other_cpu_seconds)
    return Sample(short.steps, seconds, long.cpu_seconds - short.cpu_seconds, others_s)


def _has_links(results: Results) -> bool:
    return all(run["has_links"] for case in results.cases for run in case.runs.values())


def _strategy(way: str) -> Any:
    return tfps.ParameterServerStrategy(**WAYS[way].options())


def _examples() -> Examples:
    random = np.random.default_rng(0)
    inputs = random.random((EXAMPLES, 28, 28), np.float32)
    return Examples(inputs, random.integers(0, 10, EXAMPLES).astype(np.int32), BATCH)


def _fit(strategy: Any, name: str) -> Epochs:
    """`fit` on an endless dataset that each worker makes, so that no example travels."""
    import keras

    model: Model = NETWORK_MODELS[name]
    with strategy.scope():
        built = model.compiled(keras, model.optimizer(keras))
    data = _examples().dataset_function()

    def run(epochs: int, steps: int, clock: EpochClock) -> None:
        callbacks = [clock_callback(keras, clock, steps)]
        built.fit(data, epochs=epochs, steps_per_epoch=steps, verbose=0, callbacks=callbacks)

    return run


def _stock(strategy: Any, name: str) -> Epochs:
    return STOCK.prepare(strategy, NETWORK_MODELS[name], 1)(_examples())


def _counted(strategy: Any) -> list[int]:
    """The bytes up and down that all servers have counted; none of TensorFlow's own strategy."""
    if not isinstance(strategy, tfps.ParameterServerStrategy):
        return []
    traffic = strategy.stats().traffic
    return [
        sum(each.sent_bytes for each in traffic if each.direction == direction)
        for direction in ("up", "down")
    ]


def _details(strategy: Any) -> dict[str, Any]:
    return steps_way(strategy) if isinstance(strategy, tfps.ParameterServerStrategy) else {}


def _megabytes(case: Case, name: str) -> float | None:
    value = case.run.get(name)
    return None if value is None else value / MB


def link_title(rate: int) -> str:
    """How a rate is called."""
    return f"{rate} Mbit/s" if rate else "no limit"


def _title(model: str) -> str:
    return NETWORK_MODELS[model].title
