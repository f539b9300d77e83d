"""The samples of one thing that a benchmark compares with others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tfps.bench.report import Spread
from tfps.bench.usage import Sample


@dataclass(kw_only=True)
class Case:
    """What was measured of one combination of axes, such as an optimizer and a size.

    Args:
        axes: which combination it is.
        samples: one per measured epoch.
        details: what else the last turn told, for the report; None: nothing.
        runs: what turns answered, by seed; without seeds by their number.
    """

    axes: Mapping[str, Any] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    details: Mapping[str, Any] | None = None
    runs: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def __getitem__(self, axis: str) -> Any:
        """Where the case lies on an axis."""
        return self.axes[axis]

    def add(self, samples: Iterable[Mapping[str, Any]], details: Mapping[str, Any] | None) -> None:
        """Take what a turn measured, as it stands in the turn's answer."""
        self.samples += [Sample(**sample) for sample in samples]
        self.details = details

    def spread(self, quantity: str) -> Spread:
        """Of a number that every turn answered."""
        return Spread.of([run[quantity] for run in self.runs.values()])

    def spread_of_samples(self, quantity: Callable[[Sample], float]) -> Spread:
        """Of a number that every sample has."""
        return Spread.of([quantity(sample) for sample in self.samples])

    @property
    def steps_per_s(self) -> Spread:
        """Of all workers together."""
        return self.spread_of_samples(lambda sample: sample.steps_per_s)

    @property
    def cpu_ms_per_step(self) -> Spread:
        """Summed over all processes."""
        return self.spread_of_samples(lambda sample: sample.cpu_ms_per_step)

    @property
    def other_cores(self) -> float:
        """Cores that something else kept busy meanwhile, in the median."""
        return self.spread_of_samples(lambda sample: sample.other_cores).median

    def as_json(self, quantities: Mapping[str, Any]) -> dict[str, Any]:
        """Give the form in the report: axes, quantities, and the samples that they come from."""
        spreads = {
            name: value.as_json() if isinstance(value, Spread) else value
            for name, value in quantities.items()
        }
        samples = {"samples": [asdict(sample) for sample in self.samples]}
        details = {} if self.details is None else {"details": self.details}
        return {**self.axes, **spreads, **samples, **details}
