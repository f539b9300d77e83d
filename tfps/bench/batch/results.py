"""The cases of a run of `tfps bench batch`, and the pair to take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tfps.bench.batch.choice import Choice, Pair, choose
from tfps.bench.case import Case, most_other_cores
from tfps.bench.goal import GOAL, NEVER_S, seconds_to_goal
from tfps.bench.report import Bar, Report, Spread


@dataclass(kw_only=True)
class BatchCase(Case):
    """The trainings of one batch and one number of local steps.

    Args:
        batch_size: examples in one worker's step.
        period_steps: of a worker between two exchanges.
        runs: what a turn answered, by seed.
    """

    batch_size: int
    period_steps: int
    runs: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def examples_per_s(self) -> Spread:
        """Of all workers together."""
        return Spread.of([self.batch_size * sample.steps_per_s for sample in self.samples])

    @property
    def learning_rate(self) -> float:
        """That the batch got."""
        rate: float = next(iter(self.runs.values()))["learning_rate"]
        return rate

    @property
    def memory_mib(self) -> Spread:
        """The most that a worker's process had at once; of several the one that had most."""
        return Spread.of([run["memory_mib"] for run in self.runs.values()])

    @property
    def goal_s(self) -> dict[int, float]:
        """When the test accuracy was first seen to reach the goal, by seed; `NEVER_S` if not."""
        return {seed: seconds_to_goal(run["curve"]) for seed, run in self.runs.items()}

    @property
    def ends_s(self) -> dict[int, float]:
        """When the trainings were over, by seed."""
        return {seed: run["curve"][-1][0] for seed, run in self.runs.items()}

    @property
    def pair(self) -> Pair:
        """What the choice looks at."""
        goal_s = Spread.of(list(self.goal_s.values()))
        return Pair(self.batch_size, self.period_steps, goal_s, self.memory_mib)


class BatchResults:
    """The cases of a run by batch and number of local steps.

    Args:
        usual: the batch and the number of local steps that the choice is compared with.
    """

    def __init__(self, *, usual: tuple[int, int]) -> None:
        self._usual = usual
        self._cases: dict[tuple[int, int], BatchCase] = {}

    def add(self, batch_size: int, period_steps: int, seed: int, answer: Mapping[str, Any]) -> None:
        """Take the result of one turn."""
        case = self._cases.setdefault(
            (batch_size, period_steps),
            BatchCase(batch_size=batch_size, period_steps=period_steps),
        )
        case.add(answer["samples"], answer["details"])
        case.runs[seed] = answer

    @property
    def periods(self) -> list[int]:
        """The numbers of local steps that were measured."""
        return sorted({period_steps for _, period_steps in self._cases})

    def of_period(self, period_steps: int) -> list[BatchCase]:
        """Its cases, by batch."""
        keys = sorted(key for key in self._cases if key[1] == period_steps)
        return [self._cases[key] for key in keys]

    @property
    def cases(self) -> list[BatchCase]:
        """All of them, in the order of the tables."""
        return [case for period_steps in self.periods for case in self.of_period(period_steps)]

    @property
    def other_cores(self) -> float:
        """Cores that something else kept busy, in the worst case."""
        return most_other_cores(self.cases)

    @property
    def choice(self) -> Choice:
        """The pair to take."""
        return choose([case.pair for case in self.cases])

    def is_chosen(self, case: BatchCase) -> bool:
        """Whether this is the pair to take."""
        pair = self.choice.pair
        return pair is not None and case.pair == pair

    def bars(self) -> list[Bar]:
        """What the choice gains over the usual pair, and local steps where steps are short."""
        return [self._gain_bar(), self._speed_bar()]

    def _gain_bar(self) -> Bar:
        usual, taken = self._cases.get(self._usual), self.choice.pair
        value = None
        if usual is not None and taken is not None:
            # Who does not arrive does so at the very end: too kind to the usual pair.
            times_s = [min(usual.goal_s[seed], usual.ends_s[seed]) for seed in usual.runs]
            value = taken.goal_s.median / Spread.of(times_s).median
        name = f"time to {GOAL:g}, the pair to take over batch {self._usual[0]}, asynchronous"
        return Bar(name, value, 1.0, is_cost=True)

    def _speed_bar(self) -> Bar:
        batch_size = min(size for size, _ in self._cases)
        most = self.periods[-1]
        ours, theirs = (self._cases.get((batch_size, steps)) for steps in (most, 1))
        value = None
        if ours and theirs and ours is not theirs:
            value = ours.examples_per_s.median / theirs.examples_per_s.median
        name = f"batch {batch_size}, examples/s, {most} local steps over asynchronous"
        return Bar(name, value, 1.0)

    def report(self, settings: Mapping[str, Any]) -> Report:
        """Put the results into the form that all benchmarks share."""
        cases = [self._as_json(case) for case in self.cases]
        pair = self.choice.pair
        choice = {
            "batch_size": pair and pair.batch_size,
            "period_steps": pair and pair.period_steps,
            "reason": self.choice.reason,
        }
        return Report("batch", settings, cases, self.bars(), {"choice": choice})

    def _as_json(self, case: BatchCase) -> dict[str, Any]:
        return {
            "batch_size": case.batch_size,
            "period_steps": case.period_steps,
            "learning_rate": round(case.learning_rate, 7),
            "is_chosen": self.is_chosen(case),
            "examples_per_s": case.examples_per_s.as_json(),
            "memory_mib": case.memory_mib.as_json(),
            "seconds_to_goal": {
                seed: None if at_s == NEVER_S else round(at_s, 2)
                for seed, at_s in case.goal_s.items()
            },
            "cpu_ms_per_step": case.cpu_ms_per_step.as_json(),
            "other_cores": round(case.other_cores, 2),
            "curves": {
                seed: [(round(at_s, 2), round(accuracy, 4)) for at_s, accuracy in run["curve"]]
                for seed, run in case.runs.items()
            },
            "samples": [asdict(sample) for sample in case.samples],
            "details": case.details,
        }
