"""Invitations of workers to rounds that are about to begin."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tfps.runtime.coordinator.runtime import Runtime


class Invitations:
    """Makes the servers' rounds wait for workers that are about to join.

    Each worker that is sent out takes one invitation. The coordinator does not say which worker
    takes a closure: where one takes another's, an invitation is left over that no worker would
    answer; so it is cancelled.

    Args:
        runtime: tells the servers.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._lock = runtime, threading.Lock()
        self._open: set[int] = set()

    def renew(self, is_alive: Sequence[bool]) -> None:
        """Invite the workers that are alive, as `is_alive` says of each."""
        with self._lock:
            self._open = {worker for worker, alive in enumerate(is_alive) if alive}
            self._runtime.expect(is_alive)

    def cancel(self, workers: frozenset[int]) -> None:
        """Cancel the invitations of workers that hang: they get no closure."""
        with self._lock:
            for worker in self._open & workers:
                self._open.remove(worker)
                self._runtime.cancel_expected(worker)

    def take(self, worker: int) -> None:
        """Use up the invitation of a worker that has begun its closure and joins now."""
        with self._lock:
            if worker in self._open:
                self._open.remove(worker)
            elif self._open:
                self._runtime.cancel_expected(self._open.pop())
