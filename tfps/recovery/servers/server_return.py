"""A parameter server that was lost and is started again is taken in, in the same chief."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import tensorflow as tf

from tfps.bridge.closures.closure_queue import ClosureQueue
from tfps.bridge.closures.failure_handler import FailureHandler
from tfps.bridge.variables.server_access import watch_accesses
from tfps.errors import CheckpointError
from tfps.recovery.probing.connections import cut_connections
from tfps.recovery.probing.incarnation import Presence, look_for
from tfps.recovery.restarts.kept_tasks import kept_tasks
from tfps.recovery.servers.new_addresses import NewAddresses
from tfps.recovery.servers.server_loss import ServerLoss, updates_lost
from tfps.runtime.coordinator.control_plane import bringing_back
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_EVERY_S = 0.1
GIVEN_UP = "a parameter server was lost, and nobody waits for it any more"
# As often as somebody who waits for a server is told so.
SAY_EVERY_S = 60.0
# As long the end of a strategy waits for what is just being restored.
END_S = 10.0
# As long gRPC may rest before a worker connects again with a server that is back.
RECONNECT_S = 30.0
# What TensorFlow says of a server that is gone, or knows nothing of this process.
SIGNS = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.FailedPreconditionError,
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
        fence: called while closures end that used a lost server, so that none of them waits for
            another one.
        restore: fills servers that were started anew; answers what each loss costs. Called with
            these, server 0 first, and with the servers that lived.
        told: called with the index of each server that is back.
        elsewhere: finds servers that were started again somewhere else.
        waits: for servers to be started again; else the job ends with the first that is lost.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        deadline_s: float,
        fence: Callable[[], None],
        restore: Callable[[Sequence[Server], Sequence[Server]], list[ServerLoss]],
        told: Callable[[int], None],
        elsewhere: NewAddresses,
        waits: bool,
    ) -> None:
        self._runtime, self._deadline_s = runtime, deadline_s
        self._fence, self._restore, self._told, self._waits = fence, restore, told, waits
        self._elsewhere = elsewhere
        self._incarnations = {
            task: seen.incarnation for task, seen in self._look(deadline_s).items()
        }
        self._changed = threading.Condition()
        self._looking = threading.Lock()
        self._lost: dict[int, str] = {}
        self._fenced: set[int] = set()
        self._misfits: dict[int, str] = {}  # incarnation -> why it cannot take part
        self._losses_known = 0
        self._running = 0
        self._interrupts = 0
        self._own = threading.local()
        self._failed: str | None = None
        self._thread: threading.Thread | None = None  # the last one
        self._returned_s = float("-inf")
        self._queue: ClosureQueue | None = None
        self._failures: FailureHandler | None = None
        self.losses: list[ServerLoss] = []
        # Called where a server has lost what it held. Raises a CheckpointError where the job cannot
        # go on whatever is restored, so that it ends before the server is started again.
        self.refuse: Callable[[], None] = lambda: None
        for server in runtime.servers:
            server.wait_with(self.wait)
        watch_accesses(runtime.container, self)

    def attend(self, queue: ClosureQueue, failures: FailureHandler) -> None:
        """Begin to watch the closures of a coordinator."""
        self._queue, self._failures = queue, failures
        failures.servers = self

    @property
    def updates_lost(self) -> int:
        """On rows of all servers."""
        return updates_lost(self.losses)

    def enter(self) -> None:
        """A closure begins; see `tfps.bridge.closures.failure_handler.LostServers`."""
        with self._changed:
            self._settle()
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
        if self._is_own:
            return False
        return not self._runtime.closed and self._is_one_lost() and self._is_settled()

    @property
    def _is_own(self) -> bool:
        """Whether this is a thread that the return waits for, or is made by."""
        return getattr(self._own, "runs", False) or getattr(self._own, "returns", False)

    def settle(self) -> None:
        """Wait while a server is being brought back, if one is known to be lost."""
        if self._lost and not self._is_own:
            self._is_settled()

    def repeat(self, access: Callable[[], T]) -> T:
        """Answer what an eager access of the chief does that no loss has met.

        Not only its error may be of a loss, since a variable is made again before it is filled.

        Raises:
            tf.errors.UnavailableError: a lost server cannot be brought back.
        """
        if self._failures is None or self._is_own:
            return access()
        while self._failed is None and not self._runtime.closed:
            self._settle()
            losses = self._losses_known
            try:
                result = access()
            except tf.errors.OpError as error:
                is_of_a_loss = losses != self._losses_known or self._is_one_lost()
                if not is_of_a_loss and not self._is_not_found_again(error):
                    raise
            else:
                if losses == self._losses_known:
                    return result
        return access()

    def interrupt(self) -> None:
        """Nobody waits any more for what runs."""
        with self._changed:
            self._interrupts += 1
            self._changed.notify_all()

    def end(self, reason: str) -> bool:
        """Bring nothing back any more; answers whether something was lost.

        Args:
            reason: that whoever waits is told.
        """
        with self._changed:
            thread = self._thread if self._lost else None
        if thread is None:
            return False
        if self._failed is None:
            self._give_up(f"It is not waited for any more: {reason}.")
        thread.join(END_S)
        return True

    def _settle(self) -> None:
        if not self._is_settled():
            raise tf.errors.UnavailableError(None, None, self._failed or GIVEN_UP)

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
            self._losses_known += 1
            is_first, self._lost[index] = not self._lost, reason
            logger.warning("%s Training goes on when it is started again.", reason)
            if is_first:
                self._thread = threading.Thread(
                    target=self._run, name="tfps-server-return", daemon=True
                )
                self._thread.start()

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
        addresses = {("ps", s.index): s.address for s in self._runtime.servers}
        return look_for(addresses, deadline_s=deadline_s)

    def _is_another(self, index: int, seen: Presence) -> bool:
        known = self._incarnations["ps", index]
        return seen.incarnation is not None and seen.incarnation != known

    def _run(self) -> None:
        self._own.returns = True
        if not self._waits:
            self._give_up('It cannot be brought back: on_lost_server="stop".')
            return
        began_s = said_s = time.monotonic()
        with bringing_back():
            while self._failed is None and not self._runtime.closed:
                try:
                    if self._bring_back(began_s):
                        return
                except CheckpointError as error:
                    self._give_up(f"It cannot be brought back: {error}")
                    return
                except tf.errors.OpError as error:
                    logger.info("a server could not be taken in yet: %s", error.message)
                except Exception as error:
                    if not self._runtime.closed:  # nobody else would end the wait
                        self._give_up(f"It cannot be brought back: {error!r}")
                    raise
                kept = kept_tasks(server.address for server in self._runtime.servers)
                if kept is not None and kept.given_up:
                    self._give_up(f"It is not started again: {kept.given_up}")
                    return
                if time.monotonic() - said_s > SAY_EVERY_S:
                    said_s = time.monotonic()
                    problem = self._elsewhere.problem
                    logger.warning("still waiting: %s", " ".join([*self._lost.values(), problem]))
                time.sleep(LOOK_EVERY_S)

    def _bring_back(self, began_s: float) -> bool:
        """Take the lost servers in, if that is possible now; answers whether all are back."""
        for index in set(self._lost) - self._fenced:
            self._fenced.add(index)
            self._runtime.hang_up(index)
            cut_connections(self._runtime.servers[index].address)
        # Who takes part in functions begins anew: on a server that is back nobody does, and on the
        # others nobody shall wait for who waits for a lost one.
        self._runtime.membership.evict_all()
        if self._running:
            self._fence()
        with self._changed:
            if not self._changed.wait_for(lambda: not self._running, LOOK_EVERY_S):
                return False
        seen = self._look(self._deadline_s)
        anew = [i for (_, i), each in seen.items() if self._is_another(i, each)]
        for index in anew:
            self.lose(index, f"The parameter server ps {index} was started anew.")
        if anew or any(each.is_gone for each in seen.values()):
            self.refuse()
        absent = [i for (_, i), each in seen.items() if not self._fits(i, each)]
        if absent:
            self._follow(self._lost.keys() & absent)
            return False
        assert self._failures is not None
        if anew and not self._failures.reconnect():
            return False
        self._runtime.function_tables.find_again(
            [self._runtime.servers[index].device for index in anew],
            without=self._failures.away | self._failures.left_out,
            patience_s=RECONNECT_S,
        )
        logger.info("connected with every parameter server again")
        lived = [s for s in self._runtime.servers if s.index not in anew]
        losses = self._restore([self._runtime.servers[i] for i in anew], lived) if anew else []
        for loss in losses:
            loss = dataclasses.replace(loss, seconds=time.monotonic() - began_s)
            self.losses.append(loss)
            self._incarnations["ps", loss.server] = seen["ps", loss.server].incarnation
            logger.warning("back again: %s", loss)
        return self._open()

    def _fits(self, index: int, seen: Presence) -> bool:
        """Whether a server is there and can take part, or does so already."""
        if seen.incarnation is None:
            return False
        if self._is_another(index, seen) and seen.incarnation not in self._misfits:
            server = self._runtime.servers[index]
            problem = self._runtime.misfit(("ps", index)) or self._runtime.data_plane.misfit(server)
            self._misfits[seen.incarnation] = problem
            self._elsewhere.say(problem)
        return not self._misfits.get(seen.incarnation)

    def _follow(self, lost: Collection[int]) -> None:
        """Look for lost servers somewhere else from now on, where they answer there."""
        assert self._failures is not None
        for index, address in self._elsewhere.find(lost).items():
            server = self._runtime.servers[index]
            logger.warning("ps %d is at %s now, no more at %s", index, address, server.address)
            self._runtime.move(server, address)
            self._failures.move_server(index, address)

    def _open(self) -> bool:
        """Let closures run again."""
        with self._changed:
            for index in list(self._lost):
                self._told(index)
            for server in self._runtime.servers:
                server.lost = None
            self._lost.clear()
            self._fenced.clear()
            self._returned_s = time.monotonic()
            self._changed.notify_all()
        return True

    def _give_up(self, reason: str) -> None:
        text = " ".join([*self._lost.values(), reason])
        logger.error("%s", text)
        assert self._queue is not None
        with self._changed:
            self._failed = text
            for index in self._lost:
                self._runtime.servers[index].lost = text
            self._changed.notify_all()
        self._queue.fail(lambda: tf.errors.UnavailableError(None, None, text))
