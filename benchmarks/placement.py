"""How evenly parameter servers are filled, by model, number of servers and way of dividing.

No cluster is started: models are made without values, and their variables are planned. The seconds
of planning are those of many variables of one size.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.benchmark import Benchmark
from benchmarks.model_shapes import MODELS
from benchmarks.picture import BETWEEN, BLUE, GREY, INK, legend_below, name_axis, picture
from benchmarks.results import Bar, Case, Results
from benchmarks.settings import REPETITIONS
from benchmarks.table import Columns, case_table
from benchmarks.turn import TaskNumbers, Turn
from tfps.partitioners import Balanced, MinSizePartitioner, Partitioner, Whole
from tfps.placement.division import divide_variables
from tfps.placement.forecast import Forecast, PlannedVariable, imbalance
from tfps.placement.policy import LeastLoaded, Placement, RoundRobin

EVEN_AIM = 1.05
PLANNING_AIM_S = 1.0
PLANNED = "planned"  # the model that only its planning is measured of


@dataclass(frozen=True)
class Way:
    """A partitioner that divides variables, and a placement of what comes of it."""

    title: str
    partitioner: Partitioner
    placement: Placement
    colour: str


TENSORFLOW, BALANCED = "tensorflow", "balanced"
WAYS = {
    TENSORFLOW: Way("TensorFlow, whole", Whole(), RoundRobin(), GREY[1]),
    "tensorflow_divided": Way("TensorFlow, by size", MinSizePartitioner(), RoundRobin(), GREY[0]),
    "whole": Way("whole, least loaded", Whole(), LeastLoaded(), BLUE[0]),
    "divided": Way("by size, least loaded", MinSizePartitioner(), LeastLoaded(), BETWEEN),
    BALANCED: Way("balanced", Balanced(), LeastLoaded(), BLUE[1]),
}


@dataclass(frozen=True)
class PlacementBenchmark(Benchmark):
    """How evenly servers are filled, for four models and up to 64 servers; nothing is started.

    Bytes and traffic of the fullest server over the mean, against TensorFlow's round-robin, and the
    seconds that a plan takes: half a minute.
    """

    name = "placement"

    servers: tuple[int, ...] = (1, 2, 4, 8, 64)
    planned_variables: int = 10_000  # of the plan whose seconds are measured
    planned_servers: int = 64
    repetitions: int = field(default=5, metadata=REPETITIONS)

    def quick(self) -> PlacementBenchmark:
        return replace(self, servers=(1, 4), repetitions=1)

    def plan(self, folder: Path) -> Iterator[Turn]:
        many = f"{self.planned_variables:,} variables on {self.planned_servers} servers"
        titles = ", ".join(model.title for model in MODELS.values())
        for models, title in ((list(MODELS), titles), ([PLANNED], many)):
            yield Turn(title=title, name="placement", case={"models": models})

    def take(self, results: Results, turn: Turn, result: Any) -> None:
        for found in result:
            results.add(found.pop("planned"), **found)

    def measure(self, tasks: TaskNumbers, *, models: Sequence[str]) -> Any:
        """Plan models for each number of servers in each way, or see how long planning takes."""
        del tasks  # there are none
        if models == [PLANNED]:
            place = {"model": PLANNED, "servers": self.planned_servers, "way": BALANCED}
            seconds = (self._planning_s() for _ in range(self.repetitions))
            return [{**place, "planned": {"planning_s": each}} for each in seconds]
        return [
            {
                "model": name,
                "servers": servers,
                "way": way,
                "planned": _planned(wanted, servers=servers, way=WAYS[way]),
            }
            for name, wanted in ((name, MODELS[name].wanted()) for name in models)
            for servers in self.servers
            for way in WAYS
        ]

    def _planning_s(self) -> float:
        # Of half a megabyte each: two shards, with two slots each.
        shape, numbers = (512, 256), range(self.planned_variables)
        wanted = [
            PlannedVariable(
                f"layer_{number}/kernel", shape, "float32", is_pulled=True, is_trained=True
            )
            for number in numbers
        ]
        wanted += [
            PlannedVariable(f"layer_{number}/{slot}", shape, "float32", owner=number)
            for number in numbers
            for slot in ("momentum", "velocity")
        ]
        begin = time.perf_counter()
        _forecast(wanted, servers=self.planned_servers, way=WAYS[BALANCED])
        return time.perf_counter() - begin

    def entries(self, results: Results) -> list[dict[str, Any]]:
        places = [
            {
                **case.axes,
                **case.run,
                "bytes_imbalance": round(bytes_imbalance(case), 4),
                "traffic_imbalance": round(traffic_imbalance(case), 4),
            }
            for case in placed(results)
        ]
        timed = results.select(model=PLANNED)
        return places + [{"planning_s": case.spread("planning_s")} for case in timed]

    def bars(self, results: Results) -> list[Bar]:
        ours = [case for case in placed(results) if case["way"] == BALANCED]
        even = [bytes_imbalance(case) for case in ours if least_imbalance(case) <= EVEN_AIM]
        over = [bytes_imbalance(case) / least_imbalance(case) for case in ours]
        pairs = [(case, results.find(case["model"], case["servers"], TENSORFLOW)) for case in ours]
        gains = [bytes_imbalance(tf) / bytes_imbalance(case) for case, tf in pairs if tf]
        planning_s = results.median((PLANNED, self.planned_servers, BALANCED), "planning_s")
        most = partial(max, default=None)
        least = "TensorFlow's imbalance of bytes over ours"
        largest = f"{WAYS[BALANCED].title}: largest imbalance of bytes"
        seconds = f"seconds to plan {self.planned_variables:,} variables"
        return [
            Bar.cost(f"{largest} where the shapes allow {EVEN_AIM:g}", most(even), EVEN_AIM),
            Bar.cost(f"{largest} over what the shapes allow", most(over), 1.1),
            Bar(f"{least}, smallest of all cases", min(gains, default=None), 1.0),
            Bar.cost(seconds, planning_s, PLANNING_AIM_S),
        ]

    def tables(self, results: Results) -> list[Table]:
        tables = []
        for model in models(results):
            rows = {
                way.title: [_cell(case) for case in results.select(model=model, way=name)]
                for name, way in WAYS.items()
            }
            first = results.select(model=model, way=TENSORFLOW)
            rows["shapes"] = [f"{least_imbalance(case):.2f}" for case in first]
            columns: Columns = {
                f"{case['servers']} ps": operator.itemgetter(number)
                for number, case in enumerate(first)
            }
            tables.append(case_table(_title(model), list(rows), list(rows.values()), columns))
        return tables

    def explanation(self, results: Results) -> str:
        return (
            "The fullest server over the mean, bytes with Adam's slots / traffic of a step; 1 is "
            "even. Of tables a step moves the batch's rows. Shapes: what no division of rows can "
            "be better than, in bytes. TensorFlow places by count, round-robin."
        )

    def draw(self, results: Results, path: Path) -> None:
        """Draw the imbalance of bytes over the number of servers, a panel for each model."""
        names = models(results)
        with picture(path, 1, len(names), size=(12, 3.8), sharey=True) as (figure, axes):
            for axis, model in zip(axes[0], names, strict=True):
                cases = results.select(model=model, way=TENSORFLOW)
                ticks = range(len(cases))
                for name, way in WAYS.items():
                    imbalances = list(map(bytes_imbalance, results.select(model=model, way=name)))
                    style = {"color": way.colour, "label": way.title, "markersize": 5}
                    axis.plot(ticks, imbalances, "o-", **style)
                shapes = list(map(least_imbalance, cases))
                axis.plot(ticks, shapes, ":", color=INK, label="what the shapes allow")
                axis.set_xticks(ticks, [str(case["servers"]) for case in cases])
                axis.set_yscale("log", base=2)
                axis.yaxis.set_major_formatter("{x:g}")
                name_axis(axis, title=_title(model), label="parameter servers")
            axes[0, 0].set_ylabel("bytes: fullest server / mean", fontsize=8.5)
            legend_below(figure, axes[0, 0], entries=len(WAYS) + 1, columns=3)


def _forecast(
    wanted: list[PlannedVariable], *, servers: int, way: Way
) -> tuple[list[Any], Forecast]:
    shards = divide_variables(wanted, way.partitioner, servers=servers)
    return shards, Forecast.from_variables(shards, servers=servers, placement=way.placement)


def _planned(wanted: list[PlannedVariable], *, servers: int, way: Way) -> dict[str, Any]:
    """Count the shards and bytes on each server, and the bytes that a worker's step moves."""
    shards, forecast = _forecast(wanted, servers=servers, way=way)
    return {
        "shards": sum(shard.is_trained for shard in shards),
        "bytes_per_server": forecast.bytes_per_server,
        "step_bytes_per_server": forecast.step_bytes_per_server,
        "least_imbalance": _least_imbalance(wanted, servers=servers),
    }


def _least_imbalance(wanted: list[PlannedVariable], *, servers: int) -> float:
    """Return the least imbalance that a division by rows can have: one row lies on one server.

    The largest variable, with what belongs to it, cut into as many shards as it has rows at most.
    """
    total = sum(variable.size_bytes for variable in wanted)
    together = [variable.size_bytes for variable in wanted]
    for variable in wanted:
        if variable.owner is not None:
            together[variable.owner] += variable.size_bytes
    largest = 0.0
    for variable, size in zip(wanted, together, strict=True):
        if variable.is_trained:
            rows = max(1, variable.shape[0] if variable.shape else 1)
            largest = max(largest, size / rows * -(-rows // servers))
    return max(1.0, largest * servers / total)


def models(results: Results) -> list[str]:
    """Return the models that were planned, in their order."""
    return [model for model in results.on("model") if model != PLANNED]


def placed(results: Results) -> list[Case]:
    """Return the cases of all models."""
    return [case for case in results.cases if case["model"] != PLANNED]


def bytes_imbalance(case: Case) -> float:
    """Return the bytes of the fullest server over the mean."""
    return imbalance(case.run["bytes_per_server"])


def traffic_imbalance(case: Case) -> float:
    """Return the traffic of the busiest server over the mean."""
    return imbalance(case.run["step_bytes_per_server"])


def least_imbalance(case: Case) -> float:
    """Return the least imbalance of bytes that the shapes allow."""
    return float(case.run["least_imbalance"])


def _title(model: str) -> str:
    title = MODELS[model].title
    return title[0].upper() + title[1:]


def _cell(case: Case) -> str:
    return "/".join(
        f"{value:.2f}" if value < 9.95 else f"{value:.0f}"
        for value in (bytes_imbalance(case), traffic_imbalance(case))
    )
