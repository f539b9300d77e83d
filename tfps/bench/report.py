"""What every benchmark writes: cases with their spread, bars with their aims, and where it ran."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfps.bench.machine import describe_machine, package_versions


@dataclass(frozen=True)
class Spread:
    """The middle and the ends of several measurements of one quantity.

    Example:

    >>> Spread.of([3.0, 1.0, 2.0])
    Spread(minimum=1.0, median=2.0, maximum=3.0)
    """

    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Summarise at least one sample."""
        return cls(min(samples), statistics.median(samples), max(samples))

    def as_json(self) -> dict[str, float]:
        """Give the form in the report; four digits are more than any machine repeats."""
        named = {"min": self.minimum, "median": self.median, "max": self.maximum}
        return {name: float(f"{value:.4g}") for name, value in named.items()}


@dataclass(frozen=True)
class Bar:
    """A number that the benchmark is about, and what it should reach.

    Args:
        name: what is compared, in words.
        value: the measured number; None when its cases were not run.
        aim: the smallest value that is good; of a cost the largest.
        is_cost: less is better.
    """

    name: str
    value: float | None
    aim: float
    is_cost: bool = False

    @property
    def holds(self) -> bool | None:
        """Whether the aim is reached; None when nothing was measured."""
        if self.value is None:
            return None
        return self.value <= self.aim if self.is_cost else self.value >= self.aim

    @property
    def limit(self) -> str:
        """The aim in words."""
        return f"{'at most' if self.is_cost else 'at least'} {self.aim:g}"

    def as_json(self) -> dict[str, Any]:
        """Give the form in the report."""
        value = None if self.value is None else round(self.value, 3)
        return {
            "name": self.name,
            "value": value,
            "aim": self.aim,
            "is_cost": self.is_cost,
            "holds": self.holds,
        }


@dataclass(frozen=True)
class Report:
    """The results of one benchmark.

    Args:
        name: the benchmark; also the name of its files.
        settings: how it was run: repetitions, lengths.
        cases: one entry per measured case.
        bars: the comparisons with an aim.
        findings: what else it says, by the key in the file.
    """

    name: str
    settings: Mapping[str, Any]
    cases: Sequence[Mapping[str, Any]]
    bars: Sequence[Bar]
    findings: Mapping[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        """Write `NAME.json` and return its path; the folder is made."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        content = {
            "benchmark": self.name,
            "settings": dict(self.settings),
            "machine": describe_machine(),
            "package_versions": package_versions(),
            **self.findings,
            "bars": [bar.as_json() for bar in self.bars],
            "cases": [dict(case) for case in self.cases],
        }
        path.write_text(json.dumps(content, indent=2) + "\n")
        return path
