"""Decide after a task's death: start it again, give it up, or end the job. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.units import counted, format_seconds

Task = tuple[str, int]


@dataclass(frozen=True)
class Death:
    """Reports that a task's process has ended.

    Args:
        task: the task.
        status: its exit status; negative: the signal that ended it.
        is_usable: whether the job can use the task once it is back.
    """

    task: Task
    status: int
    is_usable: bool = True


@dataclass(frozen=True)
class Return:
    """Reports that a task listens or replies again, or that its state is not known."""

    task: Task


@dataclass(frozen=True)
class Hang:
    """Reports that a task hangs: its process lives, but does not reply.

    Args:
        task: the task.
        is_stopped: whether it was stopped (SIGSTOP), so that SIGCONT can resume it.
    """

    task: Task
    is_stopped: bool = False


Event = Death | Return | Hang


@dataclass(frozen=True)
class Restart:
    """Announces a restart: a `Start` follows after a pause.

    Args:
        task: the task.
        number: 1 for the first restart of this task.
        after_s: the pause in seconds.
    """

    task: Task
    number: int
    after_s: float

    def describe(self, *, budget: int) -> str:
        """Return the end of a log message that begins with how the task ended.

        Args:
            budget: the most restarts of a task.

        Example:

        >>> Restart(("worker", 0), number=1, after_s=0.25).describe(budget=3)
        ' and is started again in 250 ms (restart 1 of 3)'
        """
        wait = format_seconds(self.after_s)
        return f" and is started again in {wait} (restart {self.number} of {budget})"


@dataclass(frozen=True)
class Start:
    """Requests that a task is started now."""

    task: Task


@dataclass(frozen=True)
class Kill:
    """Requests to kill the process of a task that hangs; a `Death` follows.

    Args:
        task: the task.
        after_s: for how many seconds it has hung.
        is_stopped: whether it was stopped (SIGSTOP).
    """

    task: Task
    after_s: float
    is_stopped: bool = False


@dataclass(frozen=True)
class GiveUp:
    """Announces that a task is not started again; the job goes on if no `EndJob` follows."""

    task: Task


@dataclass(frozen=True)
class EndJob:
    """Requests the end of a job that cannot go on.

    Args:
        reason: a sentence for its user, without the full stop.
        is_noticed: whether the chief notices by itself, and ends with an error of its own.
    """

    reason: str
    is_noticed: bool = False


Action = Restart | Start | Kill | GiveUp | EndJob


@dataclass
class _TaskState:
    restarts: int = 0
    starts_at_s: float = math.inf  # when a task that waits for its restart is started
    hang: Hang | None = None
    hangs_since_s: float = 0.0
    is_given_up: bool = False


class RestartPolicy:
    """Turns events of a job's tasks into the actions of the process that starts them.

    Args:
        tasks: all tasks of the job; each counts as running.
        fault_tolerance: the budget of restarts, and how many workers the job needs.

    Example:

    >>> once = FaultTolerance(restart_budget=1)
    >>> policy = RestartPolicy([("worker", 0)], fault_tolerance=once)
    >>> policy.handle(Death(("worker", 0), -9), now_s=10.0)
    [Restart(task=('worker', 0), number=1, after_s=0.25)]
    >>> policy.due_actions(now_s=10.1), policy.due_actions(now_s=10.3)
    ([], [Start(task=('worker', 0))])
    >>> [*_, end] = policy.handle(Death(("worker", 0), -9), now_s=11.0)
    >>> end.reason
    'no worker is left: worker 0 died again after its budget of 1 restart'
    """

    def __init__(self, tasks: Iterable[Task], *, fault_tolerance: FaultTolerance) -> None:
        self._fault_tolerance = fault_tolerance
        self._task_states = {task: _TaskState() for task in tasks}
        self.ended: EndJob | None = None

    @property
    def restart_counts(self) -> dict[Task, int]:
        """The number of restarts of each task, one that is about to follow included."""
        return {
            task: task_state.restarts
            for task, task_state in self._task_states.items()
            if task_state.restarts
        }

    def handle(self, event: Event, *, now_s: float) -> list[Action]:
        """Return the actions that follow from an event."""
        task_state = self._task_states[event.task]
        if self.ended:
            return []
        if isinstance(event, Return):
            task_state.hang = None
            task_state.is_given_up = False  # it was started by other means
        elif task_state.is_given_up:
            return []
        elif isinstance(event, Death):
            return self._actions_after_death(event, task_state, now_s=now_s)
        elif task_state.starts_at_s == math.inf and task_state.hang != event:  # not if it has died
            # A task that goes on after a stop has the whole time to reply.
            task_state.hang, task_state.hangs_since_s = event, now_s
        return []

    def due_actions(self, *, now_s: float) -> list[Action]:
        """Return the actions that are due at a time."""
        actions: list[Action] = []
        for task, task_state in self._task_states.items() if self.ended is None else ():
            if now_s >= task_state.starts_at_s:
                task_state.starts_at_s = math.inf
                actions.append(Start(task))
            if task_state.hang is None:
                continue
            after_s = self._fault_tolerance.patience_s(is_stopped=task_state.hang.is_stopped)
            if now_s >= task_state.hangs_since_s + after_s:
                actions.append(Kill(task, after_s, task_state.hang.is_stopped))
                task_state.hang = None
        return actions

    def _actions_after_death(
        self, event: Death, task_state: _TaskState, *, now_s: float
    ) -> list[Action]:
        task_state.hang = None
        if task_state.starts_at_s < math.inf:  # the same death, reported twice
            return []
        if event.is_usable and task_state.restarts < self._fault_tolerance.restart_budget:
            task_state.restarts += 1
            after_s = self._fault_tolerance.back_off_s(task_state.restarts)
            task_state.starts_at_s = now_s + after_s
            return [Restart(event.task, task_state.restarts, after_s)]
        task_state.is_given_up = True
        self.ended = self._end_job_if_needed(event)
        return [GiveUp(event.task), *([self.ended] if self.ended else [])]

    def _end_job_if_needed(self, event: Death) -> EndJob | None:
        """Return why the job cannot go on without the task that was given up, or None."""
        kind, index = event.task
        if kind == "ps":
            why = (
                f": {self._describe_spent_budget([event.task])}" if event.is_usable else " with it"
            )
            return EndJob(
                f"what ps {index} held is lost{why}. Start the job again from its last checkpoint",
                is_noticed=True,
            )
        workers = {
            task: task_state
            for task, task_state in self._task_states.items()
            if task[0] == "worker"
        }
        gone = [task for task, task_state in workers.items() if task_state.is_given_up]
        left = len(workers) - len(gone)
        if left >= self._fault_tolerance.min_workers:
            return None
        few = (
            f"{counted(left, 'worker')} left, fewer than "
            f"min_workers={self._fault_tolerance.min_workers}"
            if left
            else "no worker is left"
        )
        return EndJob(f"{few}: {self._describe_spent_budget(gone)}")

    def _describe_spent_budget(self, tasks: list[Task]) -> str:
        """Return a phrase such as ``worker 0 died again after its budget of 3 restarts``."""
        names = ", ".join(f"{kind} {index}" for kind, index in tasks)
        budget = self._fault_tolerance.restart_budget
        if not budget:
            return f"{names} died, and the budget of restarts is 0"
        their = "its" if len(tasks) == 1 else "their"
        return f"{names} died again after {their} budget of {counted(budget, 'restart')}"
