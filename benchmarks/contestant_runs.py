"""The accuracies at the end of an optimizer's trainings, and comparisons with another one.

A case has all trainings of an optimizer in a scenario. Those with `TUNING_SEED` try learning rates;
those with other seeds have the best one, and are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.contestants import CONTESTANTS
from benchmarks.interval import Interval
from benchmarks.results import Case, Results

TUNING_SEED = 0  # the others are counted from 1: no learning rate is chosen for them
SYNCHRONOUS = "synchronous"  # the scenario in which no gradient is stale
SCHEDULED = "scheduled"  # every gradient is stale, and the learning rate follows a schedule
SCHEDULED_SYNCHRONOUS = "synchronous_scheduled"  # that schedule, and no gradient is stale


def tuning(trainings: Iterable[Mapping[str, Any]]) -> dict[float, float]:
    """Learning rate -> accuracy on the held-out images."""
    tried = (each for each in trainings if each["seed"] == TUNING_SEED)
    return {each["learning_rate"]: each["validation_accuracy"] for each in tried}


def best_rate(trainings: Iterable[Mapping[str, Any]]) -> float:
    """Return the learning rate with the best accuracy; the smaller one of two that are equal."""
    found = tuning(trainings)
    return min(found, key=lambda rate: (-found[rate], rate))


def learning_rate(case: Case) -> float:
    """Return the best learning rate of a case."""
    return best_rate(case.runs.values())


def accuracies(case: Case) -> dict[int, float]:
    """On the test images, by seed."""
    compared = (each for each in case.runs.values() if each["seed"] != TUNING_SEED)
    return {each["seed"]: each["test_accuracy"] for each in compared}


def base_of(case: Case) -> str:
    """Return the plain optimizer with which a case is compared."""
    return CONTESTANTS[case["optimizer"]].base


def fresh_scenario(scenario: str) -> str:
    """Return the scenario without staleness with which one is compared."""
    return SCHEDULED_SYNCHRONOUS if scenario == SCHEDULED else SYNCHRONOUS


def minus_plain(results: Results, case: Case) -> Interval | None:
    """Return the gain over the plain optimizer of its base, equally stale; None for itself."""
    return _minus(case, results.find(case["scenario"], base_of(case)))


def minus_synchronous(results: Results, case: Case) -> Interval | None:
    """Return the loss against the plain optimizer of its base where no gradient is stale."""
    return _minus(case, results.find(fresh_scenario(case["scenario"]), base_of(case)))


def _minus(case: Case, other: Case | None) -> Interval | None:
    """Test accuracy minus that of another one, seed by seed."""
    if other is None or other is case:
        return None
    return Interval.of_seeds(accuracies(case), accuracies(other))


def is_better_than_plain(results: Results, case: Case) -> bool:
    """Return whether it ends better than the plain optimizer with the interval's confidence."""
    gained = minus_plain(results, case)
    return gained is not None and gained.low > 0


def nearest(results: Results, cases: Sequence[Case]) -> tuple[Case, Interval] | None:
    """Return the case with the smallest mean loss against synchronous training, and that loss."""
    gaps = [(case, minus_synchronous(results, case)) for case in cases]
    known = [(case, gap) for case, gap in gaps if gap is not None]
    return max(known, key=lambda pair: pair[1].mean, default=None)
