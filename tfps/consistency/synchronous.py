"""Rounds of all workers: one update applies the mean of their gradients."""

from __future__ import annotations

from dataclasses import dataclass

from tfps.consistency.mode import Mode
from tfps.consistency.warm_up import is_count, warm_up_problems
from tfps.errors import refuse


@dataclass(frozen=True)
class Synchronous(Mode):
    """The mode in which workers compute from the same parameters, and one update applies the mean.

    Use it to get the numbers of one process whose batch is as large as all workers' batches
    together. The workers' gradients of one such update are a round. The mean is weighted by the
    examples of each batch, rows of tables included. Moving averages move once per round, the
    variances of batch normalization as by one batch of all its examples; what batches only add to,
    such as counts, adds up. A round waits for the slowest worker, or, with backup workers, for all
    but the slowest: a later gradient was computed from old parameters and is dropped, its examples
    count as visited, and ``strategy.stats().gradients_dropped`` counts it. Workers that die or hang
    are not waited for; one that comes back takes part from the next round on. Every server holds
    the sum of a round's gradients: as much memory again as its weights.

    In a custom loop each optimizer call of a scheduled function is a round, and all gradients of a
    round weigh the same, since their numbers of examples are not known. A worker takes part while
    it has functions to run. What a function assigns itself is written back at its end.

    Source: Chen et al., "Revisiting Distributed Synchronous SGD", ICLR 2016 workshop track.

    Args:
        backup_workers: the number of workers that a round does not wait for; fewer than there are.
        warm_up_steps: the number of steps of `fit` that each worker first takes on its own copy of
            the weights, before all continue from the mean; see `tfps.consistency.warm_up`.

    Raises:
        ConfigError: a number that is not a whole number from 0.

    Example:

    >>> Synchronous(backup_workers=1)
    Synchronous(backup_workers=1, warm_up_steps=0)
    """

    backup_workers: int = 0
    warm_up_steps: int = 0

    def __post_init__(self) -> None:
        problems = warm_up_problems(self.warm_up_steps)
        if not is_count(self.backup_workers):
            problems.append(
                f"backup_workers: received {self.backup_workers!r}, expected a whole number from "
                "0: the workers that a round may finish without"
            )
        refuse(problems, source="Synchronous")


def backup_problem(backup_workers: int | None, *, workers: int, source: str = "") -> str | None:
    """Return why a number of backup workers does not suit a cluster, or None if it does.

    Args:
        backup_workers: the setting of a mode; None: it has no rounds.
        workers: the number of workers in the cluster.
        source: the setting that has the number of workers, if the message should name it.
    """
    if not backup_workers or backup_workers < workers:
        return None
    there = f"{workers} workers of {source}" if source else f"{workers} workers"
    return (
        f"received backup_workers={backup_workers} with {there}; expected fewer backup workers "
        "than workers, since a round needs at least one"
    )
