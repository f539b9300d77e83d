"""Training over links of a given rate: bytes, steps per second and CPU of each way to send less.

A turn trains one model in one way, in two epochs of which one has twice the steps: their difference
in seconds and bytes leaves out the cost of joining. The accuracy that a codec costs is measured
where nothing limits the links, and the time on slower links follows from the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from benchmarks import network_rows as rows
from benchmarks.benchmark import Benchmark, grouped
from benchmarks.images import LabelledImages, image_paths
from benchmarks.network_accuracy import MB, draw_trainings, gained, place_of, training_measures
from benchmarks.network_rows import ACCURACY, STEPS, TRAINED, WAYS, link_title, model_title
from benchmarks.network_steps import BATCH, LinkedSteps
from benchmarks.picture import BLUE, draw_spread, legend_below, name_bars, picture
from benchmarks.results import Bar, Case, Measure, Results, cpu_ms, rate
from benchmarks.settings import IMAGES, choices, option
from benchmarks.table import case_table, columns_of, middle
from benchmarks.traffic import TrafficClock
from benchmarks.turn import TaskNumbers, Tasks, Turn
from tfps.units import counted

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

    repetitions: int = option(1, "Turns of each row.")
    parts: tuple[str, ...] = choices(
        (STEPS, ACCURACY), "Only this part; may be repeated.", flag="--part"
    )
    rates: tuple[int, ...] = option(
        rows.RATES,
        "Mbit/s of each link, each way; 0 sets no limit. May be repeated.",
        click.IntRange(min=0),
        flag="--rate",
    )
    models: tuple[str, ...] = choices(
        rows.NETWORK_MODELS, "Only this model; may be repeated.", flag="--model"
    )
    ways: tuple[str, ...] = choices(WAYS, "Only this way; may be repeated.", flag="--way")
    steps: int = option(30, "At least this many are measured, of all workers.")
    epoch_s: float = 1.0  # at least, as long as there are not more steps than this:
    most_steps: int = 8000
    trainings: int = option(3, "Seeds with which each way trains.", flag="--seeds")
    looks: int = 10  # at the accuracy of a training
    look_steps: int = 150  # of all workers, from one to the next
    images: Path | None = field(default=None, metadata=IMAGES)

    def quick(self) -> NetworkBenchmark:
        ways = ("whole", "quantize_8", "everything", "changes")
        chosen = replace(self, rates=(1000,), models=("mlp", rows.FINE_TUNED), ways=ways)
        return replace(chosen, steps=4, most_steps=4, trainings=2, looks=2, look_steps=4)

    @property
    def needs_tf_keras(self) -> bool:  # type: ignore[override]
        return "stock" in self.ways

    def plan(self, folder: Path) -> Iterator[Turn]:
        def tasks(way: str = "whole", **options: Any) -> Tasks:
            row = WAYS[way]
            return Tasks(workers=row.workers, ps=row.servers, is_linked=True, **options)

        for mbit, model, way in self._places * self.repetitions:
            yield Turn(
                title=f"{link_title(mbit)}: {model_title(model)}, {WAYS[way].title}",
                name=f"{mbit}-{model}-{way}",
                case={"model": model, "way": way, "is_limited": bool(mbit)},
                axes={"part": STEPS, "rate": mbit, "model": model, "way": way},
                tasks=tasks(way, megabits_per_s=mbit or None),
                environment=rows.STOCK.environment if WAYS[way].is_stock else {},
            )
        if ACCURACY not in self.parts:
            return
        paths, seeds = image_paths(self.images, folder), list(range(1, self.trainings + 1))
        for way in (way for way in self.ways if WAYS[way].is_trained):
            yield Turn(
                title=f"trainings: {model_title(TRAINED)}, {WAYS[way].title}",
                name=f"trainings-{way}",
                case={"way": way, "seeds": seeds, **paths},
                axes={"part": ACCURACY, "rate": rows.UNLIMITED, "model": TRAINED, "way": way},
                tasks=tasks(),
            )

    @property
    def _places(self) -> list[tuple[int, str, str]]:
        """Each rate with each model and each way to train it, where steps are measured."""
        if STEPS not in self.parts:
            return []
        is_named = set(self.models) != set(rows.NETWORK_MODELS) or set(self.ways) != set(WAYS)
        return [
            (mbit, model, way)
            for mbit in self.rates
            for model in self.models
            for way in self.ways
            if model in WAYS[way].models and (is_named or rows.is_usual(mbit, model, way))
        ]

    def measure(
        self,
        tasks: TaskNumbers,
        *,
        way: str,
        has_links: bool,
        model: str = TRAINED,
        is_limited: bool = False,
        **training: Any,
    ) -> Any:
        """Train one model in one way: to an accuracy with each of some seeds, or for steps."""
        if training:
            return self._train(tasks, WAYS[way], **training)
        if WAYS[way].is_stock and is_limited and not has_links:
            return None
        return LinkedSteps(WAYS[way], rows.NETWORK_MODELS[model], TrafficClock(tasks)).measure(
            min(self.steps, rows.MOST_STEPS.get(model, self.steps)),
            epoch_s=self.epoch_s,
            most_steps=self.most_steps,
            has_links=has_links,
        )

    def _train(
        self,
        tasks: TaskNumbers,
        way: rows.NetworkWay,
        *,
        seeds: Sequence[int],
        images_path: str,
        pixels_path: str,
    ) -> Any:
        from benchmarks.network_training import CountedTraining

        data = LabelledImages.load(images_path)
        training = CountedTraining(way, self.looks, self.look_steps, data, pixels_path)
        return training.run(seeds, tasks.clock(by_role=False))

    def take(self, results: Results, turn: Turn, result: Any) -> None:
        if result is None:  # nothing holds back what TensorFlow sends
            return
        if "trainings" not in result:
            super().take(results, turn, result)
            return
        for seed, training in result["trainings"].items():
            found = {**training, "details": result["details"]}
            results.add(found, seed=int(seed), **(turn.axes or {}))

    def findings(self, results: Results) -> dict[str, Any]:
        return {"links": "namespaces" if _has_links(results) else "token buckets"}

    def compute_quantities(self, results: Results, case: Case) -> dict[str, Any]:
        measures = _measures(results, case["part"])
        noise = {"other_cores": round(case.other_cores, 2)}
        return {each.key: each.of(case) for each in measures if each.key} | noise

    def tables(self, results: Results) -> list[Table]:
        tables = []
        for (part, title), cases in grouped(results.cases, _table_of).items():
            columns = columns_of(_measures(results, part))
            tables.append(case_table(title, _names(cases), cases, columns))
        return tables

    def bars(self, results: Results) -> list[Bar]:
        def over(mbit: int, model: str, way: str, other: str) -> float | None:
            return results.ratio((STEPS, mbit, model, way), (STEPS, mbit, model, other))

        slow, free = link_title(rows.SLOW_MBIT), link_title(rows.UNLIMITED)
        bars = [
            Bar(
                f"{slow}, {model_title(model)}: steps/s, {WAYS[way].title} over no codec",
                over(rows.SLOW_MBIT, model, way, "whole"),
                aim,
            )
            for way, aim in ((rows.SMALL, rows.SMALL_AIM), (rows.BOTH, rows.BOTH_AIM))
            for model in rows.SMALL_MODELS
        ]
        name = f"{slow}, 90 % frozen: steps/s by only what changed"
        tuned = over(rows.SLOW_MBIT, rows.FINE_TUNED, "changes", "everything")
        bars.append(Bar(name, tuned, rows.FINE_TUNING_AIM))
        for (workers, servers), aim in rows.REDUCED_AIMS.items():
            ways = [f"{name}_{workers}_{servers}" for name in (rows.REDUCED, rows.ROUNDS)]
            faster = over(rows.SLOW_MBIT, rows.LARGE, *ways)
            tasks = f"{workers} workers, {counted(servers, 'server')}"
            bars.append(Bar(f"{slow}, {tasks}: steps/s by all-reduce over servers", faster, aim))
        for way in (rows.SMALL, rows.BOTH):
            name = f"final accuracy in points, {WAYS[way].title} minus no codec, low end of 95 %"
            case = results.find(*place_of(way))
            more = None if case is None else gained(results, case)
            bars.append(Bar(name, None if more is None else 100 * more.low, -rows.ACCURACY_AIM))
        name = f"{free}, {model_title(TRAINED)}: a step with the dearest codec over none"
        times = [over(rows.UNLIMITED, TRAINED, "whole", codec) for codec in rows.CODECS]
        dearest = max((each for each in times if each is not None), default=None)
        bars.append(Bar.cost(name, dearest, rows.CODING_AIM))
        ratios = [case.run.get("accounting") for case in results.select(part=STEPS)]
        apart = max((abs(each - 1) for each in ratios if each is not None), default=None)
        name = "counted bytes apart from the sockets' own"
        return [*bars, Bar.cost(name, apart, rows.ACCOUNTING_AIM)]

    def explanation(self, results: Results) -> str:
        links = "" if _has_links(results) else WITHOUT_LINKS
        return links + (
            f"{rows.WORKERS} workers and {rows.SERVERS} servers, or as the row says, Adam, batches "
            f"of {BATCH}; a step is one worker's. Steps, CPU and bytes are those by which an epoch "
            "of twice as many steps exceeds one, so what a join costs is left out. Bytes up, down: "
            "stats().traffic; of sockets: what the system counts of the servers' TCP connections, "
            "both ways, TensorFlow's own among them. Trainings run without limit; at a rate their "
            "bytes take longer."
        )

    def draw(self, results: Results, path: Path) -> None:
        """Draw steps/s of each way at each rate, and what trainings reach by bytes and time."""
        model = TRAINED if results.select(part=STEPS, model=TRAINED) else results.cases[0]["model"]
        panels = grouped(results.select(part=STEPS, model=model), lambda case: case["rate"])
        trained = results.select(part=ACCURACY)
        longest = max(map(len, panels.values()), default=0)
        heights = [0.8 + 0.22 * longest] * bool(panels) + [3.4] * bool(trained)
        size, grid = (13, 0.6 + sum(heights)), {"height_ratios": heights}
        with picture(path, len(heights), COLUMNS, size=size, gridspec_kw=grid) as (figure, axes):
            for axis, cases in zip(axes[0], panels.values(), strict=False):
                for place, case in enumerate(cases):
                    draw_spread(axis, place, case.steps_per_s, colour=BLUE[1], height=0.6)
                title = _table_of(cases[0])[1]
                name_bars(axis, _names(cases), margin=0.25, title=title, label="steps/s")
            for axis in axes[0][len(panels) :] if panels else ():
                axis.remove()
            if trained:
                draw_trainings(axes[-1], trained)
                legend_below(figure, axes[-1][0], entries=len(trained), columns=5)


def _measures(results: Results, part: str) -> Sequence[Measure]:
    """Return the measures of a part's cases."""
    if part == ACCURACY:
        return training_measures(results)
    return [
        Measure("steps_per_s", rate, "steps/s"),
        Measure("cpu_ms_per_step", cpu_ms, "CPU ms\n/ step", middle),
        _counted("up_bytes_per_step", "MB up\n/ step"),
        _counted("down_bytes_per_step", "MB down\n/ step"),
        _counted("socket_bytes_per_step", "MB of\nsockets"),
        _counted("accounting"),
    ]


def _counted(name: str, heading: str | None = None) -> Measure:
    """Return a measure of the first turn's number; None where it is not counted."""
    return Measure(name, lambda case: case.run.get(name), heading, _megabytes)


def _megabytes(count: float | None) -> float | None:
    return None if count is None else count / MB


def _table_of(case: Case) -> tuple[str, str]:
    """Return the part of a case, and the title of its table."""
    if case["part"] == ACCURACY:
        return ACCURACY, f"{model_title(TRAINED)}: trainings, {counted(len(case.runs), 'seed')}"
    return STEPS, f"{link_title(case['rate'])}: {model_title(case['model'])}"


def _has_links(results: Results) -> bool:
    return all(run.get("has_links", True) for case in results.cases for run in case.runs.values())


def _names(cases: Iterable[Case]) -> list[str]:
    return [WAYS[case["way"]].title for case in cases]
