"""Manages the workers that take part in the rounds, or the clock, of scheduled functions."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_membership import ClosureMembership
from tfps.runtime.coordinator.control_plane import fail_lost_servers_at_once

if TYPE_CHECKING:
    from tfps.runtime.coordinator.runtime import Runtime

POLL_INTERVAL_S = 0.2


class FunctionMembership(ClosureMembership):
    """Makes workers members while they have functions to run that train.

    A worker gets an incarnation when it begins such a function, and joins the servers with the
    function's first pull. It keeps it from one function to the next, so most functions cost nothing
    here. The worker is evicted on all servers when it has no more functions to run, begins
    something else, or fails: before the error is raised, since other workers may wait for it.

    In rounds, all available workers are expected as soon as work begins. Otherwise the first worker
    would run rounds alone until the others have got their closures.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime_ref = weakref.ref(runtime)
        self._has_rounds = runtime.mode.backup_workers is not None
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._running: set[int] = set()  # workers that run a function that trains
        self.is_drained = False
        self._members: dict[int, int] = {}  # worker -> incarnation
        self._available: set[int] = set()  # workers that wait for closures, or have since

    def is_member(self, worker: int) -> bool:
        return worker in self._members

    def get_member(self, worker: int) -> tuple[int, int]:
        """Return a worker's index and incarnation, for its requests."""
        return worker, self._members.get(worker, -1)

    def on_schedule(self, closure: Any, *, is_idle: bool) -> bool:
        begins = is_idle or not self._members
        if not (begins and self._has_rounds and takes_part_in_training(closure)):
            return False
        return self._expect_all()

    def _expect_all(self) -> bool:
        with self._lock:
            runtime = get_running_runtime(self._runtime_ref)
            expected = self._available - self._members.keys()
            for worker in expected:
                self._members[worker] = runtime.members.next_incarnation(worker)
            try:
                if expected:
                    with fail_lost_servers_at_once():
                        runtime.members.expect(
                            [worker in expected for worker in range(runtime.workers)]
                        )
            except tf.errors.OpError:  # all begin with a later function, or the job ends
                for worker in expected:
                    self._evict(worker)
                return False
        return bool(expected)

    def on_idle(self, worker: int) -> None:
        with self._lock:
            self._available.add(worker)

    def on_start(self, worker: int, closure: Any) -> None:
        if closure.tag is not None:
            return  # creates a resource for later functions
        if not takes_part_in_training(closure):
            self.on_error(worker)
            return
        with self._changed:
            while self.is_drained:
                self._evict(worker)
                self._changed.wait()
            if worker not in self._members:
                self._members[worker] = get_running_runtime(
                    self._runtime_ref
                ).members.next_incarnation(worker)
            self._running.add(worker)

    def on_end(self, worker: int) -> None:
        with self._changed:
            self._running.discard(worker)
            self._changed.notify_all()

    def on_error(self, worker: int) -> None:
        with self._lock:
            self._available.discard(worker)
        self.on_leave(worker)

    def on_leave(self, worker: int) -> None:
        with self._lock:
            self._evict(worker)

    def evict_all(self) -> None:
        """Evict all workers, before another ticket run or round begins."""
        with self._lock:
            for worker in list(self._members):
                self._evict(worker)

    @contextlib.contextmanager
    def drain(self) -> Iterator[None]:
        """Wait until no function runs, and start none while the context is open.

        It opens when all workers are back: TensorFlow waits for them, while the others continue.
        """
        self._wait_until(self._are_all_reachable)
        with self._changed:
            self.is_drained = True
        try:
            self._wait_until(lambda: not self._running)
            yield
        finally:
            with self._changed:
                self.is_drained = False
                self._changed.notify_all()

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        runtime = self._runtime_ref()
        while runtime is not None and not runtime.closed and not condition():
            with self._changed:
                self._changed.wait(POLL_INTERVAL_S)

    def _are_all_reachable(self) -> bool:
        channels = get_running_runtime(self._runtime_ref).worker_channels
        return all(channel.is_reachable(timeout_s=POLL_INTERVAL_S) for channel in channels)

    def _evict(self, worker: int) -> None:
        incarnation = self._members.pop(worker, None)
        # A lost server cannot be told; it ends all waits for the worker. So does a closed strategy.
        with contextlib.suppress(tf.errors.OpError, RuntimeError), fail_lost_servers_at_once():
            if incarnation is not None:
                get_running_runtime(self._runtime_ref).members.evict(worker, incarnation)


def get_running_runtime(job: weakref.ref[Runtime]) -> Runtime:
    """Return the runtime of a reference; raise `CancelledError` if it is closed or deleted."""
    runtime = job()
    if runtime is None or runtime.closed:
        raise tf.errors.CancelledError(None, None, "the strategy was closed")
    return runtime


def takes_part_in_training(closure: Any) -> bool:
    """Return whether a closure is a function that takes part in rounds or a clock."""
    return any(getattr(server, "takes_part", False) for server in _get_halves(closure))


def changes_variables(closure: Any) -> bool:
    """Return whether a closure calls an optimizer, or assigns variables on servers."""
    programs = [getattr(server, "program", None) for server in _get_halves(closure)]
    return any(program.calls or program.state for program in programs if program is not None)


def _get_halves(closure: Any) -> list[Any]:
    """Return the server functions of a closure, an object for each server."""
    traced = getattr(closure, "_concrete_function", None)
    groups = [] if traced is None else private.get_kept_with_graph(traced.graph)
    return [server for servers in groups for server in servers]
