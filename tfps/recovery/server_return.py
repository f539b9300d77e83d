"""A parameter server that was lost and is started again is taken in, in the same chief."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.closure_queue import ClosureQueue
from tfps.bridge.failure_handler import FailureHandler
from tfps.errors import CheckpointError
from tfps.recovery.connections import cut_connections
from tfps.recovery.incarnation import Presence, look_for
from tfps.recovery.server_loss import ServerLoss, updates_lost
from tfps.runtime.coordinator.control_plane import bringing_back
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.1
GIVEN_UP = "a parameter server was lost, and nobody waits for it any more"
# As often as somebody who waits for a server is told so.
SAY_EVERY_S = 60.0
# As long gRPC may rest before a worker connects again with a server that is back.
RECONNECT_S = 30.0
# What TensorFlow says of a server that is gone, or knows nothing of this process.
SIGNS = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.UnavailableError,
    tf.errors.UnknownError,
)


class ServerReturn:
    """Closures end at a server's loss; when it is back as it was, they run again.

    A lost server is *fenced* first: nobody in this job talks to it any more. When every closure has
    ended and every server answers, TensorFlow connects to the new process, what the server held is
    made there again and filled, and closures run on. One that went on by itself, with all that it
    held, is only connected again. All of it happens on a thread that lives for as long; while
    nothing is lost there is none.

    Args:
        runtime: the job.
        deadline_s: within which a server that is not busy answers.
        restore: fills a server that was started anew; answers what is lost. Called with the servers
            that have a ledger, and those of them that lived.
        told: called with the index of each server that is back.
        waits: for servers to be started again; else the job ends with the first that is lost.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        deadline_s: float,
        restore: Callable[[Server, Sequence[Server], Sequence[Server]], ServerLoss],
        told: Callable[[int], None],
        waits: bool,
    ) -> None:
        self._runtime, self._deadline_s = runtime, deadline_s
        self._restore, self._told, self._waits = restore, told, waits
        self._addresses = {("ps", s.index): s.address for s in runtime.servers}
        self._incarnations = {
            task: seen.incarnation for task, seen in self._look(deadline_s).items()
        }
        self._changed = threading.Condition()
        self._looking = threading.Lock()
        self._lost: dict[int, str] = {}
        self._fenced: set[int] = set()
        self._running = 0
        self._interrupts = 0
        self._own = threading.local()
        self._failed: str | None = None
        self._returned_s = float("-inf")
        self._queue: ClosureQueue | None = None
        self._failures: FailureHandler | None = None
        self.losses: list[ServerLoss] = []
        for server in runtime.servers:
            server.wait_with(self.wait)

    def attend(self, queue: ClosureQueue, failures: FailureHandler) -> None:
        """Begin to watch the closures of a coordinator."""
        self._queue, self._failures = queue, failures
        failures.servers = self

    @property
    def updates_lost(self) -> int:
        """On rows of all servers."""
        return updates_lost(self.losses)

    def enter(self) -> None:
        """A closure begins; see `tfps.bridge.failure_handler.LostServers`."""
        with self._changed:
            if not self._is_settled():
                raise tf.errors.UnavailableError(None, None, self._failed or GIVEN_UP)
            self._running += 1
        self._own.runs = True

    def leave(self) -> None:
        """A closure has ended."""
        self._own.runs = False
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def excuses(self, error: BaseException | None = None) -> bool:
        """Whether a server is lost, or just back; asks them all where nobody knows of one."""
        assert self._queue is not None
        if self._failed is not None or self._queue._cancellation_mgr.is_cancelled:
            return False
        if error is not None and not isinstance(error, SIGNS):
            return False
        return self._is_one_lost() or self._is_not_found_again(error)

    def _is_not_found_again(self, error: BaseException | None) -> bool:
        """Whether a worker's own connection with a server that is back still rests."""
        since_s = time.monotonic() - self._returned_s
        is_one = isinstance(error, tf.errors.UnavailableError) and "/job:ps/" in error.message
        if since_s > RECONNECT_S or not is_one:
            return False
        time.sleep(LOOK_EVERY_S)  # it would fail at once again
        return True

    def wait(self) -> bool:
        """Wait while a server is being brought back; answers whether one was.

        Not on the threads that the return waits for, or is made by.
        """
        if getattr(self._own, "runs", False) or getattr(self._own, "returns", False):
            return False
        return not self._runtime.closed and self._is_one_lost() and self._is_settled()

    def interrupt(self) -> None:
        """Nobody waits any more for what runs."""
        with self._changed:
            self._interrupts += 1
            self._changed.notify_all()

    def _is_settled(self) -> bool:
        """Wait while a server is being brought back; answers whether none is lost then."""
        with self._changed:
            interrupts = self._interrupts
            while self._lost and self._interrupts == interrupts:
                if self._failed is not None or self._runtime.closed:
                    return False
                self._changed.wait(LOOK_EVERY_S)
            return not self._lost

    def lose(self, index: int, reason: str) -> None:
        """A server answers no more."""
        with self._changed:
            if index in self._lost or self._failed is not None:
                return
            self._runtime.servers[index].lost = reason
            is_first, self._lost[index] = not self._lost, reason
        logger.warning("%s Training goes on when it is started again.", reason)
        if is_first:
            threading.Thread(target=self._run, name="tfps-server-return", daemon=True).start()

    def _is_one_lost(self) -> bool:
        with self._looking:
            if self._lost:
                return True
            for (_, index), seen in self._look(self._deadline_s).items():
                if seen.is_gone or self._is_another(index, seen):
                    address = self._runtime.servers[index].address
                    what = "is gone" if seen.is_gone else "was started anew"
                    self.lose(index, f"The parameter server ps {index} at {address} {what}.")
            return bool(self._lost)

    def _look(self, deadline_s: float) -> dict[tuple[str, int], Presence]:
        return look_for(self._addresses, deadline_s=deadline_s)

    def _is_another(self, index: int, seen: Presence) -> bool:
        known = self._incarnations["ps", index]
        return seen.incarnation is not None and seen.incarnation != known

    def _run(self) -> None:
        self._own.returns = True
        if not self._waits:
            self._give_up('on_lost_server="stop".')
            return
        began_s = said_s = time.monotonic()
        with bringing_back():
            while not self._runtime.closed:
                try:
                    if self._bring_back(began_s):
                        return
                except CheckpointError as error:
                    self._give_up(str(error))
                    return
                except tf.errors.OpError as error:
                    logger.info("a server could not be taken in yet: %s", error.message)
                if time.monotonic() - said_s > SAY_EVERY_S:
                    said_s = time.monotonic()
                    logger.warning("still waiting: %s", " ".join(self._lost.values()))
                time.sleep(LOOK_EVERY_S)

    def _bring_back(self, began_s: float) -> bool:
        """Take the lost servers in, if that is possible now; answers whether all are back."""
        for index in set(self._lost) - self._fenced:
            self._fenced.add(index)
            self._runtime.hang_up(index)
            cut_connections(self._runtime.servers[index].address)
        with self._changed:
            if not self._changed.wait_for(lambda: not self._running, LOOK_EVERY_S):
                return False
        seen = self._look(self._deadline_s)
        if any(each.incarnation is None for each in seen.values()):
            return False
        anew = [i for (_, i), each in seen.items() if self._is_another(i, each)]
        for index in anew:
            self.lose(index, f"The parameter server ps {index} was started anew.")
        assert self._failures is not None
        if anew and not self._failures.reconnect():
            return False
        lived = [s for s in self._runtime.servers if s.index not in anew]
        known = list(lived)
        for index in anew:  # server 0 first
            server = self._runtime.servers[index]
            loss = self._restore(server, known, lived)
            known.append(server)
            loss = dataclasses.replace(loss, seconds=time.monotonic() - began_s)
            self.losses.append(loss)
            self._incarnations["ps", index] = seen["ps", index].incarnation
            logger.warning("back again: %s", loss)
        return self._open(seen)

    def _open(self, seen: Any) -> bool:
        """Let closures run again."""
        with self._changed:
            for index in list(self._lost):
                self._told(index)
                self._runtime.servers[index].lost = None
            self._lost.clear()
            self._fenced.clear()
            self._returned_s = time.monotonic()
            self._changed.notify_all()
        return True

    def _give_up(self, reason: str) -> None:
        lost = " ".join(self._lost.values())
        text = f"{lost} It cannot be brought back: {reason}"
        logger.error("%s", text)
        assert self._queue is not None
        with self._changed:
            self._failed = text
            for index in self._lost:
                self._runtime.servers[index].lost = text
            self._changed.notify_all()
        self._queue.fail(lambda: tf.errors.UnavailableError(None, None, text))
