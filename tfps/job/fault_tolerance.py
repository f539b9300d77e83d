"""Reads the sections of a job file about dead tasks and lost parameter servers."""

from __future__ import annotations

from pathlib import Path

from tfps.config.schema import JobConfig
from tfps.folder import folder_problem
from tfps.recovery.fault_tolerance import FaultTolerance

FOLDER = "checkpoints"  # below training.output


def goes_on_later(config: JobConfig) -> bool:
    """Return whether `fit` saves, so that the same command goes on with an unfinished run.

    A job with a name goes on with what its servers hold instead.
    """
    recovery = config.recovery
    return config.job.name is None and (recovery.every_s != 0 or recovery.every_steps is not None)


def fault_tolerance_of(config: JobConfig) -> FaultTolerance:
    """Return the settings of ``[restarts]`` and ``[recovery]``; the schema has checked each value.

    Example:

    >>> fault_tolerance_of(JobConfig()).checkpoints
    PosixPath('runs/job/checkpoints')
    """
    recovery, restarts = config.recovery, config.restarts.model_dump()
    saves = goes_on_later(config)
    has_copies = "all_reduce" in (config.placement.policy, *config.placement.rules.values())
    every_steps = None if saves else recovery.every_steps  # else tfps.callbacks.Resume saves
    keeps_servers = every_steps is not None or (saves and not has_copies)
    return FaultTolerance(
        checkpoints=checkpoint_folder(config) if keeps_servers else None,
        every_steps=every_steps,
        on_lost_server=recovery.on_lost_server,
        restart_budget=restarts.pop("budget"),
        **restarts,
    )


def restarts_problems(config: JobConfig, *, workers: int) -> list[str]:
    """Return a sentence for each setting that does not fit a cluster of this size."""
    problems = fault_tolerance_of(config).size_problems(workers=workers)
    return [f"restarts.{text}" for text in problems]


def recovery_problems(config: JobConfig) -> list[str]:
    """Return a sentence for each setting of ``[recovery]`` that has no effect."""
    section = config.recovery
    if goes_on_later(config) or section.every_steps is not None:
        return []
    without = {"checkpoints": section.checkpoints, "on_lost_server": section.on_lost_server}
    return [
        f"recovery.{name}: received {value!r}, but nothing is saved, expected both; set "
        "recovery.every_steps, for example to 500, to save checkpoints, or remove "
        f"recovery.{name}"
        for name, value in without.items()
        if value != type(section)().model_dump()[name]
    ]


def folder_problems(config: JobConfig) -> list[str]:
    """Return why the folder of checkpoints cannot be written to; writes nothing."""
    if fault_tolerance_of(config).checkpoints is None or config.recovery.checkpoints is None:
        return []  # the output folder is looked at anyway
    problem = folder_problem(checkpoint_folder(config), name="recovery.checkpoints")
    return [problem] if problem else []


def checkpoint_folder(config: JobConfig) -> Path:
    """Return the folder of the checkpoints."""
    return Path(config.recovery.checkpoints or Path(config.training.output) / FOLDER)
