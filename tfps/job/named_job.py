"""What a job file says about the name of its job, and where a training of that name goes on."""

from __future__ import annotations

from tfps.config import JobConfig
from tfps.strategy.job import name_problem, room_problem


def naming_problems(config: JobConfig) -> list[str]:
    """Return a sentence for everything that ``[job]`` says and that cannot count."""
    job, problems = config.job, []
    if problem := name_problem(job.name):
        problems.append(f"job.name: {problem.removesuffix(', or None')}, or the key left out")
    if job.fresh and job.name is None:
        problems.append(
            "job.fresh: received true without job.name; set job.name, or leave it out: a job "
            "without a name always begins anew"
        )
    return problems


def room_problems(config: JobConfig, *, workers: int) -> list[str]:
    """Return a sentence if the cluster has more workers than servers shall have room for."""
    problem = room_problem(config.cluster.max_workers, workers=workers)
    if problem is None:
        return []
    return [f"cluster.max_workers: {problem.removesuffix(', or None')}, or the key left out"]


def first_epoch(*, examples_seen: int, epoch_examples: int | None, epochs: int) -> int:
    """Return with which epoch a training goes on, counted from 0.

    One that was interrupted begins again; so does the last one of a training that had ended, since
    its model and its results are not there.

    Args:
        examples_seen: by the job so far.
        epoch_examples: how many an epoch has; None, which nobody knows: it begins with the first.
        epochs: of the whole training.

    Example:

    >>> [first_epoch(examples_seen=n, epoch_examples=100, epochs=3) for n in (0, 99, 250, 300)]
    [0, 0, 2, 2]
    """
    return min(examples_seen // epoch_examples, epochs - 1) if epoch_examples else 0
