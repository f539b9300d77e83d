"""What trainings under different modes are compared by, and what has an aim.

Modes are compared seed by seed: with one seed both have met the same delays.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace

from tfps.bench.accuracy import GOAL, NEVER_S, ends_s, final_accuracy, goal_s
from tfps.bench.example_bytes import bytes_per_example
from tfps.bench.interval import Interval
from tfps.bench.modes import (
    ADAPTIVE,
    ALL_MODES,
    ASYNCHRONOUS,
    BACKUP,
    BOUND_RANGE_STEPS,
    BOUND_STEPS,
    BOUNDED,
    CONSTANT,
    COUNTED,
    DYNAMIC,
    EVEN,
    FREE,
    LOCAL,
    SLOW_FACTOR,
    STEP_S,
    SYNCHRONOUS,
    TRANSIENT,
)
from tfps.bench.results import Bar, Case, Results, Spread

COMPARED_STEPS = 16  # a period whose bytes have an aim
# Three workers of which one takes five times as long are worth 2.2 of three; some of that goes into
# rounding, and a straggler's one batch may be more than its share.
ADAPTIVE_AIM = 0.65
TRAFFIC_AIM = 0.07  # of what an exchange per step takes: 1 / 16, and the beginning

Place = tuple[str, str]  # a scenario and a mode
BySeed = Callable[[Case], Mapping[int, float]]


def rates(case: Case, count: str = "updates") -> dict[int, float]:
    """How often something was counted in a second, by seed."""
    pairs = zip(case.runs.items(), case.samples, strict=True)
    return {seed: int(run[count]) / sample.seconds for (seed, run), sample in pairs}


def example_rates(case: Case, batch_size: int = 1) -> dict[int, float]:
    """Examples per second of gradients that were applied, not of those that were dropped."""
    # While the clock ran; a run's own number of examples is that of the whole training.
    pairs = zip(case.runs.items(), case.samples, strict=True)
    return {
        seed: int(batch_size * (sample.steps - run["dropped"])) / sample.seconds
        for (seed, run), sample in pairs
    }


def rate(case: Case, count: str = "updates") -> Spread:
    """As `rates`, of all seeds."""
    return Spread.of(rates(case, count).values())


def examples_per_s(case: Case, batch_size: int) -> Spread:
    """As `example_rates`, of all seeds."""
    return Spread.of(example_rates(case, batch_size).values())


def largest_gap_steps(case: Case) -> int | None:
    """The largest difference of completed steps at a gate; None without one."""
    gaps = [run["largest_gap_steps"] for run in case.runs.values()]
    return None if None in gaps else max(gaps)


def gain(results: Results, scenario: str, mode: str, over: str) -> Interval | None:
    """Final accuracy minus another mode's, seed by seed; None of less than two seeds."""
    ours, theirs = results.find(scenario, mode), results.find(scenario, over)
    if ours is None or theirs is None:
        return None
    return Interval.of_seeds(final_accuracy(ours), final_accuracy(theirs))


def comparisons(results: Results) -> list[Bar]:
    """Every comparison that has an aim."""
    return [*_constant_bars(results), *_transient_bars(results), *_free_bars(results)]


def _constant_bars(results: Results) -> list[Bar]:
    backup, plain, adaptive = (ALL_MODES[mode].title for mode in (BACKUP, SYNCHRONOUS, ADAPTIVE))
    slow = results.find(CONSTANT, SYNCHRONOUS)
    straggler_steps_per_s = 1 / (SLOW_FACTOR * STEP_S)
    pace = rate(slow).median / straggler_steps_per_s if slow else None
    of_backup = _ratio(results, (CONSTANT, BACKUP), (EVEN, BACKUP))
    of_adaptive = _ratio(results, (CONSTANT, ADAPTIVE), (EVEN, ADAPTIVE), example_rates)
    others = {mode: ALL_MODES[mode].title for mode in (ASYNCHRONOUS, SYNCHRONOUS)}
    bars = [
        Bar(f"{backup}: rounds/s over its own without one", of_backup, 0.8),
        Bar(f"{plain}: rounds/s over the straggler's steps/s", pace, 1.1, is_cost=True),
        Bar(f"{adaptive}: examples/s over its own without one", of_adaptive, ADAPTIVE_AIM),
    ]
    for other, title in others.items():
        name = f"time to {GOAL:g} test accuracy, {backup} over {title}"
        ratio = _goal_ratio(results, CONSTANT, BACKUP, other)
        bars.append(Bar(name, ratio, 1.0, is_cost=True))
    for other, title in others.items():
        gained = gain(results, CONSTANT, BACKUP, other)
        name = f"final accuracy in points, {backup} minus {title}, low end of its 95 % interval"
        bars.append(Bar(name, None if gained is None else 100 * gained.low, 0.0))
    return [replace(bar, name=f"constant straggler, {bar.name}") for bar in bars]


def _transient_bars(results: Results) -> list[Bar]:
    bars = []
    for mode, largest in (
        (BOUNDED, BOUND_STEPS),
        (DYNAMIC, BOUND_RANGE_STEPS[1]),
    ):
        title = f"transient stragglers, {ALL_MODES[mode].title}"
        ratio = _ratio(results, (TRANSIENT, mode), (TRANSIENT, ASYNCHRONOUS))
        case = results.find(TRANSIENT, mode)
        gap = None if case is None else largest_gap_steps(case)
        bars += [
            Bar(f"{title}: updates/s over asynchronous", ratio, 0.8),
            Bar(f"{title}: largest gap, steps", gap, largest, is_cost=True),
        ]
    return bars


def _free_bars(results: Results) -> list[Bar]:
    local = LOCAL[COMPARED_STEPS]
    speed = _ratio(results, (FREE, SYNCHRONOUS), (FREE, ASYNCHRONOUS), example_rates)
    traffic = results.ratio((COUNTED, local), (COUNTED, ASYNCHRONOUS), bytes_per_example)
    name = f"no waits, {ALL_MODES[local].title}: bytes per example over asynchronous"
    return [
        Bar("no waits, synchronous: examples/s over asynchronous", speed, 0.75),
        Bar(name, traffic, TRAFFIC_AIM, is_cost=True),
    ]


def _ratio(results: Results, place: Place, to: Place, by_seed: BySeed = rates) -> float | None:
    """The median of the ratios, seed by seed; None where no seed has met both."""
    ours, theirs = results.find(*place), results.find(*to)
    if ours is None or theirs is None:
        return None
    found, others = by_seed(ours), by_seed(theirs)
    seeds = sorted(set(found) & set(others))
    return statistics.median(found[seed] / others[seed] for seed in seeds) if seeds else None


def _goal_ratio(results: Results, scenario: str, mode: str, over: str) -> float | None:
    """The median of the ratios, seed by seed; who does not arrive does so at the very end.

    That is too kind to the one that does not arrive: the ratio is then nearer to 1 than it is.
    """
    ours, theirs = results.find(scenario, mode), results.find(scenario, over)
    if ours is None or theirs is None:
        return None
    our_s, their_s = goal_s(ours), goal_s(theirs)
    ratios = [
        min(our_s[seed], ends_s(ours)[seed]) / min(their_s[seed], ends_s(theirs)[seed])
        for seed in sorted(set(our_s) & set(their_s))
        if min(our_s[seed], their_s[seed]) < NEVER_S
    ]
    return statistics.median(ratios) if ratios else None
