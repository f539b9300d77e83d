"""A turn: the case that a chief process measures, and the tasks that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.usage import EpochClock
from tfps.launch import LocalCluster

TURN_TIMEOUT_S = 600.0  # a turn takes half a minute; one that hangs must not keep the others


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """Workers and parameter servers that are there while a turn is measured."""

    workers: int
    ps: int
    name: str = ""  # of a cluster that goes on from turn to turn; empty: it is the turn's own
    environment: Mapping[str, str] = field(default_factory=dict)
    is_linked: bool = False  # each task has a network of its own, joined by links of a rate
    megabits_per_s: float | None = None  # of the links, each way; None: as much as they can
    prepare: Callable[[LocalCluster], None] = lambda _: None  # called once it has started


@dataclass(frozen=True, kw_only=True)
class Turn:
    """An order to a fresh chief process, and where its result belongs."""

    title: str  # is announced
    name: str  # of the process in messages, and of its log
    case: Mapping[str, Any]  # the arguments of `Benchmark.measure`
    axes: Mapping[str, Any] | None = None  # of its result; None: the case
    seed: int | None = None
    tasks: Tasks | None = None  # none where the chief trains alone, or starts its own
    joins: bool = True  # whether the chief is that of the tasks
    environment: Mapping[str, str] = field(default_factory=dict)  # of the chief
    timeout_s: float = TURN_TIMEOUT_S
    is_timed: bool = False  # whether the case gets `began_s`, when the tasks began to start
    known: Any = None  # the result, where nothing is measured


@dataclass(frozen=True)
class TaskNumbers:
    """The process numbers of a cluster's tasks by role, as a chief process gets them."""

    groups: Mapping[str, Sequence[int]]

    def clock(self, *, by_role: bool = True) -> EpochClock:
        """Watch all tasks, and each role by itself if wanted."""
        every = [number for numbers in self.groups.values() for number in numbers]
        return EpochClock(every, self.groups if by_role else None)
