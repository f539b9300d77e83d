"""The cases of a run of `tfps bench consistency`, and the comparisons between them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tfps.bench.case import Case, most_other_cores
from tfps.bench.consistency.modes import (
    ADAPTIVE,
    ALL_MODES,
    ASYNCHRONOUS,
    BACKUP,
    BOUND_RANGE_STEPS,
    BOUND_STEPS,
    BOUNDED,
    DYNAMIC,
    LOCAL,
    MODES,
    SYNCHRONOUS,
)
from tfps.bench.consistency.scenarios import (
    CONSTANT,
    COUNTED,
    EVEN,
    FREE,
    SCENARIOS,
    SLOW_FACTOR,
    STEP_S,
    TITLES,
    TRANSIENT,
)
from tfps.bench.goal import GOAL, NEVER_S, seconds_to_goal
from tfps.bench.interval import Interval
from tfps.bench.report import Bar, Report, Spread
from tfps.bench.staleness_counts import added_up, from_json

COMPARED_STEPS = 16  # a period whose bytes have an aim
# Three workers of which one takes five times as long are worth 2.2 of three; some of that goes into
# rounding, and a straggler's one batch may be more than its share.
ADAPTIVE_AIM = 0.65
TRAFFIC_AIM = 0.07  # of what an exchange per step takes: 1 / 16, and the beginning


@dataclass(kw_only=True)
class ConsistencyCase(Case):
    """The trainings of one mode under one kind of delay.

    Args:
        scenario: a key of `SCENARIOS`, `FREE` or `COUNTED`.
        mode: a key of `ALL_MODES`.
        batch_size: examples in one worker's step.
        runs: what a turn answered, by seed.
    """

    scenario: str
    mode: str
    batch_size: int
    runs: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def rates(self, count: str) -> dict[int, float]:
        """How often something was counted in a second, by seed.

        Args:
            count: such as ``"updates"``; ``"examples"`` are those of gradients that were applied.
        """
        pairs = zip(self.runs.items(), self.samples, strict=True)
        return {
            seed: self._count(run, sample.steps, count) / sample.seconds
            for (seed, run), sample in pairs
        }

    def per_second(self, count: str) -> Spread:
        """As `rates`, of all seeds."""
        return Spread.of(list(self.rates(count).values()))

    @property
    def examples_per_s(self) -> Spread:
        """Of gradients that were applied, not of those that were dropped."""
        return self.per_second("examples")

    def _count(self, run: Mapping[str, Any], steps: int, count: str) -> int:
        if count == "examples":  # while the clock ran; the run has those of the whole training
            return int(self.batch_size * (steps - run["dropped"]))
        return int(run[count])

    @property
    def goal_s(self) -> dict[int, float]:
        """When the test accuracy was first seen to reach the goal, by seed; `NEVER_S` if not."""
        return {seed: seconds_to_goal(run["curve"]) for seed, run in self.runs.items()}

    @property
    def ends_s(self) -> dict[int, float]:
        """When the trainings were over, by seed."""
        return {seed: run["curve"][-1][0] for seed, run in self.runs.items()}

    @property
    def bytes_per_example(self) -> Spread:
        """Parameters that workers got, and what they sent, over the examples that they saw."""
        return Spread.of(
            [
                (run["bytes_pulled"] + run["bytes_pushed"]) / run["examples"]
                for run in self.runs.values()
            ]
        )

    @property
    def final_accuracy(self) -> dict[int, float]:
        """When the time was over, by seed."""
        return {seed: run["curve"][-1][1] for seed, run in self.runs.items()}

    @property
    def staleness_updates(self) -> dict[int, int]:
        """Staleness -> number of gradients, of all seeds."""
        return added_up(from_json(run["staleness_updates"]) for run in self.runs.values())

    @property
    def largest_gap_steps(self) -> int | None:
        """The largest difference of completed steps at a gate; None without one."""
        gaps = [run["largest_gap_steps"] for run in self.runs.values()]
        return None if None in gaps else max(gaps)


class ConsistencyResults:
    """The cases of a run by scenario and mode.

    Args:
        batch_size: examples in one worker's step.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._cases: dict[tuple[str, str], ConsistencyCase] = {}

    def add(self, mode: str, seed: int, result: Mapping[str, Any]) -> None:
        """Take the result of one turn."""
        for scenario, run in result["scenarios"].items():
            case = self._cases.setdefault(
                (scenario, mode),
                ConsistencyCase(scenario=scenario, mode=mode, batch_size=self._batch_size),
            )
            case.add(run["samples"], result["details"])
            case.runs[seed] = run

    @property
    def scenarios(self) -> list[str]:
        """Those that were measured, in their order."""
        names = (*SCENARIOS, FREE, COUNTED)
        return [name for name in names if any(key[0] == name for key in self._cases)]

    def of_scenario(self, scenario: str) -> list[ConsistencyCase]:
        """Its cases, in the order of the modes."""
        found = [self._cases.get((scenario, mode)) for mode in ALL_MODES]
        return [case for case in found if case is not None]

    def title(self, scenario: str) -> str:
        """What tables and plots call it."""
        if scenario != COUNTED:
            return TITLES[scenario]
        run = next(iter(self.of_scenario(COUNTED)[0].runs.values()))
        return f"{TITLES[COUNTED]}, {run['examples']:,} examples each"

    @property
    def other_cores(self) -> float:
        """Cores that something else kept busy, in the worst case."""
        return most_other_cores(self._cases.values())

    def gain(self, scenario: str, mode: str, over: str) -> Interval | None:
        """Final accuracy minus another mode's, seed by seed; None of less than two seeds."""
        ours, theirs = self._cases.get((scenario, mode)), self._cases.get((scenario, over))
        if ours is None or theirs is None:
            return None
        seeds = sorted(set(ours.runs) & set(theirs.runs))
        if len(seeds) < 2:
            return None
        return Interval.of_differences(
            [ours.final_accuracy[seed] for seed in seeds],
            [theirs.final_accuracy[seed] for seed in seeds],
        )

    def bars(self) -> list[Bar]:
        """Every comparison that has an aim."""
        last = [self._free_bar(), self._traffic_bar()]
        return [*self._constant_bars(), *self._transient_bars(), *last]

    def _constant_bars(self) -> list[Bar]:
        backup, plain = MODES[BACKUP].title, MODES[SYNCHRONOUS].title
        slow = self._cases.get((CONSTANT, SYNCHRONOUS))
        straggler_steps_per_s = 1 / (SLOW_FACTOR * STEP_S)
        pace = slow.per_second("updates").median / straggler_steps_per_s if slow else None
        bars = [
            Bar(
                f"constant straggler, {backup}: rounds/s over its own without one",
                self._ratio((CONSTANT, BACKUP), (EVEN, BACKUP)),
                0.8,
            ),
            Bar(
                f"constant straggler, {plain}: rounds/s over the straggler's steps/s",
                pace,
                1.1,
                is_cost=True,
            ),
        ]
        adaptive = MODES[ADAPTIVE].title
        name = f"constant straggler, {adaptive}: examples/s over its own without one"
        ratio = self._ratio((CONSTANT, ADAPTIVE), (EVEN, ADAPTIVE), "examples")
        bars.append(Bar(name, ratio, ADAPTIVE_AIM))
        for other in (ASYNCHRONOUS, SYNCHRONOUS):
            name = f"{GOAL:g} test accuracy, {backup} over {MODES[other].title}"
            ratio = self._goal_ratio(CONSTANT, BACKUP, other)
            bars.append(Bar(f"constant straggler, time to {name}", ratio, 1.0, is_cost=True))
        for other in (ASYNCHRONOUS, SYNCHRONOUS):
            gain = self.gain(CONSTANT, BACKUP, other)
            name = (
                f"constant straggler, final accuracy in points, {backup} minus "
                f"{MODES[other].title}, low end of its 95 % interval"
            )
            bars.append(Bar(name, None if gain is None else 100 * gain.low, 0.0))
        return bars

    def _transient_bars(self) -> list[Bar]:
        bars = []
        for mode, largest in ((BOUNDED, BOUND_STEPS), (DYNAMIC, BOUND_RANGE_STEPS[1])):
            title, case = MODES[mode].title, self._cases.get((TRANSIENT, mode))
            bars += [
                Bar(
                    f"transient stragglers, {title}: updates/s over asynchronous",
                    self._ratio((TRANSIENT, mode), (TRANSIENT, ASYNCHRONOUS)),
                    0.8,
                ),
                Bar(
                    f"transient stragglers, {title}: largest gap, steps",
                    case.largest_gap_steps if case else None,
                    largest,
                    is_cost=True,
                ),
            ]
        return bars

    def _free_bar(self) -> Bar:
        value = self._ratio((FREE, SYNCHRONOUS), (FREE, ASYNCHRONOUS), "examples")
        return Bar("no waits, synchronous: examples/s over asynchronous", value, 0.75)

    def _traffic_bar(self) -> Bar:
        modes = LOCAL[COMPARED_STEPS], ASYNCHRONOUS
        ours, theirs = (self._cases.get((COUNTED, mode)) for mode in modes)
        value = None
        if ours and theirs:
            value = ours.bytes_per_example.median / theirs.bytes_per_example.median
        title = ALL_MODES[LOCAL[COMPARED_STEPS]].title
        name = f"no waits, {title}: bytes per example over asynchronous"
        return Bar(name, value, TRAFFIC_AIM, is_cost=True)

    def _ratio(
        self, key: tuple[str, str], to: tuple[str, str], count: str = "updates"
    ) -> float | None:
        """The median of the ratios per second, seed by seed: both have met the same delays."""
        ours, theirs = self._cases.get(key), self._cases.get(to)
        if ours is None or theirs is None:
            return None
        rates, others = (case.rates(count) for case in (ours, theirs))
        seeds = sorted(set(rates) & set(others))
        return statistics.median(rates[seed] / others[seed] for seed in seeds) if seeds else None

    def _goal_ratio(self, scenario: str, mode: str, over: str) -> float | None:
        """The median of the ratios, seed by seed; who does not arrive does so at the very end.

        That is too kind to the one that does not arrive: the ratio is then nearer to 1 than it is.
        """
        ours, theirs = self._cases.get((scenario, mode)), self._cases.get((scenario, over))
        if ours is None or theirs is None:
            return None
        ratios = [
            min(ours.goal_s[seed], ours.ends_s[seed])
            / min(theirs.goal_s[seed], theirs.ends_s[seed])
            for seed in sorted(set(ours.runs) & set(theirs.runs))
            if min(ours.goal_s[seed], theirs.goal_s[seed]) < NEVER_S
        ]
        return statistics.median(ratios) if ratios else None

    def report(self, settings: Mapping[str, Any]) -> Report:
        """Put the results into the form that all benchmarks share."""
        cases = [
            self._as_json(case)
            for scenario in self.scenarios
            for case in self.of_scenario(scenario)
        ]
        return Report("consistency", settings, cases, self.bars())

    def _as_json(self, case: ConsistencyCase) -> dict[str, Any]:
        others = [other.mode for other in self.of_scenario(case.scenario) if other is not case]
        gains = {other: self.gain(case.scenario, case.mode, other) for other in others}
        return {
            "scenario": case.scenario,
            "mode": case.mode,
            "updates_per_s": case.per_second("updates").as_json(),
            "examples_per_s": case.examples_per_s.as_json(),
            "bytes_per_example": case.bytes_per_example.as_json(),
            "dropped_per_s": case.per_second("dropped").as_json(),
            "staleness_updates": case.staleness_updates,
            "largest_gap_steps": case.largest_gap_steps,
            "seconds_to_goal": {
                # Without a look before the end nobody knows.
                seed: None if at_s == NEVER_S or case.scenario == COUNTED else round(at_s, 2)
                for seed, at_s in case.goal_s.items()
            },
            "final_accuracy": {seed: round(a, 4) for seed, a in case.final_accuracy.items()},
            "final_accuracy_minus": {
                other: None if gain is None else gain.as_json() for other, gain in gains.items()
            },
            "cpu_ms_per_step": case.cpu_ms_per_step.as_json(),
            "other_cores": round(case.other_cores, 2),
            "worker_steps": {seed: run["worker_steps"] for seed, run in case.runs.items()},
            "curves": {seed: _rounded(run["curve"]) for seed, run in case.runs.items()},
            "samples": [asdict(sample) for sample in case.samples],
            "details": case.details,
        }


def _rounded(curve: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    return [(round(at_s, 2), round(accuracy, 4)) for at_s, accuracy in curve]
