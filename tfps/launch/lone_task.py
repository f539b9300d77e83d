"""`tfps supervise`: runs one task of a cluster, and starts it again when it crashes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from tfps.cluster import ClusterSpec
from tfps.cluster.exit_status import is_worth_another_try, shell_status
from tfps.errors import ConfigError
from tfps.launch.process import TaskProcess, start_program
from tfps.launch.process_restarts import POLL_INTERVAL_S, ProcessRestarts
from tfps.launch.received_signals import ReceivedSignals
from tfps.recovery.events import EventLog, EventRecord
from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.recovery.restarts.restart_policy import Task


def supervise_command(
    command: Sequence[str], *, fault_tolerance: FaultTolerance, events: Path | None = None
) -> int:
    """Run a command, restart it after crashes within a budget, and return its last exit status.

    Signals that would end this process are passed on to the command, which is not started again.

    Args:
        command: a program and its arguments, such as ``tfps serve``.
        fault_tolerance: how often it is started again.
        events: a file that gets a record of each event; None for none.

    Returns:
        Its status; 128 + n if signal n ended it, or came before it was started again.

    Raises:
        ConfigError: `TF_CONFIG` is invalid, or the command cannot be started.
    """
    kind, index = task = _own_task()
    log = EventLog(events or Path(os.devnull))
    with ReceivedSignals() as signals:
        processes = ProcessRestarts(
            task, fault_tolerance=fault_tolerance, signals=signals, events=log
        )

        def once(is_restart: bool) -> tuple[TaskProcess, int]:
            process = _start(command, name=f"{kind} {index}")
            processes.record("task_restarted" if is_restart else "task_started", pid=process.pid)
            return process, _wait_and_forward_signals(process, signals)

        status = processes.run(once)
        if status and not (signals.received or is_worth_another_try(status)):
            processes.record("task_died", status=status)
        log.write(EventRecord(event="job_ended", status=status))
    return shell_status(status)


def _start(command: Sequence[str], *, name: str) -> TaskProcess:
    try:
        return start_program(
            name=name,
            command=command,
            environment=os.environ,
            log_path=Path(os.devnull),
            stdin=None,
            stdout=1,
            stderr=2,
        )
    except OSError as error:
        raise ConfigError(
            f"COMMAND: received {command[0]!r}, expected a program that starts "
            f"({error.strerror}); write for example `tfps supervise -- tfps serve`"
        ) from error


def _own_task() -> Task:
    """Return the task that `TF_CONFIG` names, or a task named "command"."""
    if not os.environ.get("TF_CONFIG", "").strip():
        return "command", 0
    spec = ClusterSpec.from_environment()
    assert spec.task_type is not None
    return spec.task_type, spec.task_index or 0


def _wait_and_forward_signals(process: TaskProcess, signals: ReceivedSignals) -> int:
    """Wait for the end of a process and pass signals on; kill it after a second one."""
    passed_on = 0
    while (status := process.status()) is None:
        if len(signals.received) > passed_on:
            passed_on = len(signals.received)
            process.send(signals.received[-1] if passed_on == 1 else signal.SIGKILL)
        time.sleep(POLL_INTERVAL_S)
    return status
