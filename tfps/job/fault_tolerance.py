"""Reads the sections of a job file about dead tasks and lost parameter servers."""

from __future__ import annotations

from pathlib import Path

from tfps.config.schema import JobConfig
from tfps.folder import folder_problem
from tfps.recovery.fault_tolerance import FaultTolerance

FOLDER = "checkpoints"  # below training.output


def fault_tolerance_of(config: JobConfig) -> FaultTolerance:
    """Return the settings of ``[restarts]`` and ``[recovery]``; the schema has checked each value.

    Example:

    >>> config = JobConfig.model_validate({"recovery": {"every_steps": 500}})
    >>> fault_tolerance_of(config).checkpoints
    PosixPath('runs/job/checkpoints')
    """
    recovery, restarts = config.recovery, config.restarts.model_dump()
    return FaultTolerance(
        checkpoints=None if recovery.every_steps is None else _folder(config),
        every_steps=recovery.every_steps,
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
    if section.every_steps is None:
        without = {"checkpoints": section.checkpoints, "on_lost_server": section.on_lost_server}
        return [
            f"recovery.{name}: received {value!r} without recovery.every_steps, expected both; "
            "set recovery.every_steps, for example to 500, to save checkpoints, or remove "
            f"recovery.{name}"
            for name, value in without.items()
            if value != type(section)().model_dump()[name]
        ]
    return []


def folder_problems(config: JobConfig) -> list[str]:
    """Return why the folder of checkpoints cannot be written to; writes nothing."""
    if config.recovery.every_steps is None or config.recovery.checkpoints is None:
        return []  # the output folder is looked at anyway
    problem = folder_problem(_folder(config), name="recovery.checkpoints")
    return [problem] if problem else []


def _folder(config: JobConfig) -> Path:
    return Path(config.recovery.checkpoints or Path(config.training.output) / FOLDER)
