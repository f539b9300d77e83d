"""`tfps supervise`: one task of a cluster, started again where its end is worth another try."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from tfps.cluster import ClusterSpec
from tfps.cluster.exit_status import is_worth_another_try
from tfps.errors import ConfigError
from tfps.launch.process import TaskProcess, describe_status, start_program
from tfps.launch.received_signals import ReceivedSignals
from tfps.recovery.events import EventLog, EventName, EventRecord
from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.recovery.restarts.restart_policy import Death, Restart, RestartPolicy, Task
from tfps.terminal import say
from tfps.units import format_seconds

LOOK_EVERY_S = 0.05


def keep_command(
    command: Sequence[str], *, fault_tolerance: FaultTolerance, events: Path | None = None
) -> int:
    """Run a command until its end is not worth another try, and return its last exit status.

    Signals that end this process are passed on to the command, which is not started again then.

    Args:
        command: a program and its arguments, such as ``tfps serve``.
        fault_tolerance: how often it is started again.
        events: a file that gets a record of each event; None for none.

    Returns:
        Its status; 128 + n if signal n ended it.

    Raises:
        ConfigError: `TF_CONFIG` is wrong, or the command cannot be started.
    """
    task = _own_task()
    lone = _LoneTask(command, task, fault_tolerance=fault_tolerance, events=events)
    with ReceivedSignals() as signals:
        status = lone.run(signals)
    return status if status >= 0 else 128 - status


class _LoneTask:
    def __init__(
        self,
        command: Sequence[str],
        task: Task,
        *,
        fault_tolerance: FaultTolerance,
        events: Path | None,
    ) -> None:
        self._command, self._task, self._settings = command, task, fault_tolerance
        self._name = f"{task[0]} {task[1]}"
        self._policy = RestartPolicy([task], fault_tolerance=fault_tolerance)
        self._events = EventLog(events) if events is not None else None

    def run(self, signals: ReceivedSignals) -> int:
        """Run it as often as need be; return the last status."""
        self._record("job_started")
        event: EventName = "task_started"
        while True:
            process = self._start()
            self._record(event, pid=process.pid)
            status = _wait(process, signals)
            action = None
            if not signals.received and is_worth_another_try(status):
                [action, *_] = self._policy.take(Death(self._task, status), now_s=time.monotonic())
            if not isinstance(action, Restart):
                self._say_end(status, gave_up=action is not None)
                return status
            wait = format_seconds(action.after_s)
            say(
                f"{self._name} {describe_status(status)} and is started again in {wait} "
                f"(restart {action.number} of {self._settings.restart_budget})"
            )
            self._record("task_died", status=status, after_s=action.after_s)
            while not (signals.received or self._policy.due(now_s=time.monotonic())):
                time.sleep(LOOK_EVERY_S)
            if signals.received:
                self._record("job_ended", status=status)
                return status
            event = "task_restarted"

    def _start(self) -> TaskProcess:
        try:
            return start_program(
                name=self._name,
                command=self._command,
                environment=os.environ,
                log_path=Path(os.devnull),
                stdin=None,
                stdout=1,
                stderr=2,
            )
        except OSError as error:
            raise ConfigError(
                f"COMMAND: received {self._command[0]!r}, which cannot be started "
                f"({error.strerror}); expected a program and its arguments, such as "
                "`tfps supervise -- tfps serve`"
            ) from error

    def _say_end(self, status: int, *, gave_up: bool) -> None:
        if gave_up:
            budget = self._settings.restart_budget
            say(
                f"{self._name} {describe_status(status)} and is not started again: the budget is "
                f"{budget}"
            )
        if status:
            self._record("task_died", status=status)
        if gave_up:
            self._record("task_given_up")
        self._record("job_ended", status=status)

    def _record(
        self,
        event: EventName,
        *,
        pid: int | None = None,
        status: int | None = None,
        after_s: float | None = None,
    ) -> None:
        if self._events is None:
            return
        of_task = event.startswith("task_")
        try:
            self._events.write(
                EventRecord(
                    event=event,
                    task=self._name if of_task else None,
                    pid=pid,
                    status=status,
                    restarts=self._policy.counts.get(self._task) if of_task else None,
                    restarts_after_s=after_s,
                )
            )
        except OSError as error:
            say(f"{self._events.path} cannot be written: {error.strerror}")


def _own_task() -> Task:
    """The task that `TF_CONFIG` names, or just a command."""
    if not os.environ.get("TF_CONFIG", "").strip():
        return "command", 0
    spec = ClusterSpec.from_environment()
    assert spec.task_type is not None
    return spec.task_type, spec.task_index or 0


def _wait(process: TaskProcess, signals: ReceivedSignals) -> int:
    """Wait for the end of a process and pass signals on; a second one ends it at once."""
    passed_on = 0
    while (status := process.status()) is None:
        if len(signals.received) > passed_on:
            passed_on = len(signals.received)
            process.send(signals.received[-1] if passed_on == 1 else signal.SIGKILL)
        time.sleep(LOOK_EVERY_S)
    return status
