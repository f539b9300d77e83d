"""The tasks of a supervisor, played: each runs until the test says how it ended."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from tfps.cluster import ClusterSpec
from tfps.errors import TaskFailed
from tfps.launch.process_supervisor import ProcessSupervisor
from tfps.recovery.events import EventLog
from tfps.recovery.fault_tolerance import FaultTolerance

TASKS = [("worker", 0), ("worker", 1), ("ps", 0)]
SPEC = ClusterSpec(
    jobs={
        "chief": ("127.0.0.1:1",),
        "worker": ("127.0.0.1:2", "127.0.0.1:3"),
        "ps": ("127.0.0.1:4",),
    },
    task_type="chief",
    task_index=0,
)


class PlayedTask:
    """A process that is not there."""

    def __init__(self, name: str) -> None:
        self.name, self.pid = name, 1
        self.expected_to_end = False
        self.ended: int | None = None
        self.is_stopped = False

    def status(self) -> int | None:
        return self.ended

    def is_suspended(self) -> bool:
        return self.is_stopped

    def kill(self) -> int:
        self.expected_to_end, self.ended = True, -9
        return -9

    def report(self, how: str) -> str:
        return f"{self.name} {how}"


class PlayedTasks:
    """All of them, and the supervisor that looks at them when the test says so.

    Args:
        folder: for the events.
        fault_tolerance: of the supervisor.
    """

    def __init__(self, folder: Path, fault_tolerance: FaultTolerance) -> None:
        self.spec = SPEC
        self.lock = contextlib.nullcontext()
        self.processes = {task: self._new(task) for task in TASKS}
        self.started: list[tuple[str, int]] = []
        self.said: list[str] = []
        owner: Any = self
        self.events = EventLog(folder / "events.jsonl")
        self.supervisor = ProcessSupervisor(
            owner, TASKS, fault_tolerance=fault_tolerance, events=self.events
        )
        self.supervisor.write_message = self.said.append
        self.supervisor.mark_started()

    def process(self, task: tuple[str, int]) -> PlayedTask:
        return self.processes[task]

    def start_again(self, task: tuple[str, int]) -> None:
        self.started.append(task)
        self.processes[task] = self._new(task)

    def starter_failures(self) -> list[TaskFailed]:
        return []

    def look(self, *moments_s: float) -> None:
        for now_s in moments_s:
            self.supervisor.poll(now_s=now_s)

    def _new(self, task: tuple[str, int]) -> PlayedTask:
        return PlayedTask(f"{task[0]} {task[1]}")
