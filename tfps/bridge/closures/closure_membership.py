"""Defines the interface by which a coordinator's queue reports busy, idle and lost workers."""

from __future__ import annotations

from typing import Any


class ClosureMembership:
    """The default membership without members, for workers that never wait for each other.

    The queue calls all methods except `is_member` without its lock, most of them on the worker's
    thread in the coordinator. They may take as long as a few messages.
    """

    def is_member(self, worker: int) -> bool:
        """Return whether others may wait for a worker, so that it has to leave before it idles."""
        return False

    def on_schedule(self, closure: Any, *, is_idle: bool) -> bool:
        """Handle a closure that is about to be queued; return whether workers became members.

        Args:
            closure: the closure.
            is_idle: whether no other closure is queued or runs.
        """
        return False

    def on_idle(self, worker: int) -> None:
        """Handle a worker's request for a closure."""

    def on_start(self, worker: int, closure: Any) -> None:
        """Handle the start of a closure on a worker."""

    def on_end(self, worker: int) -> None:
        """Handle the end of a worker's closure, with or without an error."""

    def on_error(self, worker: int) -> None:
        """Handle an error of a worker's closure, or the loss of the worker."""

    def on_leave(self, worker: int) -> None:
        """Handle a worker that has nothing to run, or whose closure went to another worker."""
