"""`tfps run`: runs one task of a cluster, or starts a whole cluster on this machine."""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tfps.cluster import SUPERVISED, TASK_TYPES, ClusterSpec, announce_finished, prepare_process
from tfps.cluster.exit_status import TEMPORARY_STATUS
from tfps.cluster.spec import TF_CONFIG
from tfps.errors import ConfigError
from tfps.launch.another_start import AnotherStart, decide_another_start
from tfps.launch.launcher import ChiefProgram, launch
from tfps.launch.log_folder import TaskLog
from tfps.launch.noise import install_noise_filter
from tfps.launch.output import share_terminal
from tfps.launch.parent import end_with_parent
from tfps.launch.script import exit_status_of, print_error, run_script
from tfps.launch.serving import serve
from tfps.launch.supervisor_pipe import find_supervisor
from tfps.observe.recorder import RECORD
from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.scheduler.client import join_cluster
from tfps.scheduler.settings import SCHEDULER, has_cluster
from tfps.stop_signals import end_on_signals, unblock_signals
from tfps.terminal import write_message
from tfps.training.worker_use import NO_STEP_ON_A_WORKER, WORKER_USE

DEFAULT_WORKERS = 2
DEFAULT_PS = 1


def run(
    script: str,
    arguments: Sequence[str] = (),
    *,
    workers: int | None = None,
    ps: int | None = None,
    log_dir: str | None = None,
    fault_tolerance: FaultTolerance | None = None,
) -> int:
    """Run a training script on a parameter-server cluster; return this process's exit status.

    With `TF_CONFIG` set, or the address of a scheduler, play the task's role: a worker and a
    parameter server serve, the chief and the evaluator run the script. Else start a cluster on
    this machine and run the script as its chief. End the process with
    `tfps.launch.exit.end_process` afterwards.

    Args:
        script: the file to run.
        arguments: its command-line arguments.
        workers: the number of workers of a local cluster; None is 2.
        ps: its number of parameter servers; None is 1.
        log_dir: the folder of the tasks' logs; None is a new temporary folder, kept on failure.
        fault_tolerance: how often a task of a local cluster that dies is started again.

    Raises:
        ConfigError: `TF_CONFIG` is invalid, or it is set and a count or `fault_tolerance` is
            given as well.
        TaskFailed: a task of the local cluster ended while it started.
    """
    supervised = bool(end_with_parent())
    if log_dir is not None:
        os.environ.setdefault(RECORD, os.path.abspath(log_dir))  # of the chief
    if has_cluster():
        if workers is not None or ps is not None or fault_tolerance is not None:
            source, problem = SCHEDULER, "the scheduler knows where the tasks are"
            choice = f"leave out --scheduler ({SCHEDULER})"
            if os.environ.get(TF_CONFIG, "").strip():
                source, problem, choice = TF_CONFIG, "already lists the tasks", "unset TF_CONFIG"
            raise ConfigError(
                f"{problem}; remove --workers, --ps, --restarts and --min-workers, or {choice} to "
                "start a cluster on this machine",
                source=source,
            )
        join_cluster(roles=TASK_TYPES, program="tfps run")
        return run_task(
            ClusterSpec.from_environment(),
            partial(run_script, script, arguments),
            log_dir=log_dir,
            supervised=supervised,
        )
    return launch(
        ChiefProgram(command=["run", script, *arguments], name=script),
        workers=DEFAULT_WORKERS if workers is None else workers,
        ps=DEFAULT_PS if ps is None else ps,
        fault_tolerance=fault_tolerance,
        log_dir=None if log_dir is None else Path(log_dir),
    )


def run_task(
    spec: ClusterSpec,
    program: Callable[[], object],
    *,
    log_dir: str | None = None,
    supervised: bool = False,
    stopping: Sequence[int] = (signal.SIGTERM,),
    report_error: Callable[[BaseException], object] = print_error,
) -> int:
    """Serve, or run a program, as the task that a spec names; return the exit status.

    Args:
        spec: the cluster and this task.
        program: the function of a chief or an evaluator, such as a call of `run_script`.
        log_dir: the folder for the lines of libraries; None is a new temporary folder.
        supervised: whether the process that started this one also ends the other tasks.
        stopping: signals after which the program ends in time, if it is not supervised.
        report_error: called with an exception that the program does not catch.
    """
    assert spec.task_type is not None
    prepare_process(spec.task_type, spec)
    if spec.task_type in ("worker", "ps"):
        return serve(spec, log_dir=log_dir)
    is_chief = spec.task_type == "chief"
    share_terminal()
    supervisor = find_supervisor(spec)
    log = TaskLog(spec, log_dir)
    status = 1
    atexit.register(lambda: log.end(status))  # before the filter's end is registered: it runs after
    install_noise_filter(log.path)

    another: AnotherStart | None = None

    def announce() -> None:
        if another is not AnotherStart.JOB:  # the servers keep it
            announce_finished(spec, status)

    def status_of_error(error: BaseException) -> int:
        nonlocal another
        # A server that a supervisor gives up is lost for the next chief too.
        is_over = supervisor is not None and bool(
            supervisor.end_reason or supervisor.give_up_reason
        )
        another = decide_another_start(error, has_servers=not is_over) if is_chief else None
        return TEMPORARY_STATUS if another else 1

    if is_chief and not supervised:
        # Registered first, so run last: the script's own exit functions still find the servers.
        atexit.register(announce)
        os.environ[SUPERVISED] = "1"  # no message by a strategy in the script
    if supervised:  # the process that has started this one reports signals
        unblock_signals()
    else:
        before_exit = partial(announce_finished, spec) if is_chief else None
        end_on_signals(stopping, before_exit=before_exit)
    status = exit_status_of(
        program, supervised=supervised, report_error=report_error, status_of_error=status_of_error
    )
    if status == 0 and is_chief and WORKER_USE.is_missing:
        write_message(NO_STEP_ON_A_WORKER)
    return status
