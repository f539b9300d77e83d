"""`tfps check`: everything that can be known about a job without starting it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfps.cluster import ClusterSpec
from tfps.config import JobConfig, load, salvage
from tfps.errors import ConfigError, DataError
from tfps.job import bundle
from tfps.job.consistency import consistency_problems
from tfps.job.optimizer import argument_problems, staleness_problems
from tfps.job.partitioner import partitioner_problems
from tfps.job.placement import placement_problems


@dataclass(frozen=True)
class Checked:
    """A job without mistakes.

    Args:
        path: of its file.
        config: with defaults and overrides.
        data: what the data would be, in words.
        spec: the cluster of `TF_CONFIG`; None where it is not set.
    """

    path: Path
    config: JobConfig
    data: str
    spec: ClusterSpec | None


def check_job(config_argument: str | None, overrides: Sequence[str] = ()) -> Checked:
    """Check a job's file, its overrides, its data files, its optimizer and `TF_CONFIG`.

    Nothing is started, downloaded or written.

    Args:
        config_argument: path of the file, or name of a shipped one; None is the reference job.
        overrides: ``key=value`` each.

    Raises:
        ConfigError: everything that is wrong, at once.
    """
    path = bundle.config_path(config_argument)
    problems: list[str] = []
    try:
        load(path, overrides)
    except ConfigError as error:
        problems += error.problems
    # What is right can still be checked against the machine.
    config, wrong = salvage(path, overrides)
    data = ""
    if not _touches(wrong, "example", "data.source", "data.path"):
        try:
            example = bundle.example(config.example)
            data = example.data.check(source=config.data.source, path=config.data.path)
        except ConfigError as error:
            problems += error.problems
        except DataError as error:
            problems += [f"data: {line}" for line in str(error).splitlines()]
    if not _touches(wrong, "training.optimizer.name"):
        problems += argument_problems(config.training.optimizer)
        problems += staleness_problems(config.training)
    if not _touches(wrong, "consistency", "training.loop"):
        problems += consistency_problems(config)
    if not _touches(wrong, "partitioner"):
        problems += partitioner_problems(config.partitioner)
    if not _touches(wrong, "placement"):
        problems += placement_problems(config.placement)
    if not _touches(wrong, "training.output"):
        problems += _output_problems(Path(config.training.output))
    spec = None
    try:
        spec = cluster_of_environment()
    except ConfigError as error:
        problems += [f"TF_CONFIG: {problem}" for problem in error.problems]
    if problems:
        raise ConfigError(problems, source=str(path))
    return Checked(path=path, config=config, data=data, spec=spec)


def _touches(wrong: frozenset[str], *keys: str) -> bool:
    """Whether one of these keys was wrong, or a section around it."""
    return any(
        key == path or key.startswith(f"{path}.") or not path for path in wrong for key in keys
    )


def cluster_of_environment() -> ClusterSpec | None:
    """The cluster of `TF_CONFIG`; None where it is not set.

    Raises:
        ConfigError: it is set and wrong.
    """
    return ClusterSpec.from_environment() if os.environ.get("TF_CONFIG", "").strip() else None


def _output_problems(output: Path) -> list[str]:
    existing = next(path for path in (output, *output.absolute().parents) if path.exists())
    if not existing.is_dir():
        return [f"training.output: received {str(output)!r}, but {existing} is a file"]
    if not os.access(existing, os.W_OK):
        return [f"training.output: received {str(output)!r}, but {existing} cannot be written"]
    return []
