"""Comparisons of trainings under different modes, and their aims.

Modes are compared seed by seed: with one seed both have met the same delays.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from benchmarks import modes
from benchmarks.accuracy import GOAL, NEVER_S, ends_s, final_accuracy, goal_s
from benchmarks.example_bytes import bytes_per_example
from benchmarks.interval import Interval
from benchmarks.modes import ALL_MODES, ASYNCHRONOUS, BACKUP, CONSTANT, SYNCHRONOUS
from benchmarks.results import Bar, Case, Results, Spread

COMPARED_STEPS = 16  # a period whose bytes have an aim
TRAFFIC_AIM = 0.07  # of what an exchange per step takes: 1 / 16, and the beginning

Value = TypeVar("Value")
Place = tuple[str, str]  # a scenario and a mode


def rates(case: Case, count: str = "updates") -> dict[int, float]:
    """Return how often something was counted in a second, by seed."""
    pairs = zip(case.runs.items(), case.samples, strict=True)
    return {seed: int(run[count]) / sample.seconds for (seed, run), sample in pairs}


def applied_rates(case: Case) -> dict[int, float]:
    """Return gradients per second that were applied, not those that were dropped, by seed."""
    # While the clock ran; a run's own number of examples is that of the whole training.
    pairs = zip(case.runs.items(), case.samples, strict=True)
    return {seed: (sample.steps - run["dropped"]) / sample.seconds for (seed, run), sample in pairs}


def rate(case: Case, count: str = "updates") -> Spread:
    """Return the spread of `rates` over all seeds."""
    return Spread.from_samples(rates(case, count).values())


def largest_gap_steps(case: Case) -> int | None:
    """Return the largest difference of completed steps at a gate; None without one."""
    gaps = [run["largest_gap_steps"] for run in case.runs.values()]
    return None if None in gaps else max(gaps)


def gain(results: Results, scenario: str, mode: str, over: str) -> Interval | None:
    """Final accuracy minus another mode's, seed by seed; None of less than two seeds."""
    ours, theirs = results.find(scenario, mode), results.find(scenario, over)
    if ours is None or theirs is None:
        return None
    return Interval.of_seeds(final_accuracy(ours), final_accuracy(theirs))


def comparisons(results: Results) -> list[Bar]:
    """Return every comparison that has an aim."""
    of_constant = _constant_bars(results)
    constant = [replace(bar, name=f"constant straggler, {bar.name}") for bar in of_constant]
    return [*constant, *_transient_bars(results), *_free_bars(results)]


def _constant_bars(results: Results) -> Iterator[Bar]:
    backup, plain = (ALL_MODES[mode].title for mode in (BACKUP, SYNCHRONOUS))
    kept = _ratio(results, (CONSTANT, BACKUP), (modes.EVEN, BACKUP), rates)
    yield Bar(f"{backup}: rounds/s over its own without one", kept, 0.8)
    slow = results.find(CONSTANT, SYNCHRONOUS)
    pace = rate(slow).median * modes.SLOW_FACTOR * modes.STEP_S if slow else None
    yield Bar.cost(f"{plain}: rounds/s over the straggler's steps/s", pace, 1.1)
    for other in (ASYNCHRONOUS, SYNCHRONOUS):
        name = f"time to {GOAL:g} test accuracy, {backup} over {ALL_MODES[other].title}"
        yield Bar.cost(name, _goal_ratio(results, (CONSTANT, BACKUP), (CONSTANT, other)), 1.0)
    for other in (ASYNCHRONOUS, SYNCHRONOUS):
        gained = gain(results, CONSTANT, BACKUP, other)
        name = f"final accuracy in points, {backup} minus {ALL_MODES[other].title}"
        points = None if gained is None else 100 * gained.low
        yield Bar(f"{name}, low end of its 95 % interval", points, 0.0)


def _transient_bars(results: Results) -> Iterator[Bar]:
    title = f"transient stragglers, {ALL_MODES[modes.BOUNDED].title}"
    place = (modes.TRANSIENT, modes.BOUNDED)
    ratio = _ratio(results, place, (modes.TRANSIENT, ASYNCHRONOUS), rates)
    yield Bar(f"{title}: updates/s over asynchronous", ratio, 0.8)
    case = results.find(*place)
    gap = None if case is None else largest_gap_steps(case)
    yield Bar.cost(f"{title}: largest gap, steps", gap, modes.BOUND_STEPS)


def _free_bars(results: Results) -> Iterator[Bar]:
    speed = _ratio(results, (modes.FREE, SYNCHRONOUS), (modes.FREE, ASYNCHRONOUS), applied_rates)
    yield Bar("no waits, synchronous: examples/s over asynchronous", speed, 0.75)
    local = modes.LOCAL[COMPARED_STEPS]
    place, plain = (modes.COUNTED, local), (modes.COUNTED, ASYNCHRONOUS)
    traffic = results.ratio(place, plain, bytes_per_example)
    name = f"no waits, {ALL_MODES[local].title}: bytes per example over asynchronous"
    yield Bar.cost(name, traffic, TRAFFIC_AIM)


def _pairs(
    results: Results, place: Place, to: Place, by_seed: Callable[[Case], Mapping[int, Value]]
) -> list[tuple[Value, Value]]:
    """Return the values of two cases for each seed that both have trained with."""
    ours, theirs = results.find(*place), results.find(*to)
    if ours is None or theirs is None:
        return []
    found, others = by_seed(ours), by_seed(theirs)
    return [(found[seed], others[seed]) for seed in sorted(found.keys() & others.keys())]


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.median(found) if found else None


def _ratio(
    results: Results, place: Place, to: Place, by_seed: Callable[[Case], Mapping[int, float]]
) -> float | None:
    """Return the median of the ratios, seed by seed; None where no seed has met both."""
    return _median(ours / theirs for ours, theirs in _pairs(results, place, to, by_seed))


def _goal_ratio(results: Results, place: Place, to: Place) -> float | None:
    """Compare the times to the goal; one that is not reached counts as reached at the end.

    This favours a training that does not reach it: the true ratio is further from 1.
    """

    def arrivals_s(case: Case) -> dict[int, tuple[float, float]]:
        """Return the seconds to the goal and to the end of each training, by seed."""
        return {seed: (at_s, ends_s(case)[seed]) for seed, at_s in goal_s(case).items()}

    pairs = _pairs(results, place, to, arrivals_s)
    arrived = [(ours, theirs) for ours, theirs in pairs if min(ours[0], theirs[0]) < NEVER_S]
    return _median(min(ours) / min(theirs) for ours, theirs in arrived)
