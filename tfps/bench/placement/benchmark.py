"""How evenly parameter servers are filled, by model, number of servers and way of dividing.

Nothing is started: models are made without values, and their variables are planned. The seconds of
planning are those of many variables of one size.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tfps.bench.placement.results import PlacementCase, PlacementResults
from tfps.bench.placement.shapes import MODELS
from tfps.bench.placement.ways import BALANCED, WAYS
from tfps.placement.division import divided
from tfps.placement.forecast import Forecast, Wanted


@dataclass(frozen=True)
class Placing:
    """What to plan.

    Args:
        servers: numbers of parameter servers.
        planned_variables: of the plan whose seconds are measured.
        planned_servers: of that plan.
        repetitions: of it.
    """

    servers: tuple[int, ...] = (1, 2, 4, 8, 64)
    planned_variables: int = 10_000
    planned_servers: int = 64
    repetitions: int = 5

    def quick(self) -> Placing:
        """Give a version that shows whether everything works."""
        return replace(self, servers=(1, 4), repetitions=1)

    def as_json(self) -> dict[str, Any]:
        """The form in the report."""
        return asdict(self)

    @property
    def turns(self) -> int:
        """How many models are planned, and the plan that is timed."""
        return len(MODELS) + 1


def run(
    settings: Placing,
    *,
    progress: Callable[[str], None],
    log_dir: Path,  # noqa: ARG001 - as all benchmarks have it
) -> PlacementResults:
    """Plan everything.

    Args:
        settings: what.
        progress: is called with the name of each turn when it starts.
        log_dir: not written to: no process is started that could say something.
    """
    results = PlacementResults(settings.planned_variables)
    for name, model in MODELS.items():
        progress(model.title)
        wanted = model.wanted()
        for servers in settings.servers:
            for way in WAYS:
                results.cases.append(_case(name, wanted, servers=servers, way=way))
    progress(f"{settings.planned_variables:,} variables on {settings.planned_servers} servers")
    results.planning_s = [_planning_s(settings) for _ in range(settings.repetitions)]
    return results


def _case(model: str, wanted: list[Wanted], *, servers: int, way: str) -> PlacementCase:
    chosen = WAYS[way]
    shards = divided(wanted, chosen.partitioner, servers=servers)
    forecast = Forecast.of(shards, servers=servers, placement=chosen.placement)
    return PlacementCase(
        model=model,
        servers=servers,
        way=way,
        shards=sum(shard.is_trained for shard in shards),
        bytes_per_server=forecast.bytes_per_server,
        step_bytes_per_server=forecast.step_bytes_per_server,
        least_imbalance=_least_imbalance(wanted, servers=servers),
    )


def _least_imbalance(wanted: list[Wanted], *, servers: int) -> float:
    """What no way of dividing rows can be better than: one row lies on one server.

    The largest variable, with what belongs to it, cut into as many shards as it has rows at most.
    """
    total = sum(variable.size_bytes for variable in wanted)
    together = [variable.size_bytes for variable in wanted]
    for variable in wanted:
        if variable.beside is not None:
            together[variable.beside] += variable.size_bytes
    largest = 0.0
    for variable, size in zip(wanted, together, strict=True):
        if variable.is_trained:
            rows = max(1, variable.shape[0] if variable.shape else 1)
            largest = max(largest, size / rows * -(-rows // servers))
    return max(1.0, largest * servers / total)


def _planning_s(settings: Placing) -> float:
    # Of half a megabyte each: two shards, with two slots each.
    shape, numbers = (512, 256), range(settings.planned_variables)
    wanted = [
        Wanted(f"layer_{number}/kernel", shape, "float32", is_pulled=True, is_trained=True)
        for number in numbers
    ]
    wanted += [
        Wanted(f"layer_{number}/{slot}", shape, "float32", beside=number)
        for number in numbers
        for slot in ("momentum", "velocity")
    ]
    way = WAYS[BALANCED]
    begin = time.perf_counter()
    shards = divided(wanted, way.partitioner, servers=settings.planned_servers)
    Forecast.of(shards, servers=settings.planned_servers, placement=way.placement)
    return time.perf_counter() - begin
