"""Decides after a task's death: start it again, give it up, or end the job. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.units import counted, format_seconds

Task = tuple[str, int]


@dataclass(frozen=True)
class Death:
    """The end of a task's process.

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
    """The return of a task: it listens or replies again, or its state is not known."""

    task: Task


@dataclass(frozen=True)
class Hang:
    """The hang of a task: its process lives, but does not reply.

    Args:
        task: the task.
        is_stopped: whether it was stopped (SIGSTOP), so that SIGCONT can resume it.
    """

    task: Task
    is_stopped: bool = False


Event = Death | Return | Hang


@dataclass(frozen=True)
class Restart:
    """The announcement of a restart: `Start` follows after a pause.

    Args:
        task: the task.
        number: 1 for the first restart of this task.
        after_s: the pause in seconds.
    """

    task: Task
    number: int
    after_s: float

    def in_words(self, *, budget: int) -> str:
        """Return the end of a log message that begins with how the task ended.

        Args:
            budget: the most restarts of a task.

        Example:

        >>> Restart(("worker", 0), number=1, after_s=0.25).in_words(budget=3)
        ' and is started again in 250 ms (restart 1 of 3)'
        """
        wait = format_seconds(self.after_s)
        return f" and is started again in {wait} (restart {self.number} of {budget})"


@dataclass(frozen=True)
class Start:
    """An action: start a task now."""

    task: Task


@dataclass(frozen=True)
class Kill:
    """An action: kill the process of a task that hangs; a `Death` follows.

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
    """The decision not to start a task again; the job goes on if no `EndJob` follows."""

    task: Task


@dataclass(frozen=True)
class EndJob:
    """The end of a job that cannot go on.

    Args:
        reason: a sentence for its user, without the full stop.
        is_noticed: whether the chief notices by itself, and ends with an error of its own.
    """

    reason: str
    is_noticed: bool = False


Action = Restart | Start | Kill | GiveUp | EndJob


@dataclass
class _Life:
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
    >>> policy.take(Death(("worker", 0), -9), now_s=10.0)
    [Restart(task=('worker', 0), number=1, after_s=0.25)]
    >>> policy.due(now_s=10.1), policy.due(now_s=10.3)
    ([], [Start(task=('worker', 0))])
    >>> [*_, end] = policy.take(Death(("worker", 0), -9), now_s=11.0)
    >>> end.reason
    'no worker is left: worker 0 died again after its budget of 1 restart'
    """

    def __init__(self, tasks: Iterable[Task], *, fault_tolerance: FaultTolerance) -> None:
        self._fault_tolerance = fault_tolerance
        self._lives = {task: _Life() for task in tasks}
        self.ended: EndJob | None = None

    @property
    def counts(self) -> dict[Task, int]:
        """The number of restarts of each task, one that is about to follow included."""
        return {task: life.restarts for task, life in self._lives.items() if life.restarts}

    def take(self, event: Event, *, now_s: float) -> list[Action]:
        """Return the actions that follow from an event."""
        life = self._lives[event.task]
        if self.ended:
            return []
        if isinstance(event, Return):
            life.hang = None
            life.is_given_up = False  # it was started by other means
        elif life.is_given_up:
            return []
        elif isinstance(event, Death):
            return self._died(event, life, now_s=now_s)
        elif life.starts_at_s == math.inf and life.hang != event:  # not if it has died
            # A task that goes on after a stop has the whole time to reply.
            life.hang, life.hangs_since_s = event, now_s
        return []

    def due(self, *, now_s: float) -> list[Action]:
        """Return the actions that are due at a time."""
        actions: list[Action] = []
        for task, life in self._lives.items() if self.ended is None else ():
            if now_s >= life.starts_at_s:
                life.starts_at_s = math.inf
                actions.append(Start(task))
            if life.hang is None:
                continue
            after_s = self._fault_tolerance.patience_s(is_stopped=life.hang.is_stopped)
            if now_s >= life.hangs_since_s + after_s:
                actions.append(Kill(task, after_s, life.hang.is_stopped))
                life.hang = None
        return actions

    def _died(self, event: Death, life: _Life, *, now_s: float) -> list[Action]:
        life.hang = None
        if life.starts_at_s < math.inf:  # the same death, reported twice
            return []
        if event.is_usable and life.restarts < self._fault_tolerance.restart_budget:
            life.restarts += 1
            after_s = self._fault_tolerance.back_off_s(life.restarts)
            life.starts_at_s = now_s + after_s
            return [Restart(event.task, life.restarts, after_s)]
        life.is_given_up = True
        self.ended = self._end(event)
        return [GiveUp(event.task), *([self.ended] if self.ended else [])]

    def _end(self, event: Death) -> EndJob | None:
        """Return why the job cannot go on without the task that was given up, or None."""
        kind, index = event.task
        if kind == "ps":
            why = f": {self._spent([event.task])}" if event.is_usable else " with it"
            return EndJob(
                f"what ps {index} held is lost{why}. Start the job again from its last checkpoint",
                is_noticed=True,
            )
        workers = {task: life for task, life in self._lives.items() if task[0] == "worker"}
        gone = [task for task, life in workers.items() if life.is_given_up]
        left = len(workers) - len(gone)
        if left >= self._fault_tolerance.min_workers:
            return None
        few = (
            f"{counted(left, 'worker')} left, fewer than "
            f"min_workers={self._fault_tolerance.min_workers}"
            if left
            else "no worker is left"
        )
        return EndJob(f"{few}: {self._spent(gone)}")

    def _spent(self, tasks: list[Task]) -> str:
        """Return a phrase such as ``worker 0 died again after its budget of 3 restarts``."""
        names = ", ".join(f"{kind} {index}" for kind, index in tasks)
        budget = self._fault_tolerance.restart_budget
        if not budget:
            return f"{names} died, and the budget of restarts is 0"
        their = "its" if len(tasks) == 1 else "their"
        return f"{names} died again after {their} budget of {counted(budget, 'restart')}"
