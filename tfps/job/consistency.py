"""The consistency mode that a job file describes."""

from __future__ import annotations

from tfps.config.schema import ConsistencySection, JobConfig
from tfps.consistency.local_steps import LocalSteps
from tfps.consistency.modes import (
    Asynchronous,
    BoundedStaleness,
    Mode,
    Synchronous,
    backup_problem,
)

# What needs the gradient of each worker and step by itself.
APPLIES_EACH_GRADIENT = ("asynchronous", "bounded_staleness")


def mode_of(section: ConsistencySection) -> Mode:
    """Return the mode of ``[consistency]``."""
    warm_up = section.warm_up_steps
    if section.mode == "local_steps":
        return LocalSteps(
            section.period_steps,
            synchronous=section.synchronous_periods,
            elasticity=section.elasticity,
            warm_up_steps=warm_up,
        )
    modes: dict[str, Mode] = {
        "asynchronous": Asynchronous(section.pipeline_steps, warm_up),
        "synchronous": Synchronous(section.backup_workers, warm_up),
        "bounded_staleness": BoundedStaleness(section.bound_steps, warm_up),
    }
    return modes[section.mode]


def consistency_problems(config: JobConfig) -> list[str]:
    """Return a sentence for everything that the chosen mode cannot be combined with."""
    section, problems = config.consistency, _local_problems(config.consistency)
    if config.training.optimizer.name == "dana" and section.mode not in APPLIES_EACH_GRADIENT:
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
    if config.training.loop == "custom":
        problems.append(
            f"training.loop: received 'custom' with consistency.mode = {section.mode!r}; expected "
            "'fit': scheduled functions have no steps to keep workers together by"
        )
    return problems


def _local_problems(section: ConsistencySection) -> list[str]:
    is_local = section.mode == "local_steps"
    problems = []
    if section.elasticity is not None and (section.synchronous_periods or not is_local):
        where = "synchronous_periods = true" if is_local else f"mode = {section.mode!r}"
        problems.append(
            f"consistency.elasticity: received {section.elasticity} with {where}; expected it left "
            "out: it is of local steps whose workers do not meet"
        )
    if section.synchronous_periods and not is_local:
        problems.append(
            f"consistency.synchronous_periods: received true with mode = {section.mode!r}; "
            "expected false: only local steps have periods"
        )
    return problems


def cluster_problems(config: JobConfig) -> list[str]:
    """Return what the mode cannot do with the workers of a local cluster."""
    section = config.consistency
    problem = backup_problem(section.backup_workers, workers=config.cluster.workers)
    return [f"consistency.backup_workers: {problem}"] if problem else []
