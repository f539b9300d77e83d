"""`tfps train` on this machine: a process without TensorFlow that owns all tasks of the job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tfps.job.check import check_start
from tfps.job.fault_tolerance import fault_tolerance_of
from tfps.job.optimizer_arguments import argument_problems_elsewhere
from tfps.launch.folder import make_folder
from tfps.launch.launcher import ChiefProgram, launch
from tfps.recovery.events import EVENTS_FILE

LOGS = "logs"  # below training.output
GO_ON = "job.fresh=false"  # with what is on the servers by now


def run_local_job(config_argument: str | None, overrides: Sequence[str]) -> int:
    """Check a job, start its workers, its servers and its chief, and return the exit status.

    The chief trains and speaks for the job.

    Args:
        config_argument: path of the file, or name of a shipped one; None is the reference job.
        overrides: ``key=value`` each.

    Raises:
        ConfigError: the file or the overrides are wrong; nothing was started.
        ClusterError: the cluster did not come up.
    """
    config = check_start(
        config_argument, overrides, argument_problems=argument_problems_elsewhere
    ).config
    output = make_folder(Path(config.training.output), name="training.output")
    program = ChiefProgram(
        command=_command(config_argument, overrides),
        name="the job",
        next_command=_command(config_argument, [*overrides, GO_ON]) if config.job.name else None,
        speaks_for_all=True,
    )
    return launch(
        program,
        workers=config.cluster.workers,
        ps=config.cluster.ps,
        fault_tolerance=fault_tolerance_of(config),
        log_dir=make_folder(output / LOGS, name="training.output"),
        events=output / EVENTS_FILE,
    )


def _command(config_argument: str | None, overrides: Sequence[str]) -> list[str]:
    """This very job, as its chief runs it."""
    given = [] if config_argument is None else [config_argument]
    changes = [part for override in overrides for part in ("--set", override)]
    return ["train", *changes, "--", *given]
