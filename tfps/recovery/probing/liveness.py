"""Which tasks are alive, judged by the probes that they answered and missed. Pure."""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tfps.errors import refuse

PERIOD_S = "TFPS_PROBE_PERIOD_S"
DEADLINE_S = "TFPS_PROBE_DEADLINE_S"
MISSES = "TFPS_PROBE_MISSES"

Task = TypeVar("Task", bound=Hashable)


class Verdict(enum.Enum):
    """What is known of a task."""

    ALIVE = "alive"
    SUSPECT = "suspect"  # missed a probe; nothing is done about it yet
    LOST = "lost"


@dataclass(frozen=True)
class ProbePolicy:
    """How often tasks are asked, and when one that does not answer is lost.

    The defaults find a stopped task within 10 s: a probe every second or, once one goes
    unanswered, every 3 s. A task answers within 2 ms, under full load within 0.1 s, so a miss
    takes a machine that gave it no time for 3 s, and a loss three of these in a row.

    Args:
        period_s: from one probe to the next.
        deadline_s: how long a task may take to answer. A refused connection is a miss at once.
        misses: so many in a row and the task is lost.

    Raises:
        ConfigError: a number that cannot work.

    Example:

    >>> ProbePolicy(period_s=0.5).longest_s
    9.5
    """

    period_s: float = 1.0
    deadline_s: float = 3.0
    misses: int = 3

    def __post_init__(self) -> None:
        problems = [
            f"{name}: {value!r}; expected a number of seconds above 0"
            for name, value in (("period_s", self.period_s), ("deadline_s", self.deadline_s))
            if not (math.isfinite(value) and value > 0)
        ]
        if self.misses < 1:
            problems.append(f"misses: {self.misses!r}; expected a whole number from 1")
        refuse(problems, source="ProbePolicy")

    @property
    def longest_s(self) -> float:
        """From the moment that a task stops to the verdict."""
        return self.period_s + self.misses * max(self.period_s, self.deadline_s)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> ProbePolicy:
        """The defaults, each overridden by its variable.

        Args:
            environment: instead of this process's.

        Raises:
            ConfigError: a variable that holds no such number.

        Example:

        >>> ProbePolicy.from_environment({"TFPS_PROBE_DEADLINE_S": "10"}).deadline_s
        10.0
        """
        given = os.environ if environment is None else environment
        problems: list[str] = []

        def number(name: str, default: float) -> float:
            text = given.get(name, "").strip() or str(default)
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            whole = name != MISSES or value == math.floor(value) if math.isfinite(value) else False
            if not (whole and value > 0):
                kind = "a whole number from 1" if name == MISSES else "a number of seconds above 0"
                problems.append(f"{name}: {text!r}; expected {kind}")
            return value

        period_s, deadline_s = number(PERIOD_S, cls.period_s), number(DEADLINE_S, cls.deadline_s)
        misses = number(MISSES, cls.misses)
        refuse(problems, source="the environment")
        return cls(period_s=period_s, deadline_s=deadline_s, misses=int(misses))


@dataclass
class _Record:
    missed: int = 0
    doubted_s: float = -math.inf


class Liveness(Generic[Task]):
    """Turns answered and missed probes into verdicts.

    Args:
        tasks: all that are probed; each counts as alive until it misses a probe.
        policy: when a task is lost.

    Example:

    >>> liveness = Liveness(["ps 0"], policy=ProbePolicy(misses=2))
    >>> liveness.missed("ps 0", sent_s=0.0, judged_s=3.0)
    <Verdict.SUSPECT: 'suspect'>
    >>> liveness.missed("ps 0", sent_s=3.0, judged_s=6.0)
    <Verdict.LOST: 'lost'>
    >>> liveness.answered("ps 0", sent_s=6.0)
    <Verdict.ALIVE: 'alive'>
    """

    def __init__(self, tasks: Iterable[Task], *, policy: ProbePolicy) -> None:
        self._policy = policy
        self._records = {task: _Record() for task in tasks}

    def answered(self, task: Task, *, sent_s: float) -> Verdict:
        """One answer and a task is alive, unless it was asked before somebody doubted it."""
        record = self._records[task]
        if sent_s >= record.doubted_s:
            record.missed = 0
        return self.verdict(task)

    def missed(self, task: Task, *, sent_s: float, judged_s: float) -> Verdict:
        """Count a miss, unless this very process stood still meanwhile: then it proves nothing."""
        if judged_s - sent_s <= self._policy.deadline_s + self._policy.period_s:
            self._records[task].missed += 1
        return self.verdict(task)

    def lost(self, task: Task) -> Verdict:
        """Something else has shown that a task is gone: it is lost until it answers a probe."""
        record = self._records[task]
        record.missed = max(record.missed, self._policy.misses)
        return self.verdict(task)

    def doubt(self, task: Task, *, now_s: float) -> Verdict:
        """Something else went wrong with a task: it is suspect until it answers from now on."""
        record = self._records[task]
        record.missed, record.doubted_s = max(record.missed, 1), now_s
        return self.verdict(task)

    def verdict(self, task: Task) -> Verdict:
        """What is known of a task now."""
        missed = self._records[task].missed
        if missed >= self._policy.misses:
            return Verdict.LOST
        return Verdict.SUSPECT if missed else Verdict.ALIVE
