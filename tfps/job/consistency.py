"""The consistency mode that a job file describes."""

from __future__ import annotations

from tfps.config.schema import ConsistencySection, JobConfig
from tfps.consistency.modes import (
    Asynchronous,
    BoundedStaleness,
    Mode,
    Synchronous,
    applies_each_gradient,
    backup_problem,
)


def mode_of(section: ConsistencySection) -> Mode:
    """Return the mode of ``[consistency]``."""
    modes: dict[str, Mode] = {
        "asynchronous": Asynchronous(pipeline_steps=section.pipeline_steps),
        "synchronous": Synchronous(section.backup_workers),
        "bounded_staleness": BoundedStaleness(section.bound_steps),
    }
    return modes[section.mode]


def consistency_problems(config: JobConfig) -> list[str]:
    """Return a sentence for everything that the chosen mode cannot be combined with."""
    section, problems = config.consistency, []
    if config.training.optimizer.name == "dana" and not applies_each_gradient(mode_of(section)):
        problems.append(
            f"training.optimizer.name: received 'dana' with consistency.mode = {section.mode!r}; "
            "expected 'asynchronous' or 'bounded_staleness': it has a momentum for each worker, "
            "and their gradients are applied together there"
        )
    if section.backup_workers and section.mode != "synchronous":
        problems.append(
            f"consistency.backup_workers: received {section.backup_workers} with {section.mode}; "
            "expected 0: only synchronous training has rounds that need not wait for all"
        )
    if section.mode == "asynchronous":
        return problems
    if section.pipeline_steps:
        problems.append(
            f"consistency.pipeline_steps: received 1 with {section.mode}; expected 0: a worker "
            "that may have to wait sends nothing ahead"
        )
    return problems


def cluster_problems(config: JobConfig) -> list[str]:
    """Return what the mode cannot do with the workers of a local cluster."""
    section = config.consistency
    problem = backup_problem(section.backup_workers, workers=config.cluster.workers)
    return [f"consistency.backup_workers: {problem}"] if problem else []
