"""The unfinished run of a job file's folder, with which the same command goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfps.checkpoint.commit import Folder
from tfps.config import JobConfig, load, to_toml
from tfps.folder import hold_folder
from tfps.job.fault_tolerance import checkpoint_folder, goes_on_later

CONFIG_FILE = "config.toml"  # beside the checkpoints of an unfinished run, later in the output
# What a run may go on with although it differs: it changes no number, or how far the run goes.
MAY_DIFFER = ("cluster", "transport", "restarts", "recovery", "training.epochs", "training.output")


def run_problems(config: JobConfig) -> list[str]:
    """Return a sentence for each reason why a run can neither begin nor go on; writes nothing.

    Args:
        config: the job's configuration, with valid values.

    Raises:
        ConfigError: the configuration of the unfinished run cannot be read.
    """
    start = config.recovery.start
    if start == "overwrite":
        return []
    folder = checkpoint_folder(config)
    before = _find_unfinished(config)
    if before is None:
        return [
            f"recovery.start: received 'resume', but {folder} has no unfinished run of this job, "
            "expected one; leave out --resume to begin one"
        ] * (start == "resume")
    old, new = (dict(_flatten(each.model_dump())) for each in (before, config))
    return [
        f"{key}: received {new.get(key)!r}, but the unfinished run in {folder} has "
        f"{old.get(key)!r}; set it back to go on with that run, give this one another "
        "training.output, or replace that run with --overwrite"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
        and not any(key == each or key.startswith(f"{each}.") for each in MAY_DIFFER)
    ]


def begin_run(config: JobConfig) -> bool:
    """Write the configuration beside the checkpoints; return whether an unfinished run goes on.

    If it does not, the checkpoints of earlier runs are deleted.

    Args:
        config: the job's configuration, which has passed `run_problems`.
    """
    if not goes_on_later(config):
        return False
    goes_on = config.recovery.start != "overwrite" and _find_unfinished(config) is not None
    folder = Folder(checkpoint_folder(config))
    hold_folder(folder.path, name="recovery.checkpoints")
    for number in [] if goes_on else folder.numbers():
        folder.delete(number)
    part = folder.path / f"{CONFIG_FILE}.part"
    part.write_text(to_toml(_without_start(config)))
    part.replace(folder.path / CONFIG_FILE)
    return goes_on


def end_run(config: JobConfig) -> None:
    """Move the configuration to the results: the run has finished."""
    output = Path(config.training.output) / CONFIG_FILE
    if goes_on_later(config):
        os.replace(checkpoint_folder(config) / CONFIG_FILE, output)
    else:
        output.write_text(to_toml(_without_start(config)))


def _find_unfinished(config: JobConfig) -> JobConfig | None:
    """Return the configuration of the unfinished run; None if there is none with a checkpoint."""
    folder = Folder(checkpoint_folder(config))
    path = folder.path / CONFIG_FILE
    return load(path) if goes_on_later(config) and path.exists() and folder.numbers() else None


def _without_start(config: JobConfig) -> JobConfig:
    """Return the configuration that repeats the run."""
    recovery = config.recovery.model_copy(update={"start": "auto"})
    return config.model_copy(update={"recovery": recovery})


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
