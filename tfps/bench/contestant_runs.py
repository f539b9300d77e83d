"""What the trainings of one optimizer ended with, and how it compares with another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfps.bench.contestants import CONTESTANTS
from tfps.bench.interval import Interval
from tfps.bench.results import Results
from tfps.bench.staleness_counts import staleness_of

TUNE, COMPARE = "tune", "compare"  # the phases of a contestant: tries learning rates, is compared
SYNCHRONOUS = "synchronous"  # the scenario in which no gradient is stale


@dataclass(frozen=True)
class ContestantRuns:
    """The trainings of one optimizer in one scenario."""

    scenario: str
    name: str
    answers: Sequence[Mapping[str, Any]]  # what a chief says of each

    @classmethod
    def of(cls, results: Results, scenario: str, name: str) -> ContestantRuns:
        """Those of a run of the benchmark; there may be none."""
        cases = results.of(scenario=scenario, optimizer=name)
        return cls(scenario, name, [run for case in cases for run in case.runs.values()])

    @property
    def tuning(self) -> dict[float, float]:
        """Learning rate -> accuracy on the held-out images."""
        tried = self._of(TUNE)
        return {run["learning_rate"]: run["validation_accuracy"] for run in tried}

    @property
    def best_rate(self) -> float:
        """The learning rate with the best accuracy; the smaller one of two that are equal."""
        found = self.tuning
        return min(found, key=lambda rate: (-found[rate], rate))

    @property
    def accuracies(self) -> dict[int, float]:
        """On the test images, by seed."""
        return {run["seed"]: run["test_accuracy"] for run in self._of(COMPARE)}

    @property
    def staleness_updates(self) -> dict[int, int]:
        """Staleness -> number of gradients, of all trainings."""
        return staleness_of(self.answers)

    def minus(self, other: ContestantRuns) -> Interval | None:
        """Test accuracy minus that of another one, seed by seed; None of less than two seeds."""
        return Interval.of_seeds(self.accuracies, other.accuracies)

    def _of(self, phase: str) -> Iterable[Mapping[str, Any]]:
        return (answer for answer in self.answers if answer["phase"] == phase)


def minus_plain(results: Results, scenario: str, name: str) -> Interval | None:
    """What an optimizer gains over the plain one of its base, both stale; None of itself."""
    base = CONTESTANTS[name].base
    if name == base:
        return None
    plain = ContestantRuns.of(results, scenario, base)
    return ContestantRuns.of(results, scenario, name).minus(plain)


def minus_synchronous(results: Results, scenario: str, name: str) -> Interval | None:
    """What is lost against the plain optimizer of its base where no gradient is stale."""
    fresh = ContestantRuns.of(results, SYNCHRONOUS, CONTESTANTS[name].base)
    return ContestantRuns.of(results, scenario, name).minus(fresh)


def helpers(results: Results, scenario: str, names: Sequence[str]) -> list[str]:
    """Those that end better than the plain optimizer with the interval's confidence."""
    gains = {name: minus_plain(results, scenario, name) for name in names}
    return [name for name, gained in gains.items() if gained is not None and gained.low > 0]


def nearest(results: Results, scenario: str, names: Sequence[str]) -> tuple[str, Interval] | None:
    """The optimizer that loses least against synchronous training in the mean, and its gap."""
    gaps = {name: minus_synchronous(results, scenario, name) for name in names}
    known = {name: gap for name, gap in gaps.items() if gap is not None}
    best = max(known, key=lambda name: known[name].mean, default=None)
    return None if best is None else (best, known[best])
