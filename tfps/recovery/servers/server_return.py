"""Bring a lost parameter server back into the job once it is started again."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import tensorflow as tf

from tfps.bridge.closures.closure_queue import ClosureQueue
from tfps.bridge.closures.failure_handler import FailureHandler
from tfps.bridge.variables.server_access import LOSS_ERRORS, watch_accesses
from tfps.errors import CheckpointError
from tfps.recovery.probing.connections import cut_connections
from tfps.recovery.restarts.task_supervisor import get_supervisor
from tfps.recovery.servers.return_gate import POLL_INTERVAL_S, WAIT_ENDED, ReturnGate, ReturnState
from tfps.recovery.servers.server_identities import ServerIdentities, ServerPresence
from tfps.recovery.servers.server_loss import ServerLoss, updates_lost
from tfps.runtime.coordinator.control_plane import bringing_servers_back
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

# How often the log repeats that the job waits for a server.
WARNING_INTERVAL_S = 60.0
# How long the end of a strategy waits while a server is being filled.
JOIN_TIMEOUT_S = 10.0
# How long gRPC may pause before a worker connects again to a server that is back.
RECONNECT_S = 30.0


class JobView(Protocol):
    """The members of a job that `ServerReturn` uses."""

    @property
    def waits_for_servers(self) -> bool:
        """Whether the job waits for lost servers; else it ends with the first loss."""

    def refuse_loss(self) -> None:
        """Check that the job can go on after a server has lost its variables.

        Raises:
            CheckpointError: it cannot, even with a checkpoint.
        """

    def evict_workers(self) -> None:
        """Evict all workers, to end waits in a round for a worker that uses a lost server."""

    def restore(self, restarted: Sequence[Server], living: Sequence[Server]) -> list[ServerLoss]:
        """Fill servers that were restarted, server 0 first; return the cost of each loss.

        Raises:
            CheckpointError: no checkpoint contains the servers' variables.
        """

    def server_is_back(self, index: int) -> None:
        """Record that a lost server has been brought back."""


class ServerReturn:
    """Pauses closures when a server is lost, brings the server back, and resumes them.

    A lost server is *fenced* first: this job closes its connections to it. When every closure has
    ended and every server replies, TensorFlow connects to the new process, the server's variables
    are made and filled there again, and closures go on. A server that went on by itself, with all
    its variables, is only connected again. `ReturnState` names the states. A thread does all of
    it; it exists only while a server is lost.

    Args:
        runtime: the job.
        identities: tells which servers reply.
        job: fills servers, and decides whether the job can go on.
    """

    def __init__(self, runtime: Runtime, identities: ServerIdentities, job: JobView) -> None:
        self._runtime, self._identities, self._job = runtime, identities, job
        self.gate = ReturnGate(runtime)
        self._check_lock = threading.Lock()
        self._start_lock = threading.Lock()  # a loss is known only with the thread that mends it
        self._disconnected: set[int] = set()  # lost servers whose connections are closed
        self._thread: threading.Thread | None = None  # the last one
        self._returned_s = float("-inf")
        self._queue: ClosureQueue | None = None
        self._failures: FailureHandler | None = None
        self.losses: list[ServerLoss] = []
        for server in runtime.servers:
            server.set_wait_for_return(self.wait)
        watch_accesses(runtime.container, self)

    def watch_closures(self, queue: ClosureQueue, failures: FailureHandler) -> None:
        """Begin to watch the closures of a coordinator."""
        self._queue, self._failures = queue, failures
        failures.servers = self

    @property
    def updates_lost(self) -> int:
        """The number of updates lost on servers' rows, summed over the servers."""
        return updates_lost(self.losses)

    def enter(self) -> None:
        """Begin a closure; see `tfps.bridge.closures.failure_handler.LostServers`.

        Raises:
            tf.errors.UnavailableError: a lost server cannot be brought back.
        """
        if not self.gate.enter():
            self._raise_unavailable()

    def leave(self) -> None:
        """End a closure."""
        self.gate.leave()

    def is_caused_by_server_loss(self, error: BaseException | None = None) -> bool:
        """Return whether an error can come from the loss of a server; may ask all servers."""
        assert self._queue is not None
        if self._is_given_up or self._queue.is_cancelled:
            return False
        if error is not None and not isinstance(error, LOSS_ERRORS):
            return False
        return self._check_for_loss() or self._is_reconnecting(error)

    def wait(self) -> bool:
        """Wait until lost servers are back; return whether one was lost and all are back.

        Returns immediately on the threads of closures and of the return itself.
        """
        if self.gate.is_own_thread:
            return False
        return not self._runtime.closed and self._check_for_loss() and self.gate.wait()

    def wait_for_return(self) -> None:
        """Wait while a server is brought back, if one is known to be lost."""
        if not self.gate.is_own_thread:
            self.gate.wait()

    def repeat(self, access: Callable[[], Result]) -> Result:
        """Run an eager access of the chief, repeated after each loss, and return its result.

        A result is discarded too if a server was lost meanwhile: a variable is made again before
        it is filled.

        Raises:
            tf.errors.UnavailableError: a lost server cannot be brought back.
        """
        if self._failures is None or self.gate.is_own_thread:
            return access()
        has_seen_loss = False
        while not self._is_given_up and not self._runtime.closed:
            if not self.gate.wait():
                self._raise_unavailable()
            losses = self.gate.losses_known
            try:
                result = access()
            except tf.errors.OpError as error:
                is_of_a_loss = losses != self.gate.losses_known or self._check_for_loss()
                if not is_of_a_loss and not self._is_reconnecting(error):
                    raise
            else:
                if losses == self.gate.losses_known:
                    return result
            has_seen_loss = True
        if has_seen_loss:
            self._raise_unavailable()
        return access()

    def interrupt(self) -> None:
        """End the waits of closures and accesses that are in progress."""
        self.gate.interrupt()

    def end(self, reason: str) -> bool:
        """Give up servers that are still lost; return whether one was lost.

        Args:
            reason: a part of the error that waiting threads get.
        """
        with self._start_lock:
            thread = self._thread
            if not self.gate.lost or thread is None:
                return False
        if not self._is_given_up:
            self._give_up(f"The job no longer waits for it: {reason}.")
        thread.join(JOIN_TIMEOUT_S)
        return True

    def begin_return(self, index: int, reason: str) -> None:
        """Begin to bring back a server that does not reply."""
        with self._start_lock:
            number = self.gate.close(index, reason)
            if number == 1:
                self._thread = threading.Thread(
                    target=self._run, name="tfps-server-return", daemon=True
                )
                self._thread.start()
        if number:
            logger.warning("%s Training goes on when it is started again.", reason)

    @property
    def _is_given_up(self) -> bool:
        return self.gate.state is ReturnState.GIVEN_UP

    def _raise_unavailable(self) -> None:
        raise tf.errors.UnavailableError(None, None, self.gate.failure or WAIT_ENDED)

    def _is_reconnecting(self, error: BaseException | None) -> bool:
        """Return whether a worker's connection to a server that is back is not restored yet."""
        since_s = time.monotonic() - self._returned_s
        is_one = isinstance(error, tf.errors.UnavailableError) and "/job:ps/" in error.message
        if since_s > RECONNECT_S or not is_one:
            return False
        time.sleep(POLL_INTERVAL_S)  # a repetition at once would fail again
        return True

    def _check_for_loss(self) -> bool:
        with self._check_lock:
            if self.gate.lost:
                return True
            replies = self._identities.ask_servers()
            for index in replies.gone:
                self.begin_return(index, f"{self._server_text(index)} is gone.")
            self._begin_return_of_restarted(replies)
            # They may be back by now.
            return bool(replies.gone or replies.restarted or self.gate.lost)

    def _begin_return_of_restarted(self, replies: ServerPresence) -> None:
        for index in replies.restarted:
            self.begin_return(index, f"{self._server_text(index)} restarted.")

    def _server_text(self, index: int) -> str:
        return f"The parameter server ps {index} at {self._runtime.servers[index].address}"

    def _run(self) -> None:
        if not self._job.waits_for_servers:
            self._give_up('It cannot be restored: on_lost_server="stop".')
            return
        began_s = warned_s = time.monotonic()
        with self.gate.mark_own_thread(), bringing_servers_back():
            while not self._is_given_up and not self._runtime.closed:
                try:
                    if self._bring_back(began_s):
                        return
                except CheckpointError as error:
                    self._give_up(f"It cannot be restored: {error}")
                    return
                except tf.errors.OpError as error:
                    logger.info("cannot restore a server yet: %s", error.message)
                except Exception as error:
                    if not self._runtime.closed:  # else the threads would wait forever
                        self._give_up(f"It cannot be restored: {error!r}")
                    raise
                supervisor = get_supervisor(server.address for server in self._runtime.servers)
                if supervisor is not None and supervisor.give_up_reason:
                    self._give_up(f"It is not restarted: {supervisor.give_up_reason}")
                    return
                if time.monotonic() - warned_s > WARNING_INTERVAL_S:
                    warned_s = time.monotonic()
                    reasons = [*self.gate.lost.values(), self._identities.problem]
                    logger.warning("still waiting: %s", " ".join(reasons))
                time.sleep(POLL_INTERVAL_S)

    def _bring_back(self, began_s: float) -> bool:
        """Bring the lost servers back if that is possible now; return whether all are back."""
        self._disconnect_lost_servers()
        if not self.gate.drain():
            return False
        replies = self._identities.ask_servers()
        self._begin_return_of_restarted(replies)
        if replies.restarted or replies.gone:
            self._job.refuse_loss()
        if absent := self._identities.get_absent_servers(replies):
            self._move_lost_servers(self.gate.lost.keys() & absent)
            return False
        if not self._connect(replies):
            return False
        if replies.restarted:
            self._fill_servers(replies, began_s)
        for index in self.gate.lost:
            self._job.server_is_back(index)
        if not self.gate.drain() or not self.gate.open():
            return False
        self._disconnected.clear()
        self._returned_s = time.monotonic()
        return True

    def _disconnect_lost_servers(self) -> None:
        """Close the connections to lost servers, and end the closures that use them."""
        for index in self.gate.lost.keys() - self._disconnected:
            self._disconnected.add(index)
            self._runtime.hang_up(index)
            cut_connections(self._runtime.servers[index].address)
        # Evict all members: a server that is back knows none, and on the others a member would wait
        # for one that waits for the lost server.
        self._runtime.membership.evict_all()
        if self.gate.closures_running:
            self._job.evict_workers()

    def _move_lost_servers(self, lost: set[int]) -> None:
        """Move lost servers to the new addresses at which they reply, if they do."""
        assert self._failures is not None
        for index, address in self._identities.find(lost).items():
            server = self._runtime.servers[index]
            logger.warning("ps %d moved to %s from %s", index, address, server.address)
            self._runtime.set_task_address(("ps", index), address)
            self._failures.set_task_address(("ps", index), address)

    def _connect(self, replies: ServerPresence) -> bool:
        """Connect TensorFlow to the new processes; return False if that is not possible yet."""
        assert self._failures is not None
        if replies.restarted and not self._failures.reconnect():
            return False
        self._runtime.function_tables.reconnect_servers(
            [self._runtime.servers[index].device for index in replies.restarted],
            without=self._failures.lost_workers | self._failures.excluded_workers,
            patience_s=RECONNECT_S,
        )
        logger.info("connected with every parameter server again")
        return True

    def _fill_servers(self, replies: ServerPresence, began_s: float) -> None:
        """Make and fill the lost variables on the new processes, and record the losses."""
        servers = self._runtime.servers
        living = [server for server in servers if server.index not in replies.restarted]
        for loss in self._job.restore([servers[index] for index in replies.restarted], living):
            loss = dataclasses.replace(loss, seconds=time.monotonic() - began_s)
            self.losses.append(loss)
            self._identities.record_restored(loss.server, replies)
            logger.warning("back again: %s", loss)

    def _give_up(self, reason: str) -> None:
        text = self.gate.give_up(reason)
        logger.error("%s", text)
        assert self._queue is not None
        self._queue.fail(lambda: tf.errors.UnavailableError(None, None, text))
