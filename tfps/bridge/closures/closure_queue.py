"""A coordinator's queue of closures that goes on without a worker that hangs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_counts import take_counts
from tfps.bridge.closures.closure_membership import ClosureMembership
from tfps.bridge.closures.lives import Lives

# Within this a program schedules the next closure, if it does so without pause.
LINGER_S = 0.1
# Cancelled calls end at once; what cannot be cancelled, such as a tensor on its way to a stopped
# worker, is left behind after this.
CANCEL_TIMEOUT_S = 5.0


@dataclass
class _Run:
    """A closure on a worker. Its thread in the coordinator is blocked while the worker hangs."""

    closure: Any
    recalled: bool = False  # another worker shall run it
    given_back: bool = False  # it is in the queue again and counts no more


class ClosureQueue(private.CoordinatedClosureQueue):
    """TensorFlow's queue, except that a closure can be taken back from a worker that hangs.

    TensorFlow waits without limit for a worker that is stopped, or that the network lost silently:
    no request to it ever fails. Here such a worker is *barred*: it gets no more closures, and the
    one that it runs is *recalled* and, once nothing that it still does can count, *given back* to
    the queue as if the worker had died. Its thread stays where it is. When the worker goes on, the
    thread comes home with a result that nobody waits for any more.

    Likewise `fail` lets an error reach whoever waits although no closure has raised one.

    `on_scheduled` is called with a closure before it is queued, on the thread of the program and
    without the queue's lock. `on_failure` is called with the index of a worker on which a closure
    failed. `membership` is told who works. A member that finds the queue empty leaves: at once if
    somebody waits in `join`, so that nothing more will come, and else after `LINGER_S`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._error: Exception | None
        self._runs: dict[int, _Run] = {}
        self._barred: set[int] = set()
        self._admitted = threading.Condition(self._queue_lock)
        self._own = threading.local()  # `worker`: the index of the worker whose thread this is
        self._standing_error: Callable[[], Exception] | None = None
        self.membership = ClosureMembership()
        self._asking: set[Any] = set()  # the workers whose threads are in `get`
        self._joining = 0  # how many threads wait for all closures
        self._is_held = False
        self.is_closed = False  # closures that end after that are of no interest
        self._lives = Lives()
        self.begun = 0  # how many closures workers have taken so far
        self.on_scheduled: Callable[[Any], None] = lambda _closure: None
        self.on_failure: Callable[[int], None] = lambda _worker: None

    def watch(self, membership: ClosureMembership) -> None:
        """Tell somebody from now on who comes and goes."""
        with self._queue_lock:
            self.membership, asking = membership, list(self._asking)
        for worker in asking:
            membership.on_idle(worker)

    def put(self, closure: Any, tag: Any = None) -> None:
        if tag is None:
            self.on_scheduled(closure)
            with self._queue_lock:
                is_idle = self._is_idle()
            if self.membership.scheduled(closure, is_idle=is_idle):
                self.look_again()  # who is a member now lingers
        super().put(closure, tag)

    def look_again(self) -> None:
        """Let idle workers find out whether they are members now."""
        with self._queue_lock:
            self._closures_queued_condition.notify_all()
            self._admitted.notify_all()

    def get(self, timeout: float | None = None, tag: Any = None) -> Any:
        with self._queue_lock:
            self._asking.add(tag)
        self.membership.on_idle(tag)
        while True:
            closure, leaves = self._next(timeout, tag)
            if not leaves:
                with self._queue_lock:
                    self._asking.discard(tag)
                    if closure is not None:
                        self._lives.works(tag)
                return closure
            self.membership.on_leave(tag)

    def _next(self, timeout: float | None, tag: Any) -> tuple[Any, bool]:
        """A closure or None, and whether the worker shall leave before it asks again."""
        with self._queue_lock:
            while self._should_process_closures:
                is_member = self.membership.is_member(tag)
                if tag in self._barred:
                    if is_member:
                        return None, True
                    # It may have been woken for a closure, which is another worker's then.
                    self._closures_queued_condition.notify()
                    self._admitted.wait()
                elif not self._tagged_queue[tag].empty():
                    self._own.worker = tag
                    return self._tagged_queue[tag].get(block=False), False
                elif not self._queue.empty() and not self._is_held:
                    return self._take(tag), False
                elif is_member:
                    if self._joining or not self._closures_queued_condition.wait(LINGER_S):
                        return None, True
                elif not self._closures_queued_condition.wait(timeout=timeout):
                    return None, False
            return None, False

    def _take(self, worker: int) -> Any:
        closure = self._queue.get(block=False)
        self._queue_free_slot_condition.notify()
        self.inflight_closure_count += 1
        self.begun += 1
        self._runs[worker] = _Run(closure)
        self._own.worker = worker
        return closure

    def mark_finished(self) -> None:
        with self._queue_lock:
            run = self._runs.get(self._own.worker)
        if not self._was_recalled():
            if run is not None:
                take_counts(run.closure)
            super().mark_finished()

    def mark_failed(self, e: Exception) -> None:
        self.membership.on_error(self._own.worker)  # first: another one may wait for this worker
        if not self._was_recalled():
            super().mark_failed(e)

    def put_back(self, closure: Any) -> None:
        self.membership.on_error(self._own.worker)
        self.on_failure(self._own.worker)
        if not self._was_recalled():
            super().put_back(closure)

    def wait(self, timeout: float | None = None) -> Any:
        with self._queue_lock:
            self._joining += 1
            self._closures_queued_condition.notify_all()
        try:
            return super().wait(timeout)
        finally:
            with self._queue_lock:
                self._joining -= 1

    def wait_until_idle(self, timeout_s: float) -> None:
        """Wait until no closure is left or one has failed, but at most so long.

        Unlike in `wait` more closures may be scheduled meanwhile, and no worker leaves for it.
        """
        with self._queue_lock:
            self._stop_waiting_condition.wait_for(
                lambda: self._error is not None or self._is_idle(), timeout_s
            )

    @property
    def is_idle(self) -> bool:
        """Whether no closure is queued or runs."""
        with self._queue_lock:
            return self._is_idle()

    def _is_idle(self) -> bool:
        return bool(self._queue.empty() and self._inflight_closure_count == 0)

    def stop(self) -> None:
        super().stop()
        with self._queue_lock:
            self._admitted.notify_all()

    def _was_recalled(self) -> bool:
        """Whether the closure that ended on this thread is another worker's now."""
        with self._queue_lock:
            run = self._runs.pop(self._own.worker, None)
            if run is None:  # it was put for this worker alone
                return False
            if run.recalled:
                self._requeue(run)
        if run.recalled:
            self.membership.on_leave(self._own.worker)
        return bool(run.recalled)

    def _requeue(self, run: _Run) -> None:
        if run.given_back:
            return
        run.given_back = True
        if self._error:
            run.closure.mark_cancelled()
        else:
            self._queue_free_slot_condition.wait_for(lambda: not self._queue.full())
            self._queue.put(run.closure, block=False)
            self._closures_queued_condition.notify()
        self.inflight_closure_count -= 1
        if self._inflight_closure_count == 0:
            self._no_inflight_closure_condition.notify_all()

    def _raise_if_error(self) -> None:
        if self._error is None and self._standing_error is not None:
            self._error = self._standing_error()
        if self._error is not None:
            self._error = self._error.with_traceback(None)  # of this process's own threads
        super()._raise_if_error()

    def _cancel_all_closures(self) -> None:
        self._cancellation_mgr.start_cancel()
        self._no_inflight_closure_condition.wait_for(
            lambda: self._inflight_closure_count <= 0, timeout=CANCEL_TIMEOUT_S
        )
        for run in self._runs.values():
            run.recalled = True
            self._requeue(run)
        super()._cancel_all_closures()

    @property
    def is_cancelled(self) -> bool:
        """Whether the closures have been told to end."""
        return bool(self._cancellation_mgr.is_cancelled)

    def bar(self, worker: int) -> None:
        """Give a worker no more closures, and recall the one that it runs."""
        with self._queue_lock:
            self._barred.add(worker)
            self._lives.is_lost(worker)
            if worker in self._runs:
                self._runs[worker].recalled = True

    def admit(self, worker: int) -> None:
        """Let a worker have closures again."""
        with self._queue_lock:
            self._barred.discard(worker)
            self._admitted.notify_all()

    def comes_back(self, worker: int) -> None:
        """TensorFlow has taken in a worker again that had died."""
        with self._queue_lock:
            self._lives.is_lost(worker)

    def lives(self, *, workers: int) -> tuple[int, ...]:
        """How many lives each worker has had: 1, and one more whenever it worked again."""
        with self._queue_lock:
            return self._lives.of(workers=workers)

    @property
    def ended_lives(self) -> int:
        """How often a worker was lost."""
        with self._queue_lock:
            return self._lives.ended

    @property
    def barred(self) -> frozenset[int]:
        """The workers that get no closures."""
        with self._queue_lock:
            return frozenset(self._barred)

    @property
    def recalled(self) -> frozenset[int]:
        """The workers whose thread is still in a closure that was recalled."""
        with self._queue_lock:
            return frozenset(worker for worker, run in self._runs.items() if run.recalled)

    def is_recalled(self) -> bool:
        """On a worker's thread: whether the closure that it runs was recalled."""
        with self._queue_lock:
            run = self._runs.get(self._own.worker)  # None: it was put for this worker alone
            return run is not None and run.recalled

    def give_back(self, worker: int) -> None:
        """Let another worker run the closure that was recalled from this one."""
        with self._queue_lock:
            run = self._runs.get(worker)
            if run is not None and run.recalled:
                self._requeue(run)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """While it is open, no worker begins a closure that all may run."""
        with self._queue_lock:
            self._is_held = True
        try:
            yield
        finally:
            with self._queue_lock:
                self._is_held = False
                self._closures_queued_condition.notify_all()

    def discard_queued(self) -> None:
        """Forget the closures that no worker has begun."""
        with self._queue_lock:
            while not self._queue.empty():
                self._queue.get(block=False).mark_cancelled()
            self._queue_free_slot_condition.notify_all()
            if self._inflight_closure_count == 0:
                self._stop_waiting_condition.notify_all()

    @property
    def has_failed(self) -> bool:
        """Whether the error of `fail` stands."""
        return self._standing_error is not None

    def fail(self, make_error: Callable[[], Exception]) -> None:
        """Let `schedule`, `join` and `done` raise an error, now and until `forgive`.

        Args:
            make_error: called for each; an error that was raised keeps its callers' frames alive.
        """
        with self._queue_lock:
            self._standing_error = make_error
            if not self._is_idle():
                self._error = self._error or make_error()
                self._stop_waiting_condition.notify_all()

    def close(self, make_error: Callable[[], Exception]) -> bool:
        """Cancel all closures, and return whether there were any.

        Args:
            make_error: where there are any, of what `join` or `done` raises for them.
        """
        with self._queue_lock:
            self.is_closed = True
            if self._is_idle():
                return False
            self._error = make_error()
            self._cancel_all_closures()
            self._stop_waiting_condition.notify_all()
        return True

    def forgive(self) -> None:
        """Take the error of `fail` back for closures scheduled from now on."""
        with self._queue_lock:
            self._standing_error = None
