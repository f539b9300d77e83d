"""Let closures and accesses wait while a lost server is brought back."""

from __future__ import annotations

import enum
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

POLL_INTERVAL_S = 0.1
WAIT_ENDED = "a parameter server was lost, and the wait for it was interrupted"


class ReturnState(enum.Enum):
    """The state of the return of lost servers.

    ::

        ALL_THERE --close--> FENCED --drain--> RETURNING --open--> ALL_THERE
                                ^------close------'
        FENCED, RETURNING --give_up--> GIVEN_UP
    """

    ALL_THERE = "every server has what it had: closures run"
    FENCED = "a server is lost: no closure begins, and those that run end"
    RETURNING = "no closure runs: servers are connected and filled"
    GIVEN_UP = "a lost server cannot be brought back: what waits for it fails"


class GatedServer(Protocol):
    """A parameter server that may be lost.

    Attributes:
        lost: why it cannot be used; None: it can.
    """

    lost: str | None


class GatedJob(Protocol):
    """The job that the gate belongs to."""

    @property
    def closed(self) -> bool:
        """Whether the job has ended."""

    @property
    def servers(self) -> Sequence[GatedServer]:
        """The parameter servers, by index."""


class ReturnGate:
    """Counts the closures that run, and lets none begin while a server is lost.

    Threads that the return itself waits for, those of closures and its own, pass without waiting.

    Args:
        job: its end ends every wait, and its servers are marked while they are lost.
    """

    def __init__(self, job: GatedJob) -> None:
        self._job = job
        self._changed = threading.Condition()
        self._lost: dict[int, str] = {}
        self._running = 0
        self._interrupts = 0
        self._own_threads = threading.local()
        self.state = ReturnState.ALL_THERE
        self.failure = ""  # why it was given up
        self.losses_known = 0

    @property
    def lost(self) -> dict[int, str]:
        """The lost servers, by index, with the reason of each."""
        return dict(self._lost)

    @property
    def is_own_thread(self) -> bool:
        """Whether this thread runs a closure or the return itself, so that it must not wait."""
        return getattr(self._own_threads, "is_inside", False)

    @property
    def closures_running(self) -> int:
        """The number of closures that have begun and not ended."""
        return self._running

    def enter(self) -> bool:
        """Begin a closure as soon as no server is lost; return False if a lost one is given up."""
        with self._changed:
            if not self.wait():
                return False
            self._running += 1
        self._own_threads.is_inside = True
        return True

    def leave(self) -> None:
        """End a closure."""
        self._own_threads.is_inside = False
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    @contextmanager
    def mark_own_thread(self) -> Iterator[None]:
        """Mark this thread as the one that brings servers back."""
        self._own_threads.is_inside = True
        try:
            yield
        finally:
            self._own_threads.is_inside = False

    def wait(self) -> bool:
        """Wait while a server is brought back; return whether no server is lost afterwards."""
        with self._changed:
            interrupts = self._interrupts
            while self._lost and self._interrupts == interrupts:
                if self.state is ReturnState.GIVEN_UP or self._job.closed:
                    return False
                self._changed.wait(POLL_INTERVAL_S)
            return not self._lost

    def interrupt(self) -> None:
        """End every wait that is in progress."""
        with self._changed:
            self._interrupts += 1
            self._changed.notify_all()

    def close(self, index: int, reason: str) -> int:
        """Close the gate for a lost server.

        Args:
            index: of the server.
            reason: a sentence for the log and for the errors of threads that wait.

        Returns:
            The number of lost servers; 0 if this loss was known, or the return is given up.
        """
        with self._changed:
            if index in self._lost or self.state is ReturnState.GIVEN_UP:
                return 0
            self._lost[index] = self._job.servers[index].lost = reason
            self.losses_known += 1
            self.state = ReturnState.FENCED
            return len(self._lost)

    def drain(self) -> bool:
        """Wait briefly for the last closure; return whether servers may be filled now."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._running, POLL_INTERVAL_S):
                return False
            if self.state is ReturnState.FENCED:
                self.state = ReturnState.RETURNING
            return self.state is ReturnState.RETURNING

    def open(self) -> bool:
        """Let closures run again; return False if one more server was lost meanwhile."""
        with self._changed:
            if self.state is not ReturnState.RETURNING:
                return False
            for server in self._job.servers:
                server.lost = None
            self._lost.clear()
            self.state = ReturnState.ALL_THERE
            self._changed.notify_all()
            return True

    def give_up(self, reason: str) -> str:
        """Make every wait fail; return the whole text of the failure."""
        with self._changed:
            self.failure = " ".join([*self._lost.values(), reason])
            for index in self._lost:
                self._job.servers[index].lost = self.failure
            self.state = ReturnState.GIVEN_UP
            self._changed.notify_all()
            return self.failure
