"""Judges which tasks are alive by the probes that they answered and missed. Pure."""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tfps.errors import refuse

PERIOD_VARIABLE = "TFPS_PROBE_PERIOD_S"
DEADLINE_VARIABLE = "TFPS_PROBE_DEADLINE_S"
MISSES_VARIABLE = "TFPS_PROBE_MISSES"

Task = TypeVar("Task", bound=Hashable)


class Verdict(enum.Enum):
    """The state of a task, as its probes show it."""

    ALIVE = "alive"
    SUSPECT = "suspect"  # missed a probe; no action yet
    LOST = "lost"


@dataclass(frozen=True)
class ProbePolicy:
    """Specifies how often tasks are probed, and when a task that does not reply is lost.

    The defaults find a stopped task within 10 s: a probe goes out every second or, once one goes
    unanswered, every 3 s. A task replies within 2 ms, under full load within 0.1 s. So it misses a
    probe only if its machine gives it no time for 3 s, and is lost after three misses in a row.

    Args:
        period_s: the seconds from one probe to the next.
        deadline_s: the seconds that a reply may take. A refused connection is a miss immediately.
        misses: the number of misses in a row after which the task is lost.

    Raises:
        ConfigError: a number is invalid.

    Example:

    >>> ProbePolicy(period_s=0.5).max_detection_s
    9.5
    """

    period_s: float = 1.0
    deadline_s: float = 3.0
    misses: int = 3

    def __post_init__(self) -> None:
        problems = [
            f"{name}: received {value!r}, expected a number of seconds above 0"
            for name, value in (("period_s", self.period_s), ("deadline_s", self.deadline_s))
            if not (math.isfinite(value) and value > 0)
        ]
        if self.misses < 1:
            problems.append(f"misses: received {self.misses!r}, expected a whole number from 1")
        refuse(problems, source="ProbePolicy")

    @property
    def max_detection_s(self) -> float:
        """The longest time in seconds from a task's end to the verdict that it is lost."""
        return self.period_s + self.misses * max(self.period_s, self.deadline_s)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> ProbePolicy:
        """Return the defaults, each overridden by its environment variable.

        Args:
            environment: the variables; None: those of this process.

        Raises:
            ConfigError: a variable holds an invalid number.

        Example:

        >>> ProbePolicy.from_environment({"TFPS_PROBE_DEADLINE_S": "10"}).deadline_s
        10.0
        """
        given = os.environ if environment is None else environment
        problems: list[str] = []

        def read_number(name: str, default: float) -> float:
            text = given.get(name, "").strip() or str(default)
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            whole = (
                name != MISSES_VARIABLE or value == math.floor(value)
                if math.isfinite(value)
                else False
            )
            if not (whole and value > 0):
                kind = (
                    "a whole number from 1"
                    if name == MISSES_VARIABLE
                    else "a number of seconds above 0"
                )
                problems.append(f"{name}: received {text!r}, expected {kind}")
            return value

        period_s, deadline_s = (
            read_number(PERIOD_VARIABLE, cls.period_s),
            read_number(DEADLINE_VARIABLE, cls.deadline_s),
        )
        misses = read_number(MISSES_VARIABLE, cls.misses)
        refuse(problems, source="the environment")
        return cls(period_s=period_s, deadline_s=deadline_s, misses=int(misses))


@dataclass
class _ProbeRecord:
    missed: int = 0
    suspect_since_s: float = -math.inf


class Liveness(Generic[Task]):
    """Turns answered and missed probes into verdicts.

    Args:
        tasks: all tasks that are probed; each counts as alive until it misses a probe.
        policy: says after how many misses a task is lost.

    Example:

    >>> liveness = Liveness(["ps 0"], policy=ProbePolicy(misses=2))
    >>> liveness.record_miss("ps 0", sent_s=0.0, judged_s=3.0)
    <Verdict.SUSPECT: 'suspect'>
    >>> liveness.record_miss("ps 0", sent_s=3.0, judged_s=6.0)
    <Verdict.LOST: 'lost'>
    >>> liveness.record_reply("ps 0", sent_s=6.0)
    <Verdict.ALIVE: 'alive'>
    """

    def __init__(self, tasks: Iterable[Task], *, policy: ProbePolicy) -> None:
        self._policy = policy
        self._records = {task: _ProbeRecord() for task in tasks}

    def record_reply(self, task: Task, *, sent_s: float) -> Verdict:
        """Record a reply: the task is alive, unless `mark_suspect` was called after the probe."""
        record = self._records[task]
        if sent_s >= record.suspect_since_s:
            record.missed = 0
        return self.verdict(task)

    def record_miss(self, task: Task, *, sent_s: float, judged_s: float) -> Verdict:
        """Record a miss, unless this process itself was suspended during the probe."""
        if judged_s - sent_s <= self._policy.deadline_s + self._policy.period_s:
            self._records[task].missed += 1
        return self.verdict(task)

    def mark_lost(self, task: Task) -> Verdict:
        """Mark a task as lost, for a reason other than probes, until it replies to a probe."""
        record = self._records[task]
        record.missed = max(record.missed, self._policy.misses)
        return self.verdict(task)

    def mark_suspect(self, task: Task, *, now_s: float) -> Verdict:
        """Mark a task whose work failed as suspect, until it replies to a later probe."""
        record = self._records[task]
        record.missed, record.suspect_since_s = max(record.missed, 1), now_s
        return self.verdict(task)

    def verdict(self, task: Task) -> Verdict:
        """Return the state of a task now."""
        missed = self._records[task].missed
        if missed >= self._policy.misses:
            return Verdict.LOST
        return Verdict.SUSPECT if missed else Verdict.ALIVE
