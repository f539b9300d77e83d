"""Checks the ``[job]`` section of a job file, and finds the epoch at which a job goes on."""

from __future__ import annotations

from tfps.config import JobConfig
from tfps.strategy.job import max_workers_problem, name_problem


def naming_problems(config: JobConfig) -> list[str]:
    """Return a sentence for each setting of ``[job]`` that is invalid or has no effect."""
    job, problems = config.job, []
    if problem := name_problem(job.name):
        problems.append(f"job.name: {problem.removesuffix(', or None')}, or no such key")
    if job.fresh and job.name is None:
        problems.append(
            "job.fresh: received true without job.name, expected both; set job.name, or remove "
            "job.fresh: a job without a name always starts from scratch"
        )
    return problems


def room_problems(config: JobConfig, *, workers: int) -> list[str]:
    """Return a sentence if ``cluster.max_workers`` is below the cluster's number of workers."""
    problem = max_workers_problem(config.cluster.max_workers, workers=workers)
    if problem is None:
        return []
    return [f"cluster.max_workers: {problem.removesuffix(', or None')}, or no such key"]


def first_epoch(*, examples_seen: int, epoch_examples: int | None, epochs: int) -> int:
    """Return the epoch at which a training goes on, counted from 0.

    An interrupted epoch begins again. So does the last one of a training that had ended, since its
    model and its results were not written.

    Args:
        examples_seen: the number of examples that the job has trained on so far.
        epoch_examples: the number of examples of an epoch; None if it is not known: then the
            training begins with the first epoch.
        epochs: the number of epochs of the whole training.

    Example:

    >>> [first_epoch(examples_seen=n, epoch_examples=100, epochs=3) for n in (0, 99, 250, 300)]
    [0, 0, 2, 2]
    """
    return min(examples_seen // epoch_examples, epochs - 1) if epoch_examples else 0
