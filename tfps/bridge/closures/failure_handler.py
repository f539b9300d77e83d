"""Reconnects workers that died one by one, without waiting for the others."""

from __future__ import annotations

import contextlib
import copy
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_error import is_removed_member_error
from tfps.bridge.closures.connection import lock_connection
from tfps.cluster import accepts_connections

POLL_INTERVAL_S = 0.5  # how late a worker's return is noticed
STOP_TIMEOUT_S = 1.0
MAX_REPEATS = 50  # of closures that are cancelled, one after the other

logger = logging.getLogger(__name__)


class WorkerHealth(Protocol):
    """Reports the state of workers, and stops giving work to those that are lost."""

    def is_responding(self, worker: int) -> bool:
        """Return whether a worker responds now; a worker that hangs does not."""

    def is_incompatible(self, worker: int) -> bool:
        """Return whether a restarted worker cannot take part."""

    def mark_worker_lost(self, worker: int) -> bool:
        """Give a lost worker no work until it is reconnected; return whether that was possible."""


class UnknownHealth:
    """The default, which regards every worker that accepts a connection as healthy."""

    def is_responding(self, worker: int) -> bool:
        return True

    def is_incompatible(self, worker: int) -> bool:
        return False

    def mark_worker_lost(self, worker: int) -> bool:
        return False


class LostServers(Protocol):
    """Brings lost parameter servers back while no closure runs."""

    def enter(self) -> None:
        """Record the start of a closure; wait first while servers are being brought back."""

    def leave(self) -> None:
        """Record that a closure has ended."""

    def is_caused_by_server_loss(self, error: BaseException | None = None) -> bool:
        """Return whether an error of a closure comes from a server that is being brought back.

        The closure must end, and runs again when the server is back.
        """

    def wait_for_return(self) -> None:
        """Wait while servers are being brought back."""

    def interrupt(self) -> None:
        """End the closures that wait for a server with an error."""


class NoServerReturn:
    """The default: lost servers do not return, and closures that used them fail."""

    def enter(self) -> None:
        """Return immediately: no server is being brought back."""

    def leave(self) -> None:
        """Do nothing: the number of closures is not needed."""

    def is_caused_by_server_loss(self, error: BaseException | None = None) -> bool:
        return False

    def wait_for_return(self) -> None:
        """Return immediately: no server is being brought back."""

    def interrupt(self) -> None:
        """Does nothing: no closure waits."""


class FailureHandler(private.WorkerPreemptionHandler):
    """TensorFlow's handler, extended so that a worker that never returns blocks no other one.

    TensorFlow reconnects the whole cluster when a worker is lost, and waits without limit for every
    task: until the last lost worker is back no worker is reconnected, functions for a new iterator
    or model wait, and so does the end of the process. This handler reconnects the cluster as soon
    as one lost worker responds. The cluster then consists of the workers that are running; the
    others are left out until they return. While a worker hangs no worker is reconnected, since
    TensorFlow would wait for it.

    Args:
        server_def: the definition of the whole cluster; None if all tasks are in this process.
        cluster: the cluster of the coordinator.

    Attributes:
        lost_workers: the workers that were lost and are not reconnected yet; their threads wait.
        excluded_workers: the workers that the cluster leaves out and for which no thread waits.
        is_reconnecting: whether the cluster is being reconnected; starts once no function runs.
        health: reports the state of workers.
        servers: brings lost servers back.
    """

    _server_def: Any  # an attribute of TensorFlow's: the cluster as it is connected

    def __init__(self, server_def: Any, cluster: Any) -> None:
        self.lost_workers: frozenset[int] = frozenset()
        self.excluded_workers: frozenset[int] = frozenset()
        self.is_reconnecting = False
        self.health: WorkerHealth = UnknownHealth()
        self.servers: LostServers = NoServerReturn()
        self._addresses = _addresses(server_def, "worker")
        self._repeats = Counter[int]()  # of each worker, without a success between them
        super().__init__(server_def, cluster)  # starts the thread

    def stop(self) -> None:
        """End the handler's thread and the threads that wait for a worker's return.

        The lock only keeps the thread from clearing the event again. If TensorFlow waits for a task
        that was lost after it had responded, the thread ends the next time it checks the flag.
        """
        self._should_preemption_thread_run = False
        acquired = self._cluster_update_lock.acquire(timeout=STOP_TIMEOUT_S)
        self._cluster_due_for_update_or_finish.set()
        if acquired:
            self._worker_up_cond.notify_all()
            self._cluster_update_lock.release()

    @contextlib.contextmanager
    def wait_on_failure(
        self,
        on_failure_fn: Callable[[Exception], None] | None = None,
        on_transient_failure_fn: Callable[[], None] | None = None,
        on_recovery_fn: Callable[[], None] | None = None,
        worker_device_name: str = "(unknown)",
    ) -> Iterator[None]:
        """Handle a closure that fails with its worker: return when this worker is back."""
        worker = int(worker_device_name.rpartition(":")[2])
        # TensorFlow calls this again for the recovery, as soon as any worker may be back. A thread
        # that waits for its own worker uses no server, and must not delay a lost server's return.
        self._wait_until_back(worker)
        if not self._should_preemption_thread_run:
            yield
            return

        def failed(error: Exception) -> None:
            if on_failure_fn:
                on_failure_fn(error)
            with self._cluster_update_lock:
                self.lost_workers |= {worker}

        def run_again() -> None:
            error = sys.exception()
            self._repeats[worker] = (self._repeats[worker] + 1) % MAX_REPEATS
            if error is not None and not self._repeats[worker]:
                raise error  # TensorFlow has no limit, and begins an input again in nested calls
            if on_transient_failure_fn:
                on_transient_failure_fn()

        def recovered() -> None:
            if on_recovery_fn and worker not in self.lost_workers:
                on_recovery_fn()

        watched = super().wait_on_failure(failed, run_again, recovered, worker_device_name)
        with watched, self._run_with_servers(on_transient_failure_fn):
            yield
            self._repeats[worker] = 0

    @contextlib.contextmanager
    def _run_with_servers(self, run_again: Callable[[], None] | None) -> Iterator[None]:
        """Run a closure; let it run again later if a server's loss or a removal ended it.

        That is: a lost server is being brought back, or the worker was removed from the members.
        """
        servers = self.servers
        servers.enter()
        try:
            yield
        except Exception as error:
            is_excused = run_again is not None and (
                is_removed_member_error(error) or servers.is_caused_by_server_loss(error)
            )
            servers.leave()
            if not self._should_preemption_thread_run:
                # TensorFlow does not log this error, and does not wait for the worker.
                raise tf.errors.CancelledError(None, None, "the strategy was closed") from None
            if not is_excused:
                raise
        else:
            servers.leave()
            return
        assert run_again is not None
        run_again()

    def _wait_until_back(self, worker: int) -> None:
        """Wait until a worker is back or the handler stops."""
        with self._cluster_update_lock:
            self._worker_up_cond.wait_for(
                lambda: worker not in self.lost_workers or not self._should_preemption_thread_run
            )

    def _preemption_handler(self) -> None:
        while True:
            self._cluster_due_for_update_or_finish.wait()
            if not self._should_preemption_thread_run:
                return
            outside = self.lost_workers | self.excluded_workers
            if not (self._find_available(outside) and self._reconnect_available()):
                self._wake_threads()
                time.sleep(POLL_INTERVAL_S)

    def _wake_threads(self) -> None:
        """Wake the threads that wait for workers; the worker of a thread may already be back."""
        with self._cluster_update_lock:
            self._worker_up_cond.notify_all()
            if (
                not (self.lost_workers or self.excluded_workers)
                and self._should_preemption_thread_run
            ):
                self._cluster_due_for_update_or_finish.clear()

    def _find_available(self, workers: Iterable[int]) -> frozenset[int]:
        """Return the workers among these that accept connections and may take part."""
        available = frozenset(w for w in workers if accepts_connections(self._addresses[w]))
        new = available & (self.lost_workers | self.excluded_workers)
        return available - frozenset(
            worker for worker in new if self.health.is_incompatible(worker)
        )

    def _reconnect_available(self) -> bool:
        """Reconnect the cluster with the workers that are running; return whether that worked."""
        available = self._find_available(self._addresses)
        if not all(map(self.health.is_responding, available)):
            return False
        if not all(map(accepts_connections, _addresses(self._server_def, "ps").values())):
            return False  # TensorFlow would wait for that server
        missing = frozenset(self._addresses) - available
        with lock_connection(), self._cluster_update_lock:
            if not self._should_preemption_thread_run:
                return False  # this process may be connected to another cluster by now
            excluded = frozenset(
                w for w in missing - self.lost_workers if self.health.mark_worker_lost(w)
            )
            self.excluded_workers |= excluded  # before they are removed from the cluster
            self.is_reconnecting = True
            try:
                private.current_context().update_server_def(
                    self._without_workers(missing & (self.lost_workers | excluded))
                )
            except Exception as error:  # noqa: BLE001 - judged, and raised by a worker's thread
                self._handle_connect_error(error)
                return False
            finally:
                self.is_reconnecting = False
            self.lost_workers, self.excluded_workers = self.lost_workers - available, excluded
        self._wake_threads()
        return True

    def reconnect(self) -> bool:
        """Reconnect the cluster to a restarted server; the caller makes sure that no closure runs.

        A worker that died with the server may not be known as lost yet: the loss of the server has
        ended its closure like all others. Returns False if a worker hangs, since TensorFlow would
        wait for it.
        """
        available = self._find_available(self._addresses)
        if not all(map(self.health.is_responding, available)):
            return False
        with lock_connection(), self._cluster_update_lock:
            missing = frozenset(self._addresses) - available - self.lost_workers
            if excluded := frozenset(w for w in missing if self.health.mark_worker_lost(w)):
                self.excluded_workers |= excluded
                self._cluster_due_for_update_or_finish.set()  # reconnects them when they return
            outside = self.lost_workers | self.excluded_workers
            if not missing <= outside:
                return False  # some workers cannot be left out yet
            private.current_context().update_server_def(self._without_workers(outside))
        # TensorFlow counts failures for the life of a process, and gives up at the third one.
        with self._cluster._potential_ps_failures_lock:
            self._cluster._potential_ps_failures_count = [0] * self._cluster._num_ps
        return True

    def set_task_address(self, task: tuple[str, int], address: str) -> None:
        """Set a task's new address; every task learns it when the cluster is reconnected."""
        kind, index = task
        definition = copy.deepcopy(self._server_def)
        for job in definition.cluster.job:
            if job.name == kind:
                job.tasks[index] = address
        self._server_def, self._addresses = definition, _addresses(definition, "worker")

    def _handle_connect_error(self, error: Exception) -> None:
        """Ignore an error of a lost task that may return; let a worker's thread raise any other."""
        logger.info("could not connect to the cluster again: %s", error)
        if self.servers.is_caused_by_server_loss(error):
            return
        try:
            self._validate_preemption_failure(error)
        except Exception as final:  # noqa: BLE001 - raised by a worker's thread
            self._error_from_recovery = final

    def _without_workers(self, workers: Iterable[int]) -> Any:
        """Return the definition of the cluster without some of its workers."""
        definition = copy.deepcopy(self._server_def)
        for job in definition.cluster.job:
            if job.name == "worker":
                for worker in workers:
                    del job.tasks[worker]
        return definition


def _addresses(server_def: Any, job_name: str) -> dict[int, str]:
    return {
        index: address
        for job in (server_def.cluster.job if server_def is not None else ())
        if job.name == job_name
        for index, address in job.tasks.items()
    }
