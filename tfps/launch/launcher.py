"""Starts, watches and ends a cluster on this machine with a program as its chief."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfps.cluster.exit_status import shell_status
from tfps.launch.chief import Chief
from tfps.launch.chief_watch import ChiefWatch, restore_terminal
from tfps.launch.local_cluster import LocalCluster
from tfps.launch.log_folder import LogFolder
from tfps.launch.output import LogFollower, write_message
from tfps.launch.process import TaskProcess, describe_status
from tfps.launch.process_restarts import ProcessRestarts
from tfps.launch.received_signals import ReceivedSignals, suspend_together
from tfps.recovery.events import EventLog
from tfps.recovery.fault_tolerance import FaultTolerance, check_fault_tolerance
from tfps.recovery.restarts.task_supervisor import describe_restarts
from tfps.units import count_tasks

CHIEF = ("chief", 0)


@dataclass(frozen=True, kw_only=True)
class ChiefProgram:
    """A program that runs as the chief of a local cluster.

    Args:
        command: the arguments of ``tfps``.
        name: the program's name in messages.
        next_command: the arguments after a crash, which go on with the servers' variables; None
            ends the job then.
        reports_failures: whether the program itself reports the state and the end of the job. Else
            the launcher does, and shows the lines of all tasks, each with the task's name.
    """

    command: Sequence[str]
    name: str
    next_command: Sequence[str] | None = None
    reports_failures: bool = False


def launch(
    program: ChiefProgram,
    *,
    workers: int,
    ps: int,
    fault_tolerance: FaultTolerance | None = None,
    log_dir: Path | None = None,
    events: Path | None = None,
) -> int:
    """Start a local cluster, run a program as its chief, and stop everything when it ends.

    A worker that dies is reported and started again. If too few are left, the chief is ended.

    The chief gets the terminal, so that progress bars work. Without a terminal, its lines begin
    with its name, like those of the other tasks, unless it reports failures itself. The first
    Ctrl-C or SIGTERM goes to the chief; a second one ends everything immediately.

    This process imports no TensorFlow.

    Args:
        program: the chief's program.
        workers: the number of workers.
        ps: the number of parameter servers.
        fault_tolerance: how often a task that dies is started again; None is the default.
        log_dir: a folder for the logs; None makes a temporary one, which a success removes.
        events: the file for records of events; None is one in the folder for the logs.

    Returns:
        The chief's exit status, 128 + n if signal n ended it, 1 if the job could not go on.

    Raises:
        ConfigError: a count is below 1, or `fault_tolerance` asks for more workers than there are.
        TaskFailed: a task ended while it started.
    """
    # First: a mistake must not leave a folder.
    fault_tolerance = check_fault_tolerance(fault_tolerance, workers=workers)
    folder = LogFolder(log_dir, prefix="tfps-run-")
    reports_failures = not program.reports_failures
    succeeded = False
    try:
        with (
            ReceivedSignals() as signals,
            restore_terminal(),
            LocalCluster(
                workers=workers,
                ps=ps,
                log_dir=folder.path,
                wait=False,
                fault_tolerance=fault_tolerance,
            ) as cluster,
        ):
            supervisor = cluster.supervisor
            supervisor.write_message = write_message
            if events is not None:
                supervisor.events = EventLog(events)
            if reports_failures:
                write_message(f"starting {count_tasks(workers=workers, ps=ps)}; {folder}")
            follower = LogFollower(cluster.logs if reports_failures else {}, target=2)
            chiefs = ProcessRestarts(
                CHIEF, fault_tolerance=fault_tolerance, signals=signals, events=supervisor.events
            )
            watch = ChiefWatch(cluster, signals, reports_failures=reports_failures)

            def once(is_restart: bool) -> tuple[TaskProcess, int]:
                command = (is_restart and program.next_command) or program.command
                chief = Chief(cluster, command, is_prefixed=reports_failures)
                if is_restart:
                    chiefs.record("task_restarted", pid=chief.process.pid)
                try:
                    with suspend_together(chief.process.send):
                        return chief.process, watch.run(chief)
                finally:
                    chief.stop()

            try:
                status = chiefs.run(
                    once,
                    may_go_on=lambda: program.next_command is not None and supervisor.ended is None,
                )
                if supervisor.ended is None:
                    supervisor.record("job_ended", status=status)
                succeeded = status == 0 and not (cluster.failures() or supervisor.restarts)
            finally:
                cluster.close()
                follower.close()
                if reports_failures and (text := describe_restarts(supervisor.restarts)):
                    write_message(text)
    finally:
        folder.end(succeeded=succeeded)
    if reports_failures and not (succeeded or signals.received):
        write_message(f"{program.name} {describe_status(status)}; logs in {folder.path}")
    return shell_status(status)
