"""The cases of a run of `tfps bench scaling`, and what many workers keep of one worker's rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tfps.bench.report import Bar, Report, Spread
from tfps.bench.usage import Sample

KEPT_AIM = 0.95  # of the sum of what the workers would do alone
SERVER_CPU_AIM_MS = 0.4  # per push: one message to one server


@dataclass
class Case:
    """The samples of one number of workers."""

    workers: int
    ps: int
    samples: list[Sample] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def steps_per_s(self) -> Spread:
        """Of all workers together."""
        return Spread.of([sample.steps_per_s for sample in self.samples])

    @property
    def cpu_ms_per_step(self) -> Spread:
        """Summed over all processes."""
        return Spread.of([sample.cpu_ms_per_step for sample in self.samples])

    @property
    def server_cpu_ms_per_push(self) -> Spread:
        """Of one server for one push; a step pushes to every server."""
        return Spread.of([sample.group_cpu_ms_per_step("ps") / self.ps for sample in self.samples])

    @property
    def other_cores(self) -> float:
        """Cores that something else kept busy meanwhile, in the median."""
        return Spread.of([sample.other_cores for sample in self.samples]).median


class Results:
    """The cases of a run by their number of workers."""

    def __init__(self, ps: int) -> None:
        self._ps = ps
        self._cases: dict[int, Case] = {}

    def add(self, workers: int, result: Mapping[str, Any]) -> None:
        """Take the result of one turn."""
        case = self._cases.setdefault(workers, Case(workers, self._ps))
        case.samples += [Sample(**sample) for sample in result["samples"]]
        case.details = result["details"]

    @property
    def cases(self) -> list[Case]:
        """By the number of workers."""
        return [self._cases[workers] for workers in sorted(self._cases)]

    @property
    def other_cores(self) -> float:
        """Cores that something else kept busy, in the worst case."""
        return max((case.other_cores for case in self.cases), default=0.0)

    def kept(self, case: Case) -> float | None:
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
