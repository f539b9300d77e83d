"""The workers that take part in a job, as all of its servers know them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfps.consistency.ledger import TERM_INCARNATIONS
from tfps.runtime.coordinator.control_plane import CALL_TIMEOUT_S
from tfps.runtime.coordinator.server import Server


class ServerMembers:
    """Numbers the lives of workers, and tells all servers which workers take part.

    Args:
        servers: the servers of the job.
        on_eviction: called with a worker before the servers are told that it is lost.
    """

    def __init__(self, servers: Sequence[Server], *, on_eviction: Callable[[int], None]) -> None:
        self._servers, self._on_eviction = servers, on_eviction
        self._lock = threading.Lock()
        self._incarnations = itertools.count(1)
        self._latest_incarnations: dict[int, int] = {}
        self._has_evicted = False  # since `equalize_counts`

    def begin_term(self, term: int) -> None:
        """Issue incarnations that are newer than those of all earlier chiefs."""
        with self._lock:
            self._incarnations = itertools.count(term * TERM_INCARNATIONS + 1)

    def next_incarnation(self, worker: int) -> int:
        """Return a worker's next incarnation: a number larger than any before in this job."""
        with self._lock:
            incarnation = self._latest_incarnations[worker] = next(self._incarnations)
        return incarnation

    def latest_incarnation(self, worker: int) -> int | None:
        """Return a worker's newest incarnation, or None if it never took part in a round."""
        with self._lock:
            return self._latest_incarnations.get(worker)

    def evict(self, worker: int, incarnation: int, *, patience_s: float = CALL_TIMEOUT_S) -> None:
        """Evict a lost worker on every server; first on the one that issues tickets.

        So its tickets have gone back before any other server refuses the rest of a push. A server
        that is itself lost cannot be told.

        Raises:
            tf.errors.UnavailableError: a server did not reply; all others were told.
        """
        self._has_evicted = True
        self._on_eviction(worker)
        silent = None
        for server in self._servers:
            try:
                if server.lost is None:
                    server.evict(worker, incarnation, patience_s=patience_s)
            except tf.errors.UnavailableError as error:
                silent = error
        if silent is not None:
            raise silent

    def expect(self, will_join: Sequence[bool]) -> None:
        """Let rounds wait for workers; ``will_join`` contains a bool for each worker."""
        for server in self._servers:
            server.expect(will_join)

    def cancel_expected(self, worker: int) -> None:
        """Stop waiting for an expected worker to join."""
        for server in self._servers:
            if server.lost is None:
                server.cancel_expected(worker)

    def equalize_counts(self) -> bool:
        """Raise the update counts of all servers to the largest one, in rounds; see `ledger`.

        Called when a run has been drained. Returns whether a count has changed.
        """
        if not self._has_evicted or self._servers[0].rounds is None:
            return False
        self._has_evicted = False
        counts = {server: int(server.cells()[server.layout.VERSION]) for server in self._servers}
        most = max(counts.values())
        behind = [server for server, count in counts.items() if count < most]
        for server in behind:
            server.count_up_to(most)
        return bool(behind)
