"""What a job file says about lost parameter servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tfps.config.schema import JobConfig
from tfps.launch.folder import folder_problem

if TYPE_CHECKING:
    from tfps.recovery.recovery import Recovery

FOLDER = "checkpoints"  # below training.output


def recovery_of(config: JobConfig) -> Recovery | None:
    """Return what ``[recovery]`` asks for; None where it has no ``every_steps``.

    Example:

    >>> recovery_of(JobConfig.model_validate({"recovery": {"every_steps": 500}})).checkpoints
    PosixPath('runs/job/checkpoints')
    """
    from tfps.recovery.recovery import Recovery  # it imports TensorFlow, and a check needs none

    section = config.recovery
    if section.every_steps is None:
        return None
    return Recovery(
        checkpoints=_folder(config),
        every_steps=section.every_steps,
        on_lost_server=section.on_lost_server,
    )


def recovery_problems(config: JobConfig) -> list[str]:
    """Return a sentence for everything that ``[recovery]`` cannot be combined with."""
    section = config.recovery
    if section.every_steps is None:
        without = {"checkpoints": section.checkpoints, "on_lost_server": section.on_lost_server}
        return [
            f"recovery.{name}: received {value!r} without recovery.every_steps; set "
            "recovery.every_steps, for example to 500, or leave it out: nothing else saves the "
            "checkpoints that a lost server is restored from"
            for name, value in without.items()
            if value != type(section)().model_dump()[name]
        ]
    return []


def folder_problems(config: JobConfig) -> list[str]:
    """Return why the checkpoints cannot be written where they shall be; writes nothing."""
    if config.recovery.every_steps is None or config.recovery.checkpoints is None:
        return []  # the output folder is looked at anyway
    problem = folder_problem(_folder(config), name="recovery.checkpoints")
    return [problem] if problem else []


def _folder(config: JobConfig) -> Path:
    return Path(config.recovery.checkpoints or Path(config.training.output) / FOLDER)
