"""`tfps train`: runs one task of a cluster, or starts a whole cluster on this machine."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tfps.cluster import JOB_ORDER, ClusterSpec, prepare_process, wait_for_tasks
from tfps.config import JobConfig
from tfps.errors import CheckpointError, ClusterError, ConfigError, TfpsError
from tfps.folder import make_folder
from tfps.job.check import check_settings, check_start
from tfps.job.compression import compression_of
from tfps.job.consistency import mode_of
from tfps.job.fault_tolerance import fault_tolerance_of
from tfps.job.job import load_inputs, run_job
from tfps.job.optimizer_arguments import argument_problems_in_subprocess
from tfps.job.partitioner import partitioner_of
from tfps.job.placement import placement_of
from tfps.launch.data_plane import DATA_PORT
from tfps.launch.launcher import ChiefProgram, launch
from tfps.launch.parent import end_with_parent
from tfps.launch.run import run_task
from tfps.launch.script import print_error
from tfps.observe.recorder import RECORD
from tfps.recovery.events import EVENTS_FILE
from tfps.recovery.restarts.task_supervisor import TaskSupervisor, get_supervisor
from tfps.scheduler.client import join_cluster
from tfps.scheduler.settings import has_cluster
from tfps.stop_signals import STOP_SIGNALS
from tfps.terminal import status
from tfps.units import count_tasks, counted

LOGS_FOLDER = "logs"  # below training.output
CONTINUE_JOB = "job.fresh=false"  # keep the servers' variables
POLL_INTERVAL_S = 0.05
REASON_TIMEOUT_S = 2.0  # the parent checks its tasks, and reports, several times a second


def train(config_argument: str | None, overrides: Sequence[str] = ()) -> int:
    """Train the job of a configuration file; return this process's exit status.

    With `TF_CONFIG` set, or the address of a scheduler, play the task's role: a worker and a
    parameter server serve until the chief says how the job ended, the chief trains. Else start a
    cluster of the configured size on this machine, its chief included.

    Args:
        config_argument: path of the file, or name of a shipped one; None is the reference job.
        overrides: ``key=value`` each.

    Raises:
        ConfigError: the file, the overrides or `TF_CONFIG` are invalid.
        DataError: data files are missing, corrupt or truncated.
        ClusterError: the cluster did not start.
    """
    supervised = bool(end_with_parent())
    if not has_cluster():
        return _launch(config_argument, overrides)
    join_cluster(roles=JOB_ORDER, program="tfps train")
    spec = ClusterSpec.from_environment()
    if spec.task_type == "evaluator":
        raise ConfigError(
            "task.type: received 'evaluator', expected chief, worker or ps; run the evaluator with "
            "its own script: tfps run SCRIPT",
            source="TF_CONFIG",
        )
    if spec.task_type in ("worker", "ps"):
        prepare_process(spec.task_type)
        port = check_settings(config_argument, overrides).config.transport.data_port
        if port:
            os.environ.setdefault(DATA_PORT, str(port))
    return run_task(
        spec,
        partial(_train, spec, config_argument, overrides),
        supervised=supervised,
        stopping=STOP_SIGNALS,
        report_error=_report_error,
    )


def _launch(config_argument: str | None, overrides: Sequence[str]) -> int:
    """Check a job, start its workers, its servers and its chief, and return the exit status.

    The chief trains and writes all messages. Another process checks the optimizer's arguments with
    Keras, since this process does not import TensorFlow.
    """
    config = check_start(
        config_argument, overrides, argument_problems=argument_problems_in_subprocess
    ).config
    output = make_folder(Path(config.training.output), name="training.output")
    program = ChiefProgram(
        command=_command(config_argument, overrides),
        name="the job",
        next_command=_command(config_argument, [*overrides, CONTINUE_JOB])
        if config.job.name
        else None,
        reports_failures=True,
    )
    return launch(
        program,
        workers=config.cluster.workers,
        ps=config.cluster.ps,
        fault_tolerance=fault_tolerance_of(config),
        log_dir=make_folder(output / LOGS_FOLDER, name="training.output"),
        events=output / EVENTS_FILE,
    )


def _command(config_argument: str | None, overrides: Sequence[str]) -> list[str]:
    """Return the arguments of `tfps` with which a chief process runs the same job."""
    given = [] if config_argument is None else [config_argument]
    changes = [part for override in overrides for part in ("--set", override)]
    return ["train", *changes, "--", *given]


def say(text: str) -> None:
    """Write a line for the user."""
    print(text, flush=True)


def _train(spec: ClusterSpec, config_argument: str | None, overrides: Sequence[str]) -> None:
    """Train as the chief of a cluster."""
    supervisor = get_supervisor(address for _, _, address in spec.tasks("worker", "ps"))
    config = check_start(config_argument, overrides).config
    os.environ.setdefault(RECORD, config.training.output)
    inputs = load_inputs(config, say=say)
    say(f"data     {inputs.source}: {inputs.sizes()}")
    cluster = f"of TF_CONFIG:\n{spec}"
    if supervisor is not None:
        size = config.cluster
        cluster = (
            f"1 chief, {counted(size.workers, 'worker')}, {counted(size.ps, 'parameter server')} "
            f"on this machine; logs in {Path(config.training.output) / LOGS_FOLDER}"
        )
    connect = partial(_open_strategy, config, spec, cluster=cluster, supervisor=supervisor)
    run_job(config, inputs, connect=connect, say=say)


def _report_error(error: BaseException) -> None:
    """Print the message of a tfps error, and the traceback of any other."""
    if isinstance(error, TfpsError):
        print(f"Error: {error}", file=sys.stderr)
    else:
        print_error(error)


@contextlib.contextmanager
def _open_strategy(
    config: JobConfig, spec: ClusterSpec, *, cluster: str, supervisor: TaskSupervisor | None = None
) -> Iterator[Any]:
    """Yield a strategy over the tasks of `TF_CONFIG`.

    Args:
        config: the job's configuration.
        spec: the cluster.
        cluster: the cluster, as text.
        supervisor: starts the tasks again, if they are the parent's; else None.
    """
    say(f"cluster  {cluster}")
    size = count_tasks(workers=spec.count("worker"), ps=spec.count("ps"))
    with contextlib.ExitStack() as stack:
        with status(f"starting {size}" if supervisor else "waiting for the tasks"):
            resolver = spec.tf_resolver()  # imports TensorFlow while the tasks do
            wait_for_tasks(spec, timeout_s=config.cluster.connect_timeout_s, report=say)
            stack.enter_context(translate_lost_tasks(supervisor))
            strategy = stack.enter_context(strategy_of_job(config, resolver))
        yield strategy


@contextlib.contextmanager
def translate_lost_tasks(supervisor: TaskSupervisor | None = None) -> Iterator[None]:
    """Within the block, replace errors that come from a lost task by `ClusterError`.

    Args:
        supervisor: knows why the job cannot go on; a failed connection may be noticed earlier.

    Raises:
        ClusterError: a task is lost; names the reason, as far as it is known.
    """
    try:
        yield
    except Exception as error:
        import tensorflow as tf

        from tfps.bridge.closures.closure_error import is_task_failure

        is_lost = isinstance(error, tf.errors.UnavailableError) or is_task_failure(error)
        patience_s = REASON_TIMEOUT_S if is_lost or isinstance(error, tf.errors.OpError) else 0.0
        if supervisor is not None and (reason := _end_reason(supervisor, patience_s=patience_s)):
            remedy = f" {error}" if isinstance(error, CheckpointError) else ""
            raise ClusterError(f"The job cannot continue: {reason}.{remedy}") from error
        if is_lost:
            raise ClusterError(
                f"The job cannot continue.\nA task is lost: {error}\n"
                "The output of that task has the reason. Start the job again."
            ) from error
        raise


def _end_reason(supervisor: TaskSupervisor, *, patience_s: float) -> str:
    """Return why the job cannot go on; empty if the supervisor gives no reason in time."""
    ends_at = time.monotonic() + patience_s
    while (
        not (reason := supervisor.end_reason or supervisor.give_up_reason)
        and time.monotonic() < ends_at
    ):
        time.sleep(POLL_INTERVAL_S)
    return reason


@contextlib.contextmanager
def strategy_of_job(config: JobConfig, resolver: Any) -> Iterator[Any]:
    """Make the strategy of a job file, and close it; a named job that fails stays open."""
    import tfps

    strategy = tfps.ParameterServerStrategy(
        resolver,
        partitioner_of(config.partitioner),
        placement=placement_of(config.placement),
        consistency=mode_of(config.consistency),
        compression=compression_of(config.compression),
        transport=config.transport.name,
        fault_tolerance=fault_tolerance_of(config),
        batch_callbacks=config.training.batch_callbacks,
        job=tfps.Job(config.job.name, fresh=config.job.fresh),
        max_workers=config.cluster.max_workers,
    )
    try:
        yield strategy
    except BaseException:
        if config.job.name is None:  # else the next chief takes it over
            strategy.close()
        raise
    strategy.close()
