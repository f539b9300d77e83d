"""Embedding tables: steps per second, CPU and bytes, by their number and by how ids are spread.

A model asks for the rows of 26 features, which lie in one table or in as many as there are
features, so every number of tables has the same rows. Ways take turns; every turn is a fresh
cluster and a fresh chief process. Bytes are the system's own count of the servers' connections.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.table import Table

import tfps
from tfps.bench.categories import FEATURES, IDS, ROW_BYTES, TableModel, distinct_rows
from tfps.bench.embedding_rows import (
    AIMS,
    BYTES_AIM,
    IMBALANCE_AIM,
    LEGEND,
    LENGTHS,
    LONGEST,
    MANY_OVER_ONE_AIM,
    MANY_TABLES,
    OVER_TCP,
    ROWS,
    SERVERS,
    SINGLE,
    STOCK,
    rows_with,
)
from tfps.bench.picture import BLUE, DEEP, GREY, INK, draw_curve, legend_below, name_axis, picture
from tfps.bench.results import Bar, Case, Results, Spread
from tfps.bench.runner import Bench, Benchmark, TaskNumbers
from tfps.bench.settings import option
from tfps.bench.table import Columns, case_table, ratio_text
from tfps.bench.traffic import TrafficClock
from tfps.bench.training import measured_epochs
from tfps.bench.usage import steps_way
from tfps.errors import ConfigError

STYLES: Mapping[tuple[str, int], Mapping[str, Any]] = {
    (SINGLE, LONGEST): {"colour": INK, "linestyle": ":"},
    ("stock_divided", 1): {"colour": GREY[0], "linestyle": "--"},
    ("stock_divided", LONGEST): {"colour": GREY[0]},
    ("stock_whole", 1): {"colour": GREY[1], "linestyle": "--"},
    ("stock_whole", LONGEST): {"colour": GREY[1]},
    ("tfps_loop", 1): {"colour": BLUE[1], "linestyle": "--"},
    ("tfps_loop", LONGEST): {"colour": BLUE[1]},
    ("tfps_fit", 1): {"colour": DEEP},
    (OVER_TCP, LONGEST): {"colour": BLUE[0]},
}


@dataclass(frozen=True)
class Embeddings(Benchmark):
    """Steps per second, CPU and bytes of embedding tables, by their number.

    One model in 1, 8 and 26 tables, against TensorFlow's strategy and a single process: about 12
    minutes on two cores.
    """

    name = "embedding"

    # A turn measures every number of tables, in several epochs.
    repetitions: int = option(1, click.IntRange(min=1), "Turns of each row.")
    table_counts: tuple[int, ...] = option(
        (1, 8, MANY_TABLES),
        click.IntRange(1, FEATURES),
        "Number of tables; may be repeated.",
        flag="--tables",
    )
    workers: tuple[int, ...] = option(
        (1, 2), click.IntRange(1, 2), "Only so many workers.", default_text=""
    )
    ids: tuple[str, ...] = option(
        tuple(IDS), click.Choice(list(IDS)), "Only ids spread so.", default_text=""
    )
    rows: int = 50_000  # of each feature
    batch_size: int = 1024
    epochs: int = 3  # measured ones in a turn
    epoch_s: float = 0.7

    def quick(self) -> Embeddings:
        return replace(self, table_counts=(2,), rows=20_000, repetitions=1, epochs=1, epoch_s=0.1)

    @property
    def turns(self) -> int:
        return self.repetitions * sum(len(rows_with(workers)) for workers in self.workers)

    def run(self, bench: Bench) -> None:
        if importlib.util.find_spec("tf_keras") is None:
            raise ConfigError(
                "TensorFlow's own strategy trains only with tf_keras, which is not installed; "
                "install it: pip install 'tfps[bench]'",
                source="tfps bench embedding",
            )
        for workers in self.workers:
            for row in rows_with(workers) * self.repetitions:
                bench.progress(f"{_workers(workers)}: {ROWS[row].title}")
                with bench.cluster(workers, SERVERS) as cluster:
                    found = bench.turn(
                        cluster,
                        name=row,
                        case={"row": row, "workers": workers},
                        needs_cluster=row != SINGLE,
                        environment=ROWS[row].environment,
                    )
                for each in found:
                    place = {"workers": workers, "row": row, **each.pop("place")}
                    bench.results.add(each, **place)

    def measure(self, tasks: TaskNumbers, *, row: str, workers: int) -> Any:
        """Train in one way: each number of tables, with ids of each kind."""
        if row == SINGLE:
            tasks = TaskNumbers({})
        way = ROWS[row]
        strategy, found = way.begin(), []
        make_clock = partial(TrafficClock, tasks)
        for tables in self.table_counts:
            model = TableModel(tables, self.rows)
            for length in LENGTHS[row]:
                trained_on = way.prepare(strategy, model, length)
                for ids in self.ids:
                    examples = model.examples(ids, batch_size=self.batch_size)
                    clock = measured_epochs(
                        trained_on(examples),
                        make_clock,
                        unit_steps=LONGEST * workers,
                        epochs=self.epochs,
                        epoch_s=self.epoch_s,
                    )
                    place = {"tables": tables, "ids": ids, "steps_per_execution": length}
                    samples = [asdict(sample) for sample in clock.samples[1:]]
                    found.append(
                        {
                            "place": place,
                            "samples": samples,
                            "least_bytes": 2 * ROW_BYTES * distinct_rows(examples, model),
                            "server_bytes": [
                                [each / sample["steps"] for each in counts]
                                for counts, sample in zip(
                                    clock.server_bytes[1:], samples, strict=True
                                )
                            ],
                            "details": _details(strategy),
                        }
                    )
        return found

    def cases(self, results: Results) -> list[Case]:
        return [case for cases in by_place(results).values() for case in cases]

    def quantities(self, results: Results, case: Case) -> dict[str, Any]:
        return {
            "steps_per_s": case.steps_per_s,
            "cpu_ms_per_step": case.cpu_ms_per_step,
            "ratio_to_stock": ratio(results, case),
            "bytes_per_step": bytes_per_step(case),
            "bytes_over_rows": bytes_over_rows(case),
            "imbalance": imbalance(case),
            "other_cores": round(case.other_cores, 2),
        }

    def bars(self, results: Results) -> list[Bar]:
        return [
            *(bar for workers in self.workers for bar in self._bars_with(results, workers)),
            *self._bars_of_bytes(results),
        ]

    def _bars_with(self, results: Results, workers: int) -> list[Bar]:
        """Against TensorFlow's own strategy, and with one table: the worse of both kinds of ids."""
        title = f"{MANY_TABLES} tables, {_workers(workers)}"
        bars = []
        for aim in AIMS:
            length = aim.steps_per_execution
            place = {"workers": workers, "row": aim.row, "tables": MANY_TABLES}
            cases = results.of(**place, steps_per_execution=length)
            rates = [ratio(results, case) for case in cases]
            costs = [ratio(results, case, lambda c: c.cpu_ms_per_step) for case in cases]
            what = f"{ROWS[aim.row].title} over stock's loop, {length} per execution"
            bars.append(Bar(f"{title}: {what}", _extreme(min, rates), aim.rate))
            name = f"{title}: CPU per step of {what}"
            bars.append(Bar(name, _extreme(max, costs), aim.cpu, is_cost=True))
        times = [
            results.ratio((*place, 1, ids, LONGEST), (*place, MANY_TABLES, ids, LONGEST))
            for place in [(workers, "tfps_loop")]
            for ids in self.ids
        ]
        name = f"{title}: time of a step over one table's, {LONGEST} per execution"
        return [*bars, Bar(name, _extreme(max, times), MANY_OVER_ONE_AIM, is_cost=True)]

    def _bars_of_bytes(self, results: Results) -> list[Bar]:
        cases = results.of(row=OVER_TCP, tables=MANY_TABLES)
        skewed = [imbalance(case) for case in cases if case["ids"] == "power_law"]
        title = f"{MANY_TABLES} tables"
        ratios = [bytes_over_rows(case) for case in cases]
        return [
            Bar(
                f"{title}: bytes over those of rows", _extreme(max, ratios), BYTES_AIM, is_cost=True
            ),
            Bar(
                f"{title}: bytes of the busiest server over the mean, {IDS['power_law']}",
                _extreme(max, skewed),
                IMBALANCE_AIM,
                is_cost=True,
            ),
        ]

    def tables(self, results: Results) -> list[Table]:
        columns: Columns = {
            "per\nexec.": lambda case: str(case["steps_per_execution"]),
            "steps/s": lambda case: case.steps_per_s,
            "vs.\nstock": lambda case: ratio_text(ratio(results, case)),
            "CPU ms\n/ step": lambda case: case.cpu_ms_per_step.median,
            "bytes\n/ rows'": lambda case: ratio_text(bytes_over_rows(case)),
            "imba-\nlance": lambda case: ratio_text(imbalance(case)),
        }
        tables = []
        for (workers, ids, count), cases in by_place(results).items():
            first = {case["row"]: case for case in reversed(cases)}
            names = [ROWS[c["row"]].title if c is first[c["row"]] else "" for c in cases]
            title = f"{_tables(count)}, {_workers(workers)} + {SERVERS} ps, {IDS[ids]}"
            tables.append(case_table(title, names, cases, columns))
        return tables

    def explanation(self, results: Results) -> str:
        return (
            f"Medians (minimum-maximum). {LEGEND} vs. stock: over the better of stock's ways at "
            "that length. Bytes: what the servers' TCP connections carried, over the bytes of a "
            "step's distinct rows both ways. Imbalance: bytes of the busiest server over the mean. "
            "On one machine tfps's own carrier takes unix sockets, whose bytes the system does not "
            "count, so one row takes TCP."
        )

    def draw(self, results: Results, path: Path) -> None:
        """Draw steps/s above CPU per step, by the number of tables."""
        places = list(dict.fromkeys(place[:2] for place in by_place(results)))
        with picture(path, 2, len(places), size=(1.6 + 3.4 * len(places), 7.6)) as (figure, axes):
            for (workers, ids), rates, costs in zip(places, *axes, strict=True):
                own = results.of(workers=workers, ids=ids)
                _draw_panel(rates, own, lambda case: case.steps_per_s)
                _draw_panel(costs, own, lambda case: case.cpu_ms_per_step)
                title = f"Steps/s: {_workers(workers)}, {IDS[ids]}"
                name_axis(rates, title=title, label="tables; above is better")
                title = "CPU ms per step, all processes"
                name_axis(costs, title=title, label="tables; below is better")
            legend_below(figure, axes[0, 0], entries=len(STYLES), columns=5, has_spreads=True)


def _draw_panel(axis: Any, cases: Sequence[Case], quantity: Callable[[Case], Spread]) -> None:
    counts = sorted({case["tables"] for case in cases})
    for (row, length), style in STYLES.items():
        own = {
            case["tables"]: quantity(case)
            for case in sorted(cases, key=lambda case: case["tables"])
            if (case["row"], case["steps_per_execution"]) == (row, length)
        }
        if own:
            label = f"{ROWS[row].title}, {length} per execution"
            options = {"marker": "o", "markersize": 4, "label": label, **style}
            draw_curve(axis, list(own), list(own.values()), **options)
    axis.set_xticks(counts, list(map(str, counts)), fontsize=8)
    axis.set_ylim(bottom=0)
    axis.tick_params(axis="y", labelsize=8)
    axis.grid(axis="y", color="#e4e7eb", linewidth=0.8)


def _workers(count: int) -> str:
    return f"{count} worker" + ("s" if count > 1 else "")


def _tables(count: int) -> str:
    return f"{count} table" + ("s" if count > 1 else "")


def by_place(results: Results) -> dict[tuple[int, str, int], list[Case]]:
    """The cases by workers, kind of ids and number of tables, each in the order of the rows."""
    found: dict[tuple[int, str, int], list[Case]] = {}
    order = list(ROWS)
    for case in sorted(
        results.cases,
        key=lambda c: (
            c["workers"],
            list(IDS).index(c["ids"]),
            c["tables"],
            order.index(c["row"]),
            c["steps_per_execution"],
        ),
    ):
        found.setdefault((case["workers"], case["ids"], case["tables"]), []).append(case)
    return found


def ratio(
    results: Results,
    case: Case,
    quantity: Callable[[Case], Spread] = lambda case: case.steps_per_s,
) -> float | None:
    """The case's median of a quantity over that of the faster of stock's ways, all else equal."""
    places = [tuple({**case.axes, "row": row}.values()) for row in STOCK]
    measured = [found for place in places if (found := results.find(*place)) is not None]
    if not measured or case["row"] == SINGLE:
        return None
    best = max(measured, key=lambda found: found.steps_per_s.median)
    return quantity(case).median / quantity(best).median


def _epochs_bytes(case: Case) -> list[list[float]]:
    """Of each epoch and server for a step, where TCP connections carry all of it."""
    if case["row"] not in (*STOCK, OVER_TCP):
        return []
    return [counts for run in case.runs.values() for counts in run["server_bytes"] if counts]


def bytes_per_step(case: Case) -> Spread | None:
    """What the connections of all servers carried, both ways."""
    epochs = _epochs_bytes(case)
    return Spread.of(map(sum, epochs)) if epochs else None


def bytes_over_rows(case: Case) -> float | None:
    """The same over the bytes of the distinct rows of a step, there and back."""
    carried = bytes_per_step(case)
    return None if carried is None else carried.median / case.run["least_bytes"]


def imbalance(case: Case) -> float | None:
    """Bytes of the busiest server over the mean of all."""
    epochs = _epochs_bytes(case)
    if not epochs:
        return None
    totals = [sum(counts) for counts in zip(*epochs, strict=True)]
    return max(totals) * len(totals) / sum(totals)


def _extreme(choose: Callable[..., float], values: Iterable[float | None]) -> float | None:
    """The worst of what was measured."""
    return choose((value for value in values if value is not None), default=None)


def _details(strategy: Any) -> dict[str, Any]:
    return steps_way(strategy) if isinstance(strategy, tfps.ParameterServerStrategy) else {}
