"""The cases of a run of `tfps bench scaling`, and what many workers keep of one worker's rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tfps.bench.case import Case, most_other_cores
from tfps.bench.report import Bar, Report, Spread

KEPT_AIM = 0.95  # of the sum of what the workers would do alone
SERVER_CPU_AIM_MS = 0.4  # per push: one message to one server


@dataclass
class ScalingCase(Case):
    """The samples of one number of workers."""

    workers: int
    ps: int

    @property
    def server_cpu_ms_per_push(self) -> Spread:
        """Of one server for one push; a step pushes to every server."""
        return Spread.of([sample.group_cpu_ms_per_step("ps") / self.ps for sample in self.samples])


class ScalingResults:
    """The cases of a run by their number of workers."""

    def __init__(self, ps: int) -> None:
        self._ps = ps
        self._cases: dict[int, ScalingCase] = {}

    def add(self, workers: int, result: Mapping[str, Any]) -> None:
        """Take the result of one turn."""
        case = self._cases.setdefault(workers, ScalingCase(workers, self._ps))
        case.add(result["samples"], result["details"])

    @property
    def cases(self) -> list[ScalingCase]:
        """By the number of workers."""
        return [self._cases[workers] for workers in sorted(self._cases)]

    @property
    def other_cores(self) -> float:
        """Cores that something else kept busy, in the worst case."""
        return most_other_cores(self.cases)

    def kept(self, case: ScalingCase) -> float | None:
        """The median rate over so many times that of one worker."""
        alone = self._cases.get(1)
        if alone is None:
            return None
        return case.steps_per_s.median / (case.workers * alone.steps_per_s.median)

    def bars(self) -> list[Bar]:
        """What the largest cluster keeps and costs."""
        case = self.cases[-1]
        title = f"{case.workers} workers + {case.ps} ps"
        return [
            Bar(f"{title}: share of {case.workers} times one worker", self.kept(case), KEPT_AIM),
            Bar(
                f"{title}: server CPU per push, ms",
                case.server_cpu_ms_per_push.median,
                SERVER_CPU_AIM_MS,
                is_cost=True,
            ),
        ]

    def report(self, settings: Mapping[str, Any]) -> Report:
        """Put the results into the form that all benchmarks share."""
        cases = [
            {
                "workers": case.workers,
                "ps": case.ps,
                "steps_per_s": case.steps_per_s.as_json(),
                "cpu_ms_per_step": case.cpu_ms_per_step.as_json(),
                "server_cpu_ms_per_push": case.server_cpu_ms_per_push.as_json(),
                "share_kept": self.kept(case),
                "other_cores": round(case.other_cores, 2),
                "samples": [asdict(sample) for sample in case.samples],
                "details": case.details,
            }
            for case in self.cases
        ]
        return Report("scaling", settings, cases, self.bars())
