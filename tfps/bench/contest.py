"""How contestants did: their best learning rates, accuracies, and gains over plain optimizers.

A contestant is a case in each of two phases: it tries learning rates, and is compared.
"""

from __future__ import annotations

from typing import Any

from tfps.bench.contestants import BASES, CONTESTANTS
from tfps.bench.interval import Interval
from tfps.bench.report import Spread
from tfps.bench.results import Results
from tfps.bench.staleness_counts import added_up, from_json

TUNE, COMPARE = "tune", "compare"


def bases(results: Results) -> list[str]:
    """The plain optimizers that took part."""
    return [base for base in BASES if of_base(results, base)]


def of_base(results: Results, base: str) -> list[str]:
    """Its contestants that were compared, in their order."""
    found = results.on("optimizer")
    return [name for name, c in CONTESTANTS.items() if name in found and c.base == base]


def tuning(results: Results, name: str) -> dict[float, float]:
    """Learning rate -> accuracy on the held-out images."""
    runs = [run for case in results.of(optimizer=name, phase=TUNE) for run in case.runs.values()]
    return {run["learning_rate"]: run["validation_accuracy"] for run in runs}


def best_rate(results: Results, name: str) -> float:
    """The learning rate with the best accuracy; the smaller one of two that are equal."""
    found = tuning(results, name)
    return min(found, key=lambda rate: (-found[rate], rate))


def accuracies(results: Results, name: str) -> dict[int, float]:
    """On the test images, by seed."""
    runs = [run for case in results.of(optimizer=name, phase=COMPARE) for run in case.runs.values()]
    return {run["seed"]: run["test_accuracy"] for run in runs}


def accuracy(results: Results, name: str) -> Spread:
    """On the test images, over the seeds."""
    return Spread.of(list(accuracies(results, name).values()))


def staleness_updates(results: Results, **axes: Any) -> dict[int, int]:
    """Staleness -> number of gradients, of all trainings of a contestant or of all of them."""
    runs = [run for case in results.of(**axes) for run in case.runs.values()]
    return added_up(from_json(run["staleness_updates"]) for run in runs)


def gain(results: Results, name: str) -> Interval | None:
    """Test accuracy minus that of the plain optimizer, seed by seed; None of itself."""
    base = CONTESTANTS[name].base
    if name == base:
        return None
    return Interval.of_seeds(accuracies(results, name), accuracies(results, base))


def helpers(results: Results, base: str) -> list[str]:
    """Those that end better than the plain optimizer with the interval's confidence."""
    gains = {name: gain(results, name) for name in of_base(results, base)}
    return [name for name, gained in gains.items() if gained is not None and gained.low > 0]
