"""What a coordinator's queue says of its workers' comings and goings, for whoever keeps count."""

from __future__ import annotations

from typing import Any


class ClosureMembership:
    """Keeps no count: for coordinators whose workers never wait for each other.

    All but `is_member` are called without the queue's lock, most of them on the thread of the
    worker in the coordinator, and may take the time of a few messages.
    """

    def is_member(self, worker: int) -> bool:
        """Whether others may wait for a worker, so that it has to leave when it goes idle."""
        return False

    def scheduled(self, closure: Any, *, is_idle: bool) -> bool:
        """A closure will be queued; answers whether workers became members.

        Args:
            closure: that was scheduled.
            is_idle: no other one is queued or runs.
        """
        return False

    def on_idle(self, worker: int) -> None:
        """A worker asks for a closure."""

    def on_start(self, worker: int, closure: Any) -> None:
        """A worker begins a closure."""

    def on_end(self, worker: int) -> None:
        """A worker's closure has ended, well or not."""

    def on_error(self, worker: int) -> None:
        """A worker's closure has raised an error, or the worker is lost."""

    def on_leave(self, worker: int) -> None:
        """A worker has nothing to run, or what it ran was given to another one."""
