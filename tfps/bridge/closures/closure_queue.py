"""A coordinator's queue of closures that continues without a worker that hangs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_counts import apply_counts
from tfps.bridge.closures.closure_membership import ClosureMembership
from tfps.bridge.closures.lives import LifeCounter
from tfps.bridge.closures.run_plan import ONE_BY_ONE, RunLimits, pays
from tfps.bridge.closures.step_closure import StepClosure
from tfps.bridge.closures.step_run import StepRun, join_waiting

# A program that schedules without a pause schedules its next closure within this time.
LINGER_S = 0.1
# Cancelled calls end at once. What cannot be cancelled, such as a tensor on its way to a stopped
# worker, is abandoned after this time.
CANCEL_TIMEOUT_S = 5.0


@dataclass
class _Run:
    """A closure that a worker runs; the coordinator's thread for the worker waits for its end."""

    closure: Any
    recalled: bool = False  # another worker is to run it
    is_requeued: bool = False  # it is in the queue again; this run no longer counts
    begin_s: float = field(default_factory=time.monotonic)


class ClosureQueue(private.CoordinatedClosureQueue):
    """TensorFlow's queue, extended so that a closure can be taken back from a worker that hangs.

    TensorFlow waits without limit for a worker that is stopped, or that the network lost silently:
    no request to it ever fails. Here such a worker is *blocked*: it gets no more closures, and the
    one that it runs is *recalled*. As soon as the worker can no longer have any effect, the closure
    is *requeued* as if the worker had died. The worker's thread keeps waiting; when the worker
    continues, the thread returns and its result is dropped.

    `fail` makes `schedule`, `join` and `done` raise an error that no closure has raised.

    `on_scheduled` is called with a closure before it is queued, on the thread of the program and
    without the queue's lock. `on_failure` is called with the index of a worker on which a closure
    failed. `membership` is told which workers are busy. A member that finds the queue empty leaves
    immediately if a thread waits in `join`, since no closure will follow, otherwise after
    `LINGER_S`.

    Closures that join each other, and wait behind each other, are taken as one `StepRun` within
    `run_limits`; ``workers`` share the queue.
    """

    def __init__(self) -> None:
        super().__init__()
        self._error: Exception | None
        self._runs: dict[int, _Run] = {}
        self._blocked_workers: set[int] = set()
        self._unblocked = threading.Condition(self._queue_lock)
        self._thread = threading.local()  # `worker`: the index of the worker whose thread this is
        self._standing_error: Callable[[], Exception] | None = None
        self.membership = ClosureMembership()
        self._idle_workers: set[Any] = set()  # the workers whose threads are in `get`
        self._join_count = 0  # the number of threads that wait for all closures
        self._is_held = False
        self.is_closed = False  # the results of closures that end after that are dropped
        self._life_counter = LifeCounter()
        self.run_limits: RunLimits = ONE_BY_ONE
        self.workers = 1
        self.started_count = 0  # the number of closures that workers have taken so far
        self.on_scheduled: Callable[[Any], None] = lambda _closure: None
        self.on_failure: Callable[[int], None] = lambda _worker: None

    def set_membership(self, membership: ClosureMembership) -> None:
        """Report to a membership from now on which workers are busy, idle or lost."""
        with self._queue_lock:
            self.membership, idle_workers = membership, list(self._idle_workers)
        for worker in idle_workers:
            membership.on_idle(worker)

    def put(self, closure: Any, tag: Any = None) -> None:
        if tag is None:
            self.on_scheduled(closure)
            if self.membership.on_schedule(closure, is_idle=self.is_idle):
                self.wake_idle_workers()  # workers that are members now wait for `LINGER_S` only
        super().put(closure, tag)

    def wake_idle_workers(self) -> None:
        """Wake idle workers, so that they check whether they are members now."""
        with self._queue_lock:
            self._closures_queued_condition.notify_all()
            self._unblocked.notify_all()

    def get(self, timeout: float | None = None, tag: Any = None) -> Any:
        with self._queue_lock:
            self._idle_workers.add(tag)
        self.membership.on_idle(tag)
        while True:
            closure, leaves = self._next_closure(timeout, tag)
            if not leaves:
                with self._queue_lock:
                    self._idle_workers.discard(tag)
                    if closure is not None:
                        self._life_counter.record_work(tag)
                return closure
            self.membership.on_leave(tag)

    def _next_closure(self, timeout: float | None, tag: Any) -> tuple[Any, bool]:
        """Return a closure or None, and whether the worker must leave before it asks again."""
        with self._queue_lock:
            while self._should_process_closures:
                is_member = self.membership.is_member(tag)
                if tag in self._blocked_workers:
                    if is_member:
                        return None, True
                    # It may have been woken for a closure: wake another worker for that.
                    self._closures_queued_condition.notify()
                    self._unblocked.wait()
                elif not self._tagged_queue[tag].empty():
                    self._thread.worker = tag
                    return self._tagged_queue[tag].get(block=False), False
                elif not self._queue.empty() and not self._is_held:
                    return self._take(tag), False
                elif is_member:
                    if self._join_count or not self._closures_queued_condition.wait(LINGER_S):
                        return None, True
                elif not self._closures_queued_condition.wait(timeout=timeout):
                    return None, False
            return None, False

    def _take(self, worker: int) -> Any:
        closure = self._queue.get(block=False)
        waiting, share = self._queue.queue, self.workers - len(self._blocked_workers)
        closure = join_waiting(closure, waiting, limits=self.run_limits, workers=share)
        steps = len(closure.members) if isinstance(closure, StepRun) else 1
        self._queue_free_slot_condition.notify(steps)
        self.inflight_closure_count += 1
        self.started_count += steps
        self._runs[worker] = _Run(closure)
        self._thread.worker = worker
        return closure

    def is_run_due(self, closure: StepClosure) -> bool:
        """Return whether it is time to find out if closures of a kind can run together."""
        times, waiting = closure.kind.times, self._queue.qsize()
        is_due = pays(self.run_limits, times, waiting=waiting, workers=self.workers)
        return is_due and not closure.kind.is_considered

    def mark_finished(self) -> None:
        run = self._get_own_run()
        if not self._was_recalled():
            if run is not None:
                self._end(run)
            super().mark_finished()

    def _get_own_run(self) -> _Run | None:
        """Return the run of this worker's thread; None if it was scheduled for this worker only."""
        with self._queue_lock:
            return self._runs.get(self._thread.worker)

    def _end(self, run: _Run) -> None:
        """Deliver the results of a closure that has ended, well or not."""
        closure, steps = run.closure, 1
        if isinstance(closure, StepRun):
            rest = closure.settle()
            with self._queue_lock:
                self._put_first(rest)
            closure, steps = closure.members[0], closure.done
        else:
            apply_counts(closure)
        if isinstance(closure, StepClosure):
            closure.kind.times.record(steps=steps, seconds=time.monotonic() - run.begin_s)

    def _put_first(self, closures: Sequence[Any]) -> None:
        self._queue.queue.extendleft(reversed(closures))
        self._closures_queued_condition.notify(len(closures))

    def mark_failed(self, e: Exception) -> None:
        self.membership.on_error(self._thread.worker)  # first: others may wait for this worker
        run = self._get_own_run()
        if not self._was_recalled():
            if run is not None and isinstance(run.closure, StepRun):
                self._end(run)
            with self._queue_lock:
                # TensorFlow cancels the other closures with one that fails; they may end first.
                if isinstance(self._error, tf.errors.CancelledError):
                    self._error = None
            super().mark_failed(e.with_traceback(None))  # it shows threads of tfps only

    def put_back(self, closure: Any) -> None:
        self.membership.on_error(self._thread.worker)
        self.on_failure(self._thread.worker)
        if not self._was_recalled():
            with self._queue_lock:
                self._requeue(_Run(closure))

    def wait(self, timeout: float | None = None) -> Any:
        with self._queue_lock:
            self._join_count += 1
            self._closures_queued_condition.notify_all()
        try:
            return super().wait(timeout)
        finally:
            with self._queue_lock:
                self._join_count -= 1

    def wait_until_idle(self, timeout_s: float) -> None:
        """Wait until no closure is left, one has failed, or the timeout has passed.

        Unlike with `wait`, other threads may schedule more closures, and no worker leaves.
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
            self._unblocked.notify_all()

    def _was_recalled(self) -> bool:
        """Return whether the closure that ended on this thread belongs to another worker now."""
        with self._queue_lock:
            run = self._runs.pop(self._thread.worker, None)
            if run is None:  # it was scheduled for this worker only
                return False
            if run.recalled:
                self._requeue(run)
        if run.recalled:
            self.membership.on_leave(self._thread.worker)
        return bool(run.recalled)

    def _requeue(self, run: _Run) -> None:
        if run.is_requeued:
            return
        run.is_requeued = True
        if self._error:
            run.closure.mark_cancelled()
        elif isinstance(run.closure, StepRun):
            self._put_first(run.closure.separate())
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
    def cancellation_manager(self) -> Any:
        """The manager that cancels the closures that are queued now."""
        return self._cancellation_mgr

    @property
    def is_cancelled(self) -> bool:
        """Whether all closures were cancelled."""
        return bool(self._cancellation_mgr.is_cancelled)

    def block_worker(self, worker: int) -> None:
        """Stop giving closures to a worker, and recall the one that it runs."""
        with self._queue_lock:
            self._blocked_workers.add(worker)
            self._life_counter.record_loss(worker)
            if worker in self._runs:
                self._runs[worker].recalled = True

    def unblock_worker(self, worker: int) -> None:
        """Give closures to a blocked worker again."""
        with self._queue_lock:
            self._blocked_workers.discard(worker)
            self._unblocked.notify_all()

    def on_worker_return(self, worker: int) -> None:
        """Count the loss of a worker that TensorFlow has lost and connected again."""
        with self._queue_lock:
            self._life_counter.record_loss(worker)

    def count_lives(self, *, workers: int) -> tuple[int, ...]:
        """Return the number of lives of each worker: 1, plus 1 each time it returned to work."""
        with self._queue_lock:
            return self._life_counter.count_lives(workers=workers)

    @property
    def worker_losses(self) -> int:
        """The number of times that a worker was lost."""
        with self._queue_lock:
            return self._life_counter.losses

    @property
    def blocked_workers(self) -> frozenset[int]:
        """The workers that get no closures."""
        with self._queue_lock:
            return frozenset(self._blocked_workers)

    @property
    def recalled_workers(self) -> frozenset[int]:
        """The workers whose threads still run closures that were recalled."""
        with self._queue_lock:
            return frozenset(worker for worker, run in self._runs.items() if run.recalled)

    def is_recalled(self) -> bool:
        """Return, on a worker's thread, whether the closure that it runs was recalled."""
        run = self._get_own_run()
        return run is not None and run.recalled

    def requeue_recalled(self, worker: int) -> None:
        """Put the closure that was recalled from this worker back into the queue."""
        with self._queue_lock:
            run = self._runs.get(worker)
            if run is not None and run.recalled:
                self._requeue(run)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep workers from starting closures of the common queue while the context is open."""
        with self._queue_lock:
            self._is_held = True
        try:
            yield
        finally:
            with self._queue_lock:
                self._is_held = False
                self._closures_queued_condition.notify_all()

    def discard_queued(self) -> None:
        """Drop the closures that no worker has started."""
        with self._queue_lock:
            while not self._queue.empty():
                self._queue.get(block=False).mark_cancelled()
            self._queue_free_slot_condition.notify_all()
            if self._inflight_closure_count == 0:
                self._stop_waiting_condition.notify_all()

    @property
    def has_failed(self) -> bool:
        """Whether `fail` was called without a later `clear_failure`."""
        return self._standing_error is not None

    def fail(self, make_error: Callable[[], Exception]) -> None:
        """Make `schedule`, `join` and `done` raise an error, now and until `clear_failure`.

        Args:
            make_error: makes a new error each time, since one that was raised keeps frames alive.
        """
        with self._queue_lock:
            self._standing_error = make_error
            if not self._is_idle():
                self._error = self._error or make_error()
                self._stop_waiting_condition.notify_all()

    def close(self, make_error: Callable[[], Exception]) -> bool:
        """Cancel all closures, and return whether there were any.

        Args:
            make_error: makes the error that `join` or `done` raises for them, if there were any.
        """
        with self._queue_lock:
            self.is_closed = True
            if self._is_idle():
                return False
            self._error = make_error()
            self._cancel_all_closures()
            self._stop_waiting_condition.notify_all()
        return True

    def clear_failure(self) -> None:
        """Clear the error of `fail` for closures scheduled from now on."""
        with self._queue_lock:
            self._standing_error = None
