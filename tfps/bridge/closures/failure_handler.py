"""Workers that died are taken in again one by one, whatever becomes of the others."""

from __future__ import annotations

import contextlib
import copy
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_error import tells_of_a_member_let_out
from tfps.bridge.closures.connection import connecting
from tfps.cluster import accepts_connections

LOOK_EVERY_S = 0.5  # how late a worker's return is noticed
STOP_TIMEOUT_S = 1.0

logger = logging.getLogger(__name__)


class WorkerHealth(Protocol):
    """Who knows how the workers are, and gives them no more work where need be."""

    def answers(self, worker: int) -> bool:
        """Whether a worker answers now; one that hangs does not."""

    def misfit(self, worker: int) -> bool:
        """Whether a worker that was started anew cannot take part."""

    def lose(self, worker: int) -> bool:
        """Give a worker that is gone no more work until it is connected again; answers whether."""


class UnknownHealth:
    """Nobody: who accepts a connection counts as answering, and work is handed out to anybody."""

    def answers(self, worker: int) -> bool:
        return True

    def misfit(self, worker: int) -> bool:
        return False

    def lose(self, worker: int) -> bool:
        return False


class LostServers(Protocol):
    """Who brings parameter servers back that were lost, while no closure runs."""

    def enter(self) -> None:
        """A closure begins: wait while servers are being brought back."""

    def leave(self) -> None:
        """A closure has ended."""

    def excuses(self, error: BaseException | None = None) -> bool:
        """Whether what a closure met comes of a server that is being brought back.

        The closure shall end, and run again after that.
        """

    def settle(self) -> None:
        """Wait while servers are being brought back."""

    def interrupt(self) -> None:
        """Closures that wait for a server shall end with an error."""


class NoReturn:
    """Nobody does: a lost server ends what used it."""

    def enter(self) -> None:
        """Nothing is waited for."""

    def leave(self) -> None:
        """Nobody has to know."""

    def excuses(self, error: BaseException | None = None) -> bool:
        return False

    def settle(self) -> None:
        """Nothing is waited for."""

    def interrupt(self) -> None:
        """Nobody waits."""


class FailureHandler(private.WorkerPreemptionHandler):
    """TensorFlow's, except that a worker that is gone for good keeps nobody waiting.

    TensorFlow connects the whole cluster anew when a worker is lost, and waits there without limit
    for every task: until the last lost worker is back none is taken in, functions for a new
    iterator or model wait, and so does the end of the process. Here the cluster is connected anew
    once a lost worker answers, and consists of those that are there; the others are left out of it
    until they are. While a worker hangs none is taken in, since TensorFlow would wait for it.

    Args:
        server_def: of the whole cluster; None where all of it is this process.
        cluster: of the coordinator.

    Attributes:
        away: the workers that were lost and are not taken in yet; their threads wait.
        left_out: the workers that are not part of the cluster now though no thread waits for them.
        connects: whether the cluster is being connected anew, which begins once no function runs.
        health: asked how workers are.
        servers: brings servers back.
    """

    _server_def: Any  # TensorFlow's: the cluster as it is connected

    def __init__(self, server_def: Any, cluster: Any) -> None:
        self.away: frozenset[int] = frozenset()
        self.left_out: frozenset[int] = frozenset()
        self.connects = False
        self.health: WorkerHealth = UnknownHealth()
        self.servers: LostServers = NoReturn()
        self._addresses = _addresses(server_def, "worker")
        super().__init__(server_def, cluster)  # starts the thread

    def stop(self) -> None:
        """End the handler's thread and those that wait for a worker's return.

        The lock only keeps the thread from clearing the event again; while TensorFlow waits for a
        task that was lost after it had answered, the thread ends at its next look at the flag.
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
        """Let a closure fail with its worker, and return when this worker is back."""
        if not self._should_preemption_thread_run:
            yield
            return
        worker = int(worker_device_name.rpartition(":")[2])

        def failed(error: Exception) -> None:
            if on_failure_fn:
                on_failure_fn(error)
            with self._cluster_update_lock:
                self.away |= {worker}

        def recovered() -> None:
            if self._is_back(worker) and on_recovery_fn:
                on_recovery_fn()

        watched = super().wait_on_failure(
            failed, on_transient_failure_fn, recovered, worker_device_name
        )
        # Who waits for its own worker uses no server meanwhile.
        with watched, self._using_servers(on_transient_failure_fn):
            yield

    @contextlib.contextmanager
    def _using_servers(self, run_again: Callable[[], None] | None) -> Iterator[None]:
        """Run a closure; once more, and later, where that is nobody's mistake.

        A server was lost that is being brought back, or the worker was let out meanwhile.
        """
        servers = self.servers
        servers.enter()
        try:
            yield
        except Exception as error:
            is_excused = run_again is not None and (
                tells_of_a_member_let_out(error) or servers.excuses(error)
            )
            servers.leave()
            if not self._should_preemption_thread_run:
                # TensorFlow logs nothing of this error, and does not look for the worker.
                raise tf.errors.CancelledError(None, None, "the strategy was closed") from None
            if not is_excused:
                raise
        else:
            servers.leave()
            return
        assert run_again is not None
        run_again()

    def _is_back(self, worker: int) -> bool:
        """Wait for a worker: TensorFlow wakes all threads when one of their workers is back."""
        with self._cluster_update_lock:
            self._worker_up_cond.wait_for(
                lambda: worker not in self.away or not self._should_preemption_thread_run
            )
            return worker not in self.away

    def _preemption_handler(self) -> None:
        while True:
            self._cluster_due_for_update_or_finish.wait()
            if not self._should_preemption_thread_run:
                return
            outside = self.away | self.left_out
            if not (self._there(outside) and self._connect()):
                self._wake()
                time.sleep(LOOK_EVERY_S)

    def _wake(self) -> None:
        """Let threads look again: one may begin to wait when its worker has just been taken in."""
        with self._cluster_update_lock:
            self._worker_up_cond.notify_all()
            if not (self.away or self.left_out) and self._should_preemption_thread_run:
                self._cluster_due_for_update_or_finish.clear()

    def _there(self, workers: Iterable[int]) -> frozenset[int]:
        """Those of some workers that accept connections and may take part."""
        there = frozenset(w for w in workers if accepts_connections(self._addresses[w]))
        new = there & (self.away | self.left_out)
        return there - frozenset(worker for worker in new if self.health.misfit(worker))

    def _connect(self) -> bool:
        """Connect the cluster anew with the workers that are there; answers whether it is done."""
        there = self._there(self._addresses)
        if not all(map(self.health.answers, there)):
            return False
        if not all(map(accepts_connections, _addresses(self._server_def, "ps").values())):
            return False  # TensorFlow would wait for that one
        gone = frozenset(self._addresses) - there
        with connecting(), self._cluster_update_lock:
            if not self._should_preemption_thread_run:
                return False  # this process may be connected to another cluster by now
            left_out = frozenset(w for w in gone - self.away if self.health.lose(w))
            self.left_out |= left_out  # before they are gone from the cluster
            self.connects = True
            try:
                private.current_context().update_server_def(
                    self._without(gone & (self.away | left_out))
                )
            except Exception as error:  # noqa: BLE001 - judged, and raised by a worker's thread
                self._judge(error)
                return False
            finally:
                self.connects = False
            self.away, self.left_out = self.away - there, left_out
        self._wake()
        return True

    def reconnect(self) -> bool:
        """Connect the cluster anew for a server that was started anew, while no closure runs.

        A worker that is gone with it need not be known: its closure has ended as that of any other,
        by the loss of the server. Answers False where a worker hangs, for which TensorFlow would
        wait.
        """
        there = self._there(self._addresses)
        if not all(map(self.health.answers, there)):
            return False
        with connecting(), self._cluster_update_lock:
            gone = frozenset(self._addresses) - there - self.away
            if left_out := frozenset(worker for worker in gone if self.health.lose(worker)):
                self.left_out |= left_out
                self._cluster_due_for_update_or_finish.set()  # they are taken in when they return
            outside = self.away | self.left_out
            if not gone <= outside:
                return False  # no work was handed out yet
            private.current_context().update_server_def(self._without(outside))
        # TensorFlow counts them for the life of a process, and takes the third for the end.
        with self._cluster._potential_ps_failures_lock:
            self._cluster._potential_ps_failures_count = [0] * self._cluster._num_ps
        return True

    def move_server(self, index: int, address: str) -> None:
        """A server is somewhere else; every task is told when the cluster is connected anew."""
        definition = copy.deepcopy(self._server_def)
        for job in definition.cluster.job:
            if job.name == "ps":
                job.tasks[index] = address
        self._server_def = definition

    def _judge(self, error: Exception) -> None:
        """Try again after the loss of another task that returns; let a thread raise all else."""
        logger.info("the cluster could not be connected anew: %s", error)
        if self.servers.excuses(error):
            return
        try:
            self._validate_preemption_failure(error)
        except Exception as final:  # noqa: BLE001 - raised by a worker's thread
            self._error_from_recovery = final

    def _without(self, workers: Iterable[int]) -> Any:
        """The cluster as it is without some of its workers."""
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
