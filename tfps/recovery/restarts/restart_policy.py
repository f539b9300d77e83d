"""What follows from a task's death: start it again, give it up, or end the job. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.units import counted, format_seconds

Task = tuple[str, int]


@dataclass(frozen=True)
class Death:
    """A task's process has ended.

    Args:
        task: which one.
        status: its exit status; negative: the signal that ended it.
        is_usable: whether the job can use it once it is back.
    """

    task: Task
    status: int
    is_usable: bool = True


@dataclass(frozen=True)
class Return:
    """A task listens or answers again, or what it does is not known."""

    task: Task


@dataclass(frozen=True)
class Hang:
    """A task's process lives and answers nothing.

    Args:
        task: which one.
        is_stopped: whether somebody has stopped it (SIGSTOP), who may let it go on.
    """

    task: Task
    is_stopped: bool = False


Event = Death | Return | Hang


@dataclass(frozen=True)
class Restart:
    """A task will be started again: `Start` follows after so many seconds.

    Args:
        task: which one.
        number: 1 for the first time.
        after_s: how long it rests before.
    """

    task: Task
    number: int
    after_s: float

    def in_words(self, *, budget: int) -> str:
        """Return what a message adds to how the task ended.

        Args:
            budget: how many restarts there may be.

        Example:

        >>> Restart(("worker", 0), number=1, after_s=0.25).in_words(budget=3)
        ' and is started again in 250 ms (restart 1 of 3)'
        """
        wait = format_seconds(self.after_s)
        return f" and is started again in {wait} (restart {self.number} of {budget})"


@dataclass(frozen=True)
class Start:
    """Start a task now."""

    task: Task


@dataclass(frozen=True)
class Kill:
    """End the process of a task that hangs; its death is an event then.

    Args:
        task: which one.
        after_s: how long it was waited for.
        is_stopped: whether somebody had stopped it.
    """

    task: Task
    after_s: float
    is_stopped: bool = False


@dataclass(frozen=True)
class GiveUp:
    """A task is not started any more, and the job goes on without it if no `EndJob` follows."""

    task: Task


@dataclass(frozen=True)
class EndJob:
    """The job cannot go on.

    Args:
        reason: a sentence for its user, without the full stop.
        is_noticed: whether the chief finds out by itself, and ends with an error of its own.
    """

    reason: str
    is_noticed: bool = False


Action = Restart | Start | Kill | GiveUp | EndJob


@dataclass
class _Life:
    restarts: int = 0
    starts_at_s: float = math.inf  # of a task that rests before it is started again
    hang: Hang | None = None
    hangs_since_s: float = 0.0
    is_given_up: bool = False


class RestartPolicy:
    """Turns what happens to the tasks of a job into what their starter does.

    Args:
        tasks: all of them, each running.
        fault_tolerance: budget, and how many workers must be left.

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
        """How often each task was started again, or is about to be."""
        return {task: life.restarts for task, life in self._lives.items() if life.restarts}

    def take(self, event: Event, *, now_s: float) -> list[Action]:
        """Return what is to be done about an event."""
        life = self._lives[event.task]
        if self.ended:
            return []
        if isinstance(event, Return):
            life.hang = None
            life.is_given_up = False  # somebody else has started it
        elif life.is_given_up:
            return []
        elif isinstance(event, Death):
            return self._died(event, life, now_s=now_s)
        elif life.starts_at_s == math.inf and life.hang != event:  # who is gone cannot hang
            # Who goes on after a stop has the whole time to answer.
            life.hang, life.hangs_since_s = event, now_s
        return []

    def due(self, *, now_s: float) -> list[Action]:
        """Return what is to be done because time has passed."""
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
        if life.starts_at_s < math.inf:  # the same death, told twice
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
        """Why the job cannot go on without the task that was given up, or None."""
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
        """As in ``worker 0 died again after its budget of 3 restarts``."""
        names = ", ".join(f"{kind} {index}" for kind, index in tasks)
        budget = self._fault_tolerance.restart_budget
        if not budget:
            return f"{names} died, and the budget of restarts is 0"
        their = "its" if len(tasks) == 1 else "their"
        return f"{names} died again after {their} budget of {counted(budget, 'restart')}"
