"""The test accuracy that trainings are timed to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tfps.bench.case import Case

GOAL = 0.85
NEVER_S = float("inf")


def seconds_to_goal(curve: Iterable[Sequence[float]]) -> float:
    """When the accuracy was first seen to reach the goal; `NEVER_S` if not.

    Args:
        curve: pairs of seconds and accuracy.

    Example:

    >>> seconds_to_goal([(0.0, 0.1), (1.5, 0.86), (2.0, 0.84)])
    1.5
    """
    return min((at_s for at_s, accuracy in curve if accuracy >= GOAL), default=NEVER_S)


def goal_s(case: Case) -> dict[int, float]:
    """When each training of a case reached the goal, by seed; `NEVER_S` if not."""
    return {seed: seconds_to_goal(run["curve"]) for seed, run in case.runs.items()}


def ends_s(case: Case) -> dict[int, float]:
    """When the trainings of a case were over, by seed."""
    return {seed: run["curve"][-1][0] for seed, run in case.runs.items()}


def final_accuracy(case: Case) -> dict[int, float]:
    """What the trainings of a case ended with, by seed."""
    return {seed: run["curve"][-1][1] for seed, run in case.runs.items()}


def curves_json(case: Case) -> dict[int, list[tuple[float, float]]]:
    """Seconds and accuracy in the form of the report, by seed."""
    return {
        seed: [(round(at_s, 2), round(accuracy, 4)) for at_s, accuracy in run["curve"]]
        for seed, run in case.runs.items()
    }
