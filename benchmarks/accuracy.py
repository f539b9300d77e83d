"""The test accuracy of trainings: when it reached the goal, and what it was at the end."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.results import Case
from benchmarks.table import number_text

GOAL = 0.85
NEVER_S = float("inf")


def accuracy_of(weights: Sequence[np.ndarray], inputs: np.ndarray, labels: np.ndarray) -> float:
    """Return the accuracy of dense layers with ReLU, from their weights.

    In NumPy: a benchmark looks at a model that goes on training, and must take little of the
    machine for it. The weights are kernel, bias, kernel, bias ...
    """
    values = inputs.reshape(len(inputs), -1)
    for kernel, bias in zip(weights[::2], weights[1::2], strict=True):
        if kernel is not weights[0]:
            values = np.maximum(values, 0)
        values = values @ kernel + bias
    return float(np.mean(values.argmax(axis=1) == labels))


def seconds_to_goal(curve: Iterable[Sequence[float]]) -> float:
    """Return the seconds until the accuracy first reached the goal; `NEVER_S` if it did not.

    >>> seconds_to_goal([(0.0, 0.1), (1.5, 0.86), (2.0, 0.84)])
    1.5
    """
    return min((at_s for at_s, accuracy in curve if accuracy >= GOAL), default=NEVER_S)


def goal_s(case: Case) -> dict[int, float]:
    """Return the seconds in which each training of a case reached the goal, by seed."""
    return case.by_seed(lambda run: seconds_to_goal(run["curve"]))


def ends_s(case: Case) -> dict[int, float]:
    """Return the duration of each training of a case in seconds, by seed."""
    return case.by_seed(lambda run: run["curve"][-1][0])


def goal_text(case: Case) -> str:
    """Return the median time to the goal; one that is not reached is later than any that is."""
    times_s = goal_s(case)
    median_s = statistics.median(times_s.values())
    if median_s < NEVER_S:
        return number_text(median_s)
    return f"> {min(ends_s(case)[seed] for seed, at_s in times_s.items() if at_s == NEVER_S):.0f}"


def final_accuracy(case: Case) -> dict[int, float]:
    """Return the accuracy at the end of each training of a case, by seed."""
    return case.by_seed(lambda run: run["curve"][-1][1])


def goal_json(case: Case) -> dict[int, float | None]:
    """Return the seconds to the goal for the report, by seed; None if it was not reached."""
    times_s = goal_s(case).items()
    return {seed: None if at_s == NEVER_S else round(at_s, 2) for seed, at_s in times_s}


def curves_json(case: Case) -> dict[int, list[tuple[float, float]]]:
    """Return seconds and accuracy in the form of the report, by seed."""
    return case.by_seed(lambda run: [(round(at_s, 2), round(a, 4)) for at_s, a in run["curve"]])
