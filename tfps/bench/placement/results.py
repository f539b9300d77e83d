"""The cases of a run of `tfps bench placement`, and what has an aim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tfps.bench.placement.ways import BALANCED, TENSORFLOW, WAYS
from tfps.bench.report import Bar, Report, Spread
from tfps.placement.forecast import imbalance

EVEN_AIM = 1.05
PLANNING_AIM_S = 1.0


@dataclass(frozen=True, kw_only=True)
class PlacementCase:
    """A model on so many servers, in one way.

    Args:
        model: a key of `MODELS`.
        servers: how many.
        way: a key of `WAYS`.
        shards: of what is trained.
        bytes_per_server: values and slots.
        step_bytes_per_server: what a step of one worker moves.
        least_imbalance: of bytes, that the shapes allow.
    """

    model: str
    servers: int
    way: str
    shards: int
    bytes_per_server: tuple[int, ...]
    step_bytes_per_server: tuple[int, ...]
    least_imbalance: float

    @property
    def bytes_imbalance(self) -> float:
        """The fullest server over the mean."""
        return imbalance(self.bytes_per_server)

    @property
    def traffic_imbalance(self) -> float:
        """The busiest server over the mean."""
        return imbalance(self.step_bytes_per_server)


@dataclass
class PlacementResults:
    """What was planned.

    Args:
        planned_variables: of the plan that was timed.
        cases: of all models.
        planning_s: of that plan.
    """

    planned_variables: int
    cases: list[PlacementCase] = field(default_factory=list)
    planning_s: list[float] = field(default_factory=list)

    def of(self, model: str, way: str) -> list[PlacementCase]:
        """The cases of a model in a way, by the number of servers."""
        return [case for case in self.cases if (case.model, case.way) == (model, way)]

    @property
    def models(self) -> list[str]:
        """Those that were planned, in their order."""
        return list(dict.fromkeys(case.model for case in self.cases))

    def bars(self) -> list[Bar]:
        """Every comparison that has an aim."""
        ours = [case for case in self.cases if case.way == BALANCED]
        even = [case for case in ours if case.least_imbalance <= EVEN_AIM]
        theirs = {(c.model, c.servers): c for c in self.cases if c.way == TENSORFLOW}
        title = WAYS[BALANCED].title
        ratios = [
            theirs[case.model, case.servers].bytes_imbalance / case.bytes_imbalance
            for case in ours
            if (case.model, case.servers) in theirs
        ]
        return [
            Bar(
                f"{title}: largest imbalance of bytes where the shapes allow {EVEN_AIM:g}",
                max((case.bytes_imbalance for case in even), default=None),
                EVEN_AIM,
                is_cost=True,
            ),
            Bar(
                f"{title}: largest imbalance of bytes over what the shapes allow",
                max((c.bytes_imbalance / c.least_imbalance for c in ours), default=None),
                1.1,
                is_cost=True,
            ),
            Bar(
                "TensorFlow's imbalance of bytes over ours, smallest of all cases",
                min(ratios, default=None),
                1.0,
            ),
            Bar(
                f"seconds to plan {self.planned_variables:,} variables",
                Spread.of(self.planning_s).median if self.planning_s else None,
                PLANNING_AIM_S,
                is_cost=True,
            ),
        ]

    def report(self, settings: Mapping[str, Any]) -> Report:
        """Put the results into the form that all benchmarks share."""
        cases = [
            asdict(case)
            | {
                "bytes_imbalance": round(case.bytes_imbalance, 4),
                "traffic_imbalance": round(case.traffic_imbalance, 4),
            }
            for case in self.cases
        ]
        if self.planning_s:
            cases.append({"planning_s": Spread.of(self.planning_s).as_json()})
        return Report("placement", settings, cases, self.bars())
