"""Run one process, and start it again after a crash, within a budget."""

from __future__ import annotations

import time
from collections.abc import Callable

from tfps.cluster.exit_status import is_worth_another_try
from tfps.launch.output import write_message
from tfps.launch.process import TaskProcess, describe_status
from tfps.launch.received_signals import ReceivedSignals
from tfps.recovery.events import EventLog, EventName, EventRecord
from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.recovery.restarts.restart_policy import Death, Restart, RestartPolicy, Task

POLL_INTERVAL_S = 0.05


class ProcessRestarts:
    """Runs the process of one task, and starts it again if its exit status allows it.

    Args:
        task: the task.
        fault_tolerance: the budget of restarts, and the pause before each.
        signals: the signals that this process gets; after one nothing is started again.
        events: gets a record of each restart.
    """

    def __init__(
        self,
        task: Task,
        *,
        fault_tolerance: FaultTolerance,
        signals: ReceivedSignals,
        events: EventLog,
    ) -> None:
        self._task, self._budget, self._signals = task, fault_tolerance.restart_budget, signals
        self._policy = RestartPolicy([task], fault_tolerance=fault_tolerance)
        self._events = events

    def run(
        self,
        start_and_wait: Callable[[bool], tuple[TaskProcess, int]],
        *,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> int:
        """Run the process, restart it after each crash, and return the last exit status.

        Args:
            start_and_wait: runs the process until its end; receives whether it is a restart.
            may_go_on: returns whether another start would find what it needs.
        """
        process, status = start_and_wait(False)
        while self._should_restart(process, status, may_go_on=may_go_on):
            while not (self._signals.received or self._policy.due_actions(now_s=time.monotonic())):
                time.sleep(POLL_INTERVAL_S)
            if self._signals.received:
                return -self._signals.received[0]
            process, status = start_and_wait(True)
        return status

    def record(
        self,
        event: EventName,
        *,
        pid: int | None = None,
        status: int | None = None,
        after_s: float | None = None,
    ) -> None:
        """Write a record of an event of the task."""
        kind, index = self._task
        self._events.write(
            EventRecord(
                event=event,
                task=f"{kind} {index}",
                pid=pid,
                status=status,
                restarts=self._policy.restart_counts.get(self._task),
                restarts_after_s=after_s,
            )
        )

    def _should_restart(
        self, process: TaskProcess, status: int, *, may_go_on: Callable[[], bool]
    ) -> bool:
        """Return whether to start the process again after its end, and report that."""
        how = describe_status(status)
        if self._signals.received:
            return False
        if not (is_worth_another_try(status) and may_go_on()):
            if status < 0:
                write_message(process.report(how))
            return False
        [action, *_] = self._policy.handle(Death(self._task, status), now_s=time.monotonic())
        if isinstance(action, Restart):
            write_message(process.report(f"{how}{action.describe(budget=self._budget)}"))
            self.record("task_died", status=status, after_s=action.after_s)
            return True
        write_message(
            process.report(f"{how} and is not started again: the budget is {self._budget}")
        )
        self.record("task_died", status=status)
        self.record("task_given_up")
        return False
