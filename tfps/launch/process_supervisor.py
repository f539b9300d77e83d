"""Keep the tasks of a local cluster running: report dead tasks and start them again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from tfps.cluster import ClusterSpec, accepts_connections
from tfps.cluster.exit_status import name_of_status
from tfps.errors import TaskFailed
from tfps.launch.process import TaskProcess, describe_status
from tfps.recovery.events import EventLog, EventName, EventRecord
from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.recovery.restarts.restart_policy import (
    Action,
    Death,
    EndJob,
    GiveUp,
    Hang,
    Kill,
    Restart,
    RestartPolicy,
    Return,
    Start,
    Task,
)
from tfps.units import counted, format_seconds

POLL_INTERVAL_S = 0.05  # how late a death is noticed; a look at a process costs microseconds
STOPPED_POLL_INTERVAL_S = 1.0  # a look into /proc for each task
CONNECT_TIMEOUT_S = 0.5
CANNOT_START = 71  # EX_OSERR of <sysexits.h>

logger = logging.getLogger(__name__)


class TaskOwner(Protocol):
    """The owner of the tasks' processes, such as a `LocalCluster`."""

    spec: ClusterSpec

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The lock that is held while processes are replaced."""

    def process(self, task: Task) -> TaskProcess | None:
        """Return a task's newest process."""

    def start_again(self, task: Task) -> None:
        """Start a task that has ended."""

    def starter_failures(self) -> list[TaskFailed]:
        """Return the errors that prevent all tasks from starting."""


class ProcessSupervisor:
    """Watches the tasks of a cluster in a thread of its own, and acts as the policy decides.

    It ignores a task that ends before it has listened for the first time, since that ends the start
    of the cluster, and a task that is expected to end.

    Args:
        owner: the owner of the processes.
        tasks: all tasks.
        fault_tolerance: how often a task is started again.
        events: gets a record of each event.

    Attributes:
        write_message: receives messages for the user; by default a warning of Python's logging.
        events: the log of events; may be replaced before a task listens.
        restarts: the restarts so far, each as in ``worker 1 (SIGKILL)``.
        ended: why the job cannot go on; None while it can.
    """

    def __init__(
        self,
        owner: TaskOwner,
        tasks: list[Task],
        *,
        fault_tolerance: FaultTolerance,
        events: EventLog,
    ) -> None:
        self.write_message: Callable[[str], None] = logger.warning
        self.restarts: list[str] = []
        self.ended: EndJob | None = None
        self.events = events
        self._owner, self._settings = owner, fault_tolerance
        self._policy = RestartPolicy(tasks, fault_tolerance=fault_tolerance)
        self._tasks = tasks
        # Whether the job could use a parameter server that was started again.
        self._should_restart_servers: Callable[[], bool] = lambda: False
        self._lost: frozenset[Task] = frozenset()  # as the chief's guard sees it
        self._hung: dict[Task, str] = {}  # tasks that were killed because they hung
        self._seen: dict[Task, TaskProcess] = {}  # the process that is known to listen
        self._reported_deaths: dict[Task, TaskProcess] = {}  # the process whose end is known
        self._died_at_s: dict[Task, float] = {}  # of tasks that are started again
        self._next_poll_s = 0.0  # when it looks for stopped tasks next
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfps-supervisor", daemon=True)

    @property
    def end_reason(self) -> str:
        """The reason why the job cannot go on, if its chief does not notice; else empty."""
        return self.ended.reason if self.ended and not self.ended.is_noticed else ""

    @property
    def give_up_reason(self) -> str:
        """The reason why a parameter server is not started again; empty while none is given up."""
        return self.ended.reason if self.ended and self.ended.is_noticed else ""

    def set_server_restarts(self, wanted: Callable[[], bool]) -> None:
        """See `tfps.recovery.restarts.task_supervisor.TaskSupervisor`."""
        self._should_restart_servers = wanted

    def report_lost(self, tasks: Iterable[Task]) -> None:
        """See `tfps.recovery.restarts.task_supervisor.TaskSupervisor`."""
        self._lost = frozenset(tasks)

    def start(self) -> None:
        """Start the thread; call it once only."""
        self._thread.start()

    def mark_started(self) -> None:
        """Record that all tasks listen, so that those that end are started again from now on."""
        with self._owner.lock:
            for task in self._tasks:
                process = self._owner.process(task)
                if process is not None and task not in self._seen:
                    self._seen[task] = process
                    self.record("task_started", task, pid=process.pid)

    def close(self) -> None:
        """End the thread; no task is started again."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()

    def record(
        self,
        event: EventName,
        task: Task | None = None,
        *,
        pid: int | None = None,
        status: int | None = None,
        after_s: float | None = None,
        restarts: int | None = None,
        reason: str | None = None,
    ) -> None:
        """Write a record of an event."""
        self.events.write(
            EventRecord(
                event=event,
                task=_task_name(task) if task else None,
                pid=pid,
                status=status,
                restarts=restarts or (self._policy.restart_counts.get(task) if task else None),
                restarts_after_s=after_s,
                reason=reason,
            )
        )

    def _run(self) -> None:
        while not self._ends.wait(POLL_INTERVAL_S):
            with self._owner.lock:
                if not self._ends.is_set() and self.ended is None:
                    self.poll(now_s=time.monotonic())

    def poll(self, *, now_s: float) -> None:
        """Find out which tasks died, hang or returned, and act as the policy decides."""
        if failures := self._owner.starter_failures():
            self.write_message(str(failures[0]))
            self._end_job(EndJob("the supervisor of the tasks has ended", is_noticed=True))
            return
        looks_for_stopped = now_s >= self._next_poll_s
        if looks_for_stopped:
            self._next_poll_s = now_s + STOPPED_POLL_INTERVAL_S
        for task in self._tasks:
            process = self._owner.process(task)
            if process is None or process.expected_to_end:
                continue
            status = process.status()
            if status is None:
                self._check_for_return(task, process, now_s=now_s)
                # Not before: a task that is not forked yet has no process id.
                if looks_for_stopped and self._seen.get(task) is process:
                    self._policy.handle(self._hang_or_return(task, process), now_s=now_s)
            elif process is not self._reported_deaths.get(task) and task in self._seen:
                self._reported_deaths[task] = process
                self._handle_death(task, status, now_s=now_s)
        for action in self._policy.due_actions(now_s=now_s):
            self._run_action(action)

    def _hang_or_return(self, task: Task, process: TaskProcess) -> Hang | Return:
        """Return the event to report for a running task: that it hangs, or that it does not."""
        if task[0] != "ps" or self._should_restart_servers():
            if process.is_suspended():
                return Hang(task, is_stopped=True)
            if task in self._lost:
                return Hang(task)
        return Return(task)

    def _check_for_return(self, task: Task, process: TaskProcess, *, now_s: float) -> None:
        address = self._owner.spec.address(*task)
        if self._seen.get(task) is process or not accepts_connections(
            address, timeout_s=CONNECT_TIMEOUT_S
        ):
            return
        is_first = task not in self._seen
        self._seen[task] = process
        self._policy.handle(Return(task), now_s=now_s)
        self.record("task_started" if is_first else "task_restarted", task, pid=process.pid)
        if task in self._died_at_s:
            took = format_seconds(now_s - self._died_at_s.pop(task))
            self.write_message(f"{_task_name(task)} is back after {took}")

    def _handle_death(self, task: Task, status: int, *, now_s: float) -> None:
        process = self._owner.process(task)
        assert process is not None
        usable = task[0] != "ps" or self._should_restart_servers()
        hung = self._hung.pop(task, None)
        how = f"{f'{hung}, ' if hung else ''}{describe_status(status)}"
        for action in self._policy.handle(Death(task, status, is_usable=usable), now_s=now_s):
            if isinstance(action, Restart):
                in_short = f"{'hung, ' if hung else ''}{name_of_status(status)}"
                self.restarts.append(f"{_task_name(task)} ({in_short})")
                self._died_at_s[task] = now_s
                self.record("task_died", task, status=status, after_s=action.after_s, reason=hung)
                self.write_message(
                    process.report(how + action.describe(budget=self._settings.restart_budget))
                )
            elif isinstance(action, GiveUp):
                self.record("task_died", task, status=status, reason=hung)
                self.record("task_given_up", task)
                self.write_message(
                    process.report(f"{how}{self._reason_not_to_restart(task, usable=usable)}")
                )
            elif isinstance(action, EndJob):
                self._end_job(action)

    def _reason_not_to_restart(self, task: Task, *, usable: bool) -> str:
        count = self._policy.restart_counts.get(task, 0)
        if not usable:
            return ""
        after = f" after {counted(count, 'restart')}" if count else ""
        return f" and is not started again{after}: the budget is {self._settings.restart_budget}"

    def _run_action(self, action: Action) -> None:
        if isinstance(action, Start):
            try:
                self._owner.start_again(action.task)
            except OSError as error:  # no memory for another process, for example
                self.write_message(f"cannot start {_task_name(action.task)}: {error.strerror}")
                self._handle_death(action.task, CANNOT_START, now_s=time.monotonic())
        elif isinstance(action, Kill):
            process = self._owner.process(action.task)
            if process is not None:
                what = "was stopped (SIGSTOP)" if action.is_stopped else "did not respond"
                self._hung[action.task] = f"{what} for {format_seconds(action.after_s)}"
                process.kill()
                process.expected_to_end = False  # its end is a death like any other

    def _end_job(self, action: EndJob) -> None:
        self.record("job_ended", reason=action.reason)
        self.ended = action  # last: its readers end the objects that this thread uses


def _task_name(task: Task) -> str:
    kind, index = task
    return f"{kind} {index}"
