"""Embedding tables: steps per second, CPU and bytes, by their number and by how ids are spread.

A turn trains in one way on every number of tables, with ids of each kind. Bytes are the system's
own count of the servers' connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import click

from benchmarks import embedding_rows as ways
from benchmarks.benchmark import Benchmark, Order, grouped
from benchmarks.categories import FEATURES, IDS, ROW_BYTES, TableModel, distinct_rows
from benchmarks.embedding_rows import LONGEST, MANY_TABLES, ROWS, SERVERS, SINGLE
from benchmarks.picture import BLUE, DEEP, GREY, INK, draw_curves, legend_below, picture
from benchmarks.results import Bar, Case, Measure, Results, Spread, cpu_ms, rate
from benchmarks.settings import choices, option
from benchmarks.table import middle, ratio_text
from benchmarks.traffic import TrafficClock
from benchmarks.training import measured_epochs
from benchmarks.turn import TaskNumbers, Tasks, Turn
from benchmarks.usage import steps_way
from tfps.units import counted

STYLES: Mapping[tuple[str, int], Mapping[str, Any]] = {
    (SINGLE, LONGEST): {"colour": INK, "linestyle": ":"},
    ("stock_divided", 1): {"colour": GREY[0], "linestyle": "--"},
    ("stock_divided", LONGEST): {"colour": GREY[0]},
    ("stock_whole", 1): {"colour": GREY[1], "linestyle": "--"},
    ("stock_whole", LONGEST): {"colour": GREY[1]},
    ("tfps_loop", 1): {"colour": BLUE[1], "linestyle": "--"},
    ("tfps_loop", LONGEST): {"colour": BLUE[1]},
    ("tfps_fit", 1): {"colour": DEEP},
    (ways.OVER_TCP, LONGEST): {"colour": BLUE[0]},
}


@dataclass(frozen=True)
class Embeddings(Benchmark):
    """Steps per second, CPU and bytes of embedding tables, by their number.

    One model in 1, 8 and 26 tables, against TensorFlow's strategy and a single process: about 12
    minutes on two cores.
    """

    name = "embedding"
    chooses = ("repetitions", "workers")
    needs_tf_keras = True
    order: ClassVar[Order] = {
        "workers": None,
        "ids": IDS,
        "tables": None,
        "row": ROWS,
        "steps_per_execution": None,
    }

    # A turn measures every number of tables, in several epochs.
    repetitions: int = option(1, "Turns of each row.")
    table_counts: tuple[int, ...] = option(
        (1, 8, MANY_TABLES),
        "Number of tables; may be repeated.",
        click.IntRange(1, FEATURES),
        flag="--tables",
    )
    workers: tuple[int, ...] = choices((1, 2), "Only this number of workers.")
    ids: tuple[str, ...] = choices(IDS, "Only ids spread so.")
    rows: int = 50_000  # of each feature
    batch_size: int = 1024
    epochs: int = 3  # measured ones in a turn
    epoch_s: float = 0.7

    def quick(self) -> Embeddings:
        return replace(self, table_counts=(2,), rows=20_000, repetitions=1, epochs=1, epoch_s=0.1)

    def plan(self, folder: Path) -> Iterator[Turn]:
        for workers in self.workers:
            for row in ways.rows_with(workers) * self.repetitions:
                yield Turn(
                    title=f"{counted(workers, 'worker')}: {ROWS[row].title}",
                    name=row,
                    case={"workers": workers, "row": row},
                    tasks=None if row == SINGLE else Tasks(workers=workers, ps=SERVERS),
                    environment=ROWS[row].environment,
                )

    def take(self, results: Results, turn: Turn, result: Any) -> None:
        """Add what was measured of each number of tables and kind of ids."""
        for each in result:
            results.add(each, **turn.case, **each["place"])

    def measure(self, tasks: TaskNumbers, *, workers: int, row: str) -> Any:
        """Train in one way: each number of tables, with ids of each kind."""
        way, found = ROWS[row], []
        strategy = way.begin()
        for tables in self.table_counts:
            model = TableModel(tables, self.rows)
            for length in ways.LENGTHS[row]:
                trained_on = way.prepare(strategy, model, length)
                for ids in self.ids:
                    examples = model.examples(ids, batch_size=self.batch_size)
                    clock = measured_epochs(
                        trained_on(examples),
                        partial(TrafficClock, tasks),
                        unit_steps=LONGEST * workers,
                        epochs=self.epochs,
                        epoch_s=self.epoch_s,
                    )
                    place = {"tables": tables, "ids": ids, "steps_per_execution": length}
                    least_bytes = 2 * ROW_BYTES * distinct_rows(examples, model)
                    measured = {"place": place, "least_bytes": least_bytes}
                    found.append(measured | _epoch_measurements(strategy, clock))
        return found

    def measures(self, results: Results) -> list[Measure]:
        return [
            Measure("", lambda case: str(case["steps_per_execution"]), "per\nexec."),
            Measure("steps_per_s", rate, "steps/s"),
            Measure("ratio_to_stock", partial(ratio, results), "vs.\nstock", ratio_text),
            Measure("cpu_ms_per_step", cpu_ms, "CPU ms\n/ step", middle),
            Measure("bytes_per_step", bytes_per_step),
            Measure("bytes_over_rows", bytes_over_rows, "bytes\n/ rows'", ratio_text),
            Measure("imbalance", imbalance, "imba-\nlance", ratio_text),
        ]

    def bars(self, results: Results) -> list[Bar]:
        cases = results.select(row=ways.OVER_TCP, tables=MANY_TABLES)
        skewed = [case for case in cases if case["ids"] == "power_law"]
        title = f"{MANY_TABLES} tables: bytes"
        busiest = f"{title} of the busiest server over the mean, {IDS['power_law']}"
        over = _worst(max, map(bytes_over_rows, cases))
        return [
            *(bar for workers in self.workers for bar in _bars_with(results, workers)),
            Bar.cost(f"{title} over those of rows", over, ways.BYTES_AIM),
            Bar.cost(busiest, _worst(max, map(imbalance, skewed)), ways.IMBALANCE_AIM),
        ]

    def title_of(self, case: Case) -> str:
        tables, workers = counted(case["tables"], "table"), counted(case["workers"], "worker")
        return f"{tables}, {workers} + {SERVERS} ps, {IDS[case['ids']]}"

    def row_of(self, case: Case) -> str:
        return ROWS[case["row"]].title

    def explanation(self, results: Results) -> str:
        return (
            f"Medians (minimum-maximum). {ways.LEGEND} vs. stock: over the better of stock's ways "
            "at that length. Bytes: what the servers' TCP connections carried, over the bytes of a "
            "step's distinct rows both ways. Imbalance: bytes of the busiest server over the mean. "
            "On one machine tfps's own transport takes unix sockets, whose bytes the system does "
            "not count, so one row takes TCP."
        )

    def draw(self, results: Results, path: Path) -> None:
        """Draw steps/s above CPU per step, by the number of tables."""
        panels = grouped(self.cases(results), lambda case: (case["workers"], case["ids"]))
        with picture(path, 2, len(panels), size=(1.6 + 3.4 * len(panels), 7.6)) as (figure, axes):
            for ((workers, ids), cases), rates, costs in zip(panels.items(), *axes, strict=True):
                curves, over = _curves(cases), "tables"
                title = f"Steps/s: {counted(workers, 'worker')}, {IDS[ids]}"
                label = "tables; above is better"
                draw_curves(rates, curves, over=over, quantity=rate, title=title, label=label)
                title, label = "CPU ms per step, all processes", "tables; below is better"
                draw_curves(costs, curves, over=over, quantity=cpu_ms, title=title, label=label)
            for axis in axes.flat:
                axis.set_ylim(bottom=0)
            legend_below(figure, axes[0, 0], columns=5, has_spreads=True)


def _epoch_measurements(strategy: Any, clock: TrafficClock) -> dict[str, Any]:
    """Return the measurements of each epoch; bytes are those of a step, by server."""
    samples = clock.samples[1:]
    carried = zip(clock.server_bytes[1:], samples, strict=True)
    return {
        "samples": list(map(asdict, samples)),
        "server_bytes": [[count / sample.steps for count in counts] for counts, sample in carried],
        "details": steps_way(strategy),
    }


def _curves(cases: Iterable[Case]) -> list[tuple[list[Case], dict[str, Any]]]:
    """Return the cases of each row and length, and how they are drawn."""
    found = grouped(cases, lambda case: (case["row"], case["steps_per_execution"]))
    curves = []
    for (row, length), style in STYLES.items():
        label = f"{ROWS[row].title}, {length} per execution"
        options = {"marker": "o", "markersize": 4, "label": label, **style}
        curves.append((found.get((row, length), []), options))
    return curves


def _bars_with(results: Results, workers: int) -> Iterator[Bar]:
    """Against TensorFlow's own strategy, and with one table: the worse of both kinds of ids."""
    title = f"{MANY_TABLES} tables, {counted(workers, 'worker')}"
    for aim in ways.AIMS:
        length = aim.steps_per_execution
        place = {"workers": workers, "row": aim.row, "tables": MANY_TABLES}
        cases = results.select(**place, steps_per_execution=length)
        rates = [ratio(results, case) for case in cases]
        costs = [ratio(results, case, cpu_ms) for case in cases]
        what = f"{ROWS[aim.row].title} over stock's loop, {length} per execution"
        yield Bar(f"{title}: {what}", _worst(min, rates), aim.rate)
        yield Bar.cost(f"{title}: CPU per step of {what}", _worst(max, costs), aim.cpu)
    one, many = ((workers, "tfps_loop", tables) for tables in (1, MANY_TABLES))
    times = [results.ratio((*one, ids, LONGEST), (*many, ids, LONGEST)) for ids in IDS]
    name = f"{title}: time of a step over one table's, {LONGEST} per execution"
    yield Bar.cost(name, _worst(max, times), ways.MANY_OVER_ONE_AIM)


def ratio(results: Results, case: Case, quantity: Callable[[Case], Spread] = rate) -> float | None:
    """Return a quantity's median, divided by the median of the faster way of stock TensorFlow."""
    places = [tuple({**case.axes, "row": row}.values()) for row in ways.STOCK]
    measured = [found for place in places if (found := results.find(*place)) is not None]
    if not measured or case["row"] == SINGLE:
        return None
    best = max(measured, key=lambda found: found.steps_per_s.median)
    return quantity(case).median / quantity(best).median


def _epochs_bytes(case: Case) -> list[list[float]]:
    """Return a step's bytes by epoch and server, for rows whose bytes all go through TCP."""
    if case["row"] not in (*ways.STOCK, ways.OVER_TCP):
        return []
    return [counts for run in case.runs.values() for counts in run["server_bytes"] if counts]


def bytes_per_step(case: Case) -> Spread | None:
    """Return the bytes of a step on the connections of all servers, both ways."""
    epochs = _epochs_bytes(case)
    return Spread.from_samples(map(sum, epochs)) if epochs else None


def bytes_over_rows(case: Case) -> float | None:
    """Divide `bytes_per_step` by the bytes of the step's distinct rows, both ways."""
    carried = bytes_per_step(case)
    return None if carried is None else carried.median / case.run["least_bytes"]


def imbalance(case: Case) -> float | None:
    """Return bytes of the busiest server over the mean of all."""
    epochs = _epochs_bytes(case)
    if not epochs:
        return None
    totals = [sum(counts) for counts in zip(*epochs, strict=True)]
    return max(totals) * len(totals) / sum(totals)


def _worst(choose: Callable[..., float], values: Iterable[float | None]) -> float | None:
    """Return the worst measured value, or None."""
    return choose((value for value in values if value is not None), default=None)
