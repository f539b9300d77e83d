"""The samples of one thing that a benchmark compares with others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfps.bench.report import Spread
from tfps.bench.usage import Sample


@dataclass(kw_only=True)
class Case:
    """The samples of one row; a benchmark's own class adds what the row is.

    Args:
        samples: one per measured epoch.
        details: what else the last turn told, for the report.
    """

    samples: list[Sample] = field(default_factory=list)
    details: Mapping[str, Any] = field(default_factory=dict)

    def add(self, samples: Iterable[Mapping[str, Any]], details: Mapping[str, Any]) -> None:
        """Take what a turn measured, as it stands in the turn's answer."""
        self.samples += [Sample(**sample) for sample in samples]
        self.details = details

    @property
    def steps_per_s(self) -> Spread:
        """Of all workers together."""
        return Spread.of([sample.steps_per_s for sample in self.samples])

    @property
    def cpu_ms_per_step(self) -> Spread:
        """Summed over all processes."""
        return Spread.of([sample.cpu_ms_per_step for sample in self.samples])

    @property
    def other_cores(self) -> float:
        """Cores that something else kept busy meanwhile, in the median."""
        return Spread.of([sample.other_cores for sample in self.samples]).median


def most_other_cores(cases: Iterable[Case]) -> float:
    """Cores that something else kept busy, in the worst of several cases."""
    return max((case.other_cores for case in cases), default=0.0)
