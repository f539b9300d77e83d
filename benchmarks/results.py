"""The results of a run: spreads, cases that are found by their axes, and bars with aims."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from benchmarks.usage import Sample

Value = TypeVar("Value")


@dataclass(frozen=True)
class Spread:
    """The middle and the ends of several measurements of one quantity."""

    minimum: float
    median: float
    maximum: float

    @classmethod
    def from_samples(cls, samples: Iterable[float]) -> Spread:
        values = list(samples)
        return cls(min(values), statistics.median(values), max(values))

    def as_json(self) -> dict[str, float]:
        """Give the form in the report; four digits are more than any machine repeats."""
        named = {"min": self.minimum, "median": self.median, "max": self.maximum}
        return {name: float(f"{value:.4g}") for name, value in named.items()}


@dataclass(frozen=True)
class Bar:
    """A number that the benchmark is about, None if not measured, and what it should reach."""

    name: str
    value: float | None
    aim: float
    is_cost: bool = False  # less is better

    @classmethod
    def cost(cls, name: str, value: float | None, aim: float) -> Bar:
        """Make the bar of a quantity of which less is better."""
        return cls(name, value, aim, is_cost=True)

    @property
    def holds(self) -> bool | None:
        if self.value is None:
            return None
        return self.value <= self.aim if self.is_cost else self.value >= self.aim

    @property
    def limit(self) -> str:
        return f"{'at most' if self.is_cost else 'at least'} {self.aim:g}"

    def as_json(self) -> dict[str, Any]:
        value = None if self.value is None else round(self.value, 3)
        return asdict(self) | {"value": value, "holds": self.holds}


@dataclass(frozen=True)
class Case:
    """The measurements at one place on the axes, such as an optimizer and a size."""

    axes: Mapping[str, Any]
    samples: list[Sample] = field(default_factory=list)  # one per measured epoch
    runs: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # by seed, or by number

    def __getitem__(self, axis: str) -> Any:
        return self.axes[axis]

    @property
    def run(self) -> Mapping[str, Any]:
        """Return the result of the first turn."""
        return next(iter(self.runs.values()))

    def by_seed(self, of_run: Callable[[Mapping[str, Any]], Value]) -> dict[int, Value]:
        """Apply a function to each turn's result, and return the values by seed."""
        return {seed: of_run(run) for seed, run in self.runs.items()}

    def spread(self, quantity: str) -> Spread:
        """Return the spread of a number that every turn has returned."""
        return Spread.from_samples(run[quantity] for run in self.runs.values())

    def spread_of_samples(self, quantity: Callable[[Sample], float]) -> Spread:
        return Spread.from_samples(map(quantity, self.samples))

    @property
    def steps_per_s(self) -> Spread:
        """Return the steps per second of all workers together."""
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
        *_, last = self.runs.values()
        details = {} if last.get("details") is None else {"details": last["details"]}
        samples = [asdict(sample) for sample in self.samples]
        return {**self.axes, **quantities, "samples": samples, **details}


@dataclass(frozen=True)
class Measure:
    """A quantity of each case: a key of the report, and a column of the tables."""

    key: str  # empty: only the tables have it
    of: Callable[[Case], Any]  # what the report has of a case
    heading: str | None = None  # None: only the report has it
    shown: Callable[[Any], Any] = lambda value: value  # what a cell has of it

    @classmethod
    def from_results(
        cls, key: str, heading: str | None = None, shown: Callable[[Spread], Any] = lambda it: it
    ) -> Measure:
        """Make the measure of a number that every turn has returned."""
        return cls(key, lambda case: case.spread(key), heading, shown)

    def cell(self, case: Case) -> Any:
        """Return a text, a spread, a number, or None where there is none."""
        return self.shown(self.of(case))


def rate(case: Case) -> Spread:
    """Return steps per second of all workers together."""
    return case.steps_per_s


def cpu_ms(case: Case) -> Spread:
    """CPU per step, summed over all processes."""
    return case.cpu_ms_per_step


def to_json_value(value: Any) -> Any:
    """Convert spreads, intervals, and collections of these to JSON values."""
    if hasattr(value, "as_json"):
        return value.as_json()
    if isinstance(value, Mapping):
        return {name: to_json_value(each) for name, each in value.items()}
    return list(map(to_json_value, value)) if isinstance(value, (list, tuple)) else value


class Results:
    """The cases of a run, in the order in which they came first."""

    def __init__(self) -> None:
        self._cases: dict[tuple[Any, ...], Case] = {}
        self.kept_turns = 0  # of an earlier run, which this one has resumed

    def add(self, result: Mapping[str, Any], *, seed: int | None = None, **axes: Any) -> None:
        """Add the result of a turn to its case; turns without a seed are numbered.

        Its ``samples`` become those of the case. All cases have the same axes, in one order.
        """
        case = self._cases.setdefault(tuple(axes.values()), Case(axes))
        case.samples.extend(Sample(**sample) for sample in result.get("samples", ()))
        case.runs[len(case.runs) if seed is None else seed] = result

    @property
    def cases(self) -> list[Case]:
        return list(self._cases.values())

    def in_order(self, order: Mapping[str, Iterable[Any] | None]) -> list[Case]:
        """Return the cases sorted by some axes, each in a given order or by size."""
        ranks = {axis: list(places or ()) for axis, places in order.items()}

        def rank(case: Case) -> list[Any]:
            found = ((case[axis], places) for axis, places in ranks.items())
            return [places.index(place) if places else place for place, places in found]

        return sorted(self.cases, key=rank)

    def find(self, *place: Any) -> Case | None:
        """Return the case at a place on all axes; None if it was not measured."""
        return self._cases.get(place)

    def select(self, **axes: Any) -> list[Case]:
        """Return the cases that lie at a place on some axes."""
        return [c for c in self.cases if all(c[name] == value for name, value in axes.items())]

    def on(self, axis: str) -> list[Any]:
        """Return the places on an axis, in the order in which they came first."""
        return list(dict.fromkeys(case[axis] for case in self.cases))

    def ratio(
        self,
        place: tuple[Any, ...],
        over: tuple[Any, ...],
        quantity: Callable[[Case], Spread] = lambda case: case.steps_per_s,
    ) -> float | None:
        """Return the ratio of two cases' medians; None if one was not measured."""
        ours, theirs = self.find(*place), self.find(*over)
        if ours is None or theirs is None:
            return None
        median = quantity(theirs).median
        return quantity(ours).median / median if median else None

    def median(self, place: tuple[Any, ...], quantity: str) -> float | None:
        """Return the median of a number over a case's turns; None if it was not measured."""
        case = self.find(*place)
        return None if case is None else case.spread(quantity).median

    @property
    def other_cores(self) -> float:
        """Cores that something else kept busy, in the worst case."""
        return max((case.other_cores for case in self.cases if case.samples), default=0.0)
