"""The trainings of a run of `tfps bench staleness`, and which optimizer ends better than plain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfps.bench.interval import Interval
from tfps.bench.report import Bar, Report, Spread
from tfps.bench.staleness.contestants import CONTESTANTS
from tfps.bench.staleness_counts import added_up, from_json, mean_staleness, share_between

WANTED_UPDATES = (8, 16)  # how stale gradients are to be
SHARE_AIM = 0.8  # of the gradients that are


@dataclass
class StalenessCase:
    """What one contestant's trainings ended with.

    Args:
        name: a key of `CONTESTANTS`.
        tuning: learning rate -> accuracy on the held-out images.
        test_accuracy: by seed.
        staleness_updates: staleness -> number of gradients, of all its trainings.
    """

    name: str
    tuning: dict[float, float] = field(default_factory=dict)
    test_accuracy: dict[int, float] = field(default_factory=dict)
    staleness_updates: dict[int, int] = field(default_factory=dict)

    @property
    def best_rate(self) -> float:
        """The learning rate with the best accuracy; the smaller one of two that are equal."""
        return min(self.tuning, key=lambda rate: (-self.tuning[rate], rate))

    @property
    def accuracy(self) -> Spread:
        """On the test images, over the seeds."""
        return Spread.of(list(self.test_accuracy.values()))


class StalenessResults:
    """The cases of a run by their contestants.

    Args:
        rates: the learning rates that were tried, by base.
    """

    def __init__(self, rates: Mapping[str, Sequence[float]]) -> None:
        self._rates = rates
        self._cases: dict[str, StalenessCase] = {}

    def add_tuning(self, answers: Sequence[Mapping[str, Any]]) -> None:
        """Take what a turn answered that tried learning rates."""
        for answer in answers:
            case = self._case(answer)
            case.tuning[answer["learning_rate"]] = answer["validation_accuracy"]

    def add(self, answers: Sequence[Mapping[str, Any]]) -> None:
        """Take what a turn answered that compared."""
        for answer in answers:
            self._case(answer).test_accuracy[answer["seed"]] = answer["test_accuracy"]

    def _case(self, answer: Mapping[str, Any]) -> StalenessCase:
        case = self._cases.setdefault(answer["contestant"], StalenessCase(answer["contestant"]))
        counts = from_json(answer["staleness_updates"])
        case.staleness_updates = added_up([case.staleness_updates, counts])
        return case

    def best_rate(self, name: str) -> float:
        """The learning rate that a contestant goes on with."""
        return self._cases[name].best_rate

    @property
    def bases(self) -> list[str]:
        """The plain optimizers that took part."""
        return list(self._rates)

    def of_base(self, base: str) -> list[StalenessCase]:
        """Its cases, in the order of the contestants."""
        return [
            self._cases[name]
            for name, contestant in CONTESTANTS.items()
            if name in self._cases and contestant.base == base
        ]

    def is_at_edge(self, case: StalenessCase) -> bool:
        """Whether the best learning rate is an end of the grid: a better one may lie beyond."""
        rates = self._rates[CONTESTANTS[case.name].base]
        return case.best_rate in (min(rates), max(rates))

    def gain(self, case: StalenessCase) -> Interval | None:
        """Test accuracy minus that of the plain optimizer, seed by seed; None of itself."""
        base = CONTESTANTS[case.name].base
        plain = self._cases.get(base)
        if plain is None or case.name == base:
            return None
        seeds = sorted(set(case.test_accuracy) & set(plain.test_accuracy))
        if len(seeds) < 2:
            return None
        return Interval.of_differences(
            [case.test_accuracy[seed] for seed in seeds],
            [plain.test_accuracy[seed] for seed in seeds],
        )

    def helpers(self, base: str) -> list[StalenessCase]:
        """Those that end better than the plain optimizer with the interval's confidence."""
        gains = [(case, self.gain(case)) for case in self.of_base(base)]
        return [case for case, gain in gains if gain is not None and gain.low > 0]

    @property
    def staleness_updates(self) -> dict[int, int]:
        """Staleness -> number of gradients, of all trainings."""
        return added_up(case.staleness_updates for case in self._cases.values())

    def bars(self) -> list[Bar]:
        """Whether gradients were as stale as was wanted; which optimizer wins has no aim."""
        low, high = WANTED_UPDATES
        share = share_between(self.staleness_updates, low, high)
        return [Bar(f"share of gradients with a staleness of {low} to {high}", share, SHARE_AIM)]

    def report(self, settings: Mapping[str, Any]) -> Report:
        """Put the results into the form that all benchmarks share."""
        cases = [self._as_json(case) for base in self.bases for case in self.of_base(base)]
        return Report("staleness", settings, cases, self.bars())

    def _as_json(self, case: StalenessCase) -> dict[str, Any]:
        gain = self.gain(case)
        return {
            "optimizer": case.name,
            "base": CONTESTANTS[case.name].base,
            "learning_rate": case.best_rate,
            "is_at_edge_of_grid": self.is_at_edge(case),
            "validation_accuracy": {f"{rate:g}": case.tuning[rate] for rate in sorted(case.tuning)},
            "test_accuracy": case.accuracy.as_json(),
            "test_accuracy_of_seed": case.test_accuracy,
            "minus_plain": None if gain is None else gain.as_json(),
            "mean_staleness_updates": round(mean_staleness(case.staleness_updates), 2),
            "staleness_updates": case.staleness_updates,
        }
