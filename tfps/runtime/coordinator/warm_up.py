"""The warm-up of scheduled functions, as the coordinator leads it."""

from __future__ import annotations

import enum
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tfps.bridge.closure_membership import ClosureMembership
from tfps.bridge.closure_twin import choose, has_choice, prepare_twin
from tfps.bridge.server_variable import ServerVariable
from tfps.bridge.step_scope import outside_the_step
from tfps.runtime.coordinator.function_membership import LOOK_EVERY_S, running
from tfps.runtime.coordinator.worker_local_slots import WorkerLocalSlots

if TYPE_CHECKING:
    from tfps.bridge.closure_queue import ClosureQueue
    from tfps.runtime.coordinator.runtime import Runtime


class _Phase(enum.Enum):
    UNKNOWN = "no function that trains was scheduled"
    WARM = "workers train by themselves"
    ENDING = "no further function of the warm-up begins"
    OVER = "over, or there was none"


class WarmUp(ClosureMembership):
    """Decides for each function that trains, when a worker takes it, whether it is of the warm-up.

    It is until every worker that asks for functions has called optimizers so many ``steps``; a
    worker that is lost, or hangs, is not counted while it is. Then functions of the mode begin as
    soon as those of the warm-up that still run have ended: workers wait for each other this once.

    It stands before the membership that the mode needs, which hears of the latter only.
    """

    def __init__(self, runtime: Runtime, *, steps: int) -> None:
        self._of = weakref.ref(runtime)
        self.local_slots = WorkerLocalSlots(container=runtime.container, lines=runtime.worker_lines)
        self.steps = steps
        self._phase = _Phase.UNKNOWN
        self._changed = threading.Condition()
        self._running: set[int] = set()  # workers that run a function of the warm-up
        self._there: set[int] = set()  # workers that ask for functions
        self._inner = ClosureMembership()
        self._queue: ClosureQueue | None = None
        # Of each function, by its graph, the trace that is of the warm-up.
        self.twins: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._variables: dict[str, ServerVariable] = {}
        self._calls: Callable[[], list[np.ndarray[Any, Any]]] | None = None  # of each worker

    def stand_before(self, inner: ClosureMembership, *, queue: ClosureQueue) -> None:
        """Lead the functions of a coordinator's queue; ``inner`` hears of the other ones."""
        self._inner, self._queue = inner, queue

    @property
    def is_under_way(self) -> bool:
        """Whether functions of it may run, or have run and others go on from their mean."""
        return self._phase in (_Phase.WARM, _Phase.ENDING)

    def begins(self, optimizers: Iterable[Any], *, strategy: Any) -> bool:
        """Whether a function that is being traced, and trains, may still be of the warm-up."""
        with self._changed:
            if self._phase is _Phase.UNKNOWN:
                at_begin = is_at_begin(optimizers, strategy=strategy)
                self._phase = _Phase.WARM if at_begin else _Phase.OVER
            return self._phase is _Phase.WARM

    def variable(self, name: str, initial_value: Any, *, device: str) -> ServerVariable:
        """A variable on a server for as long as the warm-up lasts; of each name there is one."""
        if name not in self._variables:
            self._variables[name] = running(self._of).create_variable(
                initial_value, device=device, planned=False, trainable=False, name=name
            )
        return self._variables[name]

    def calls(self) -> ServerVariable:
        """How often each worker has called optimizers; on the ticket server."""
        runtime = running(self._of)
        zeros = np.zeros([runtime.workers], np.int64)
        return self.variable("warm_up_calls", zeros, device=runtime.ticket_server.device)

    def prepare_end(self) -> None:
        """Trace what ends the warm-up, now: while a worker hangs, nothing new can be traced."""
        with outside_the_step():
            if self._calls is None:
                line, calls = running(self._of).ticket_server.control, self.calls()
                self._calls = line.function(lambda: [calls.read_value()], arguments=0)
            self.local_slots.prepare()

    def end(self) -> None:
        """Let what comes now go on from the mean, however far the workers are."""
        with self._changed:
            self._end()

    def is_member(self, worker: int) -> bool:
        return self._inner.is_member(worker)

    def scheduled(self, closure: Any, *, is_idle: bool) -> bool:
        if self._phase is _Phase.OVER:
            running(self._of).collect()  # what the warm-up held on the servers
            return self._inner.scheduled(closure, is_idle=is_idle)
        prepare_twin(closure, self.twins, queue=self._queue)
        return False

    def on_idle(self, worker: int) -> None:
        self._there.add(worker)
        self._inner.on_idle(worker)

    def on_start(self, worker: int, closure: Any) -> None:
        if has_choice(closure):
            is_warm = self._goes_on(worker)
            choose(closure, twin=is_warm)
            if is_warm:
                return
        self._inner.on_start(worker, closure)

    def on_end(self, worker: int) -> None:
        with self._changed:
            self._running.discard(worker)
            self._changed.notify_all()
        self._inner.on_end(worker)

    def on_error(self, worker: int) -> None:
        self._there.discard(worker)
        self._inner.on_error(worker)

    def on_leave(self, worker: int) -> None:
        self._inner.on_leave(worker)

    def _goes_on(self, worker: int) -> bool:
        """Whether what a worker takes now is of the warm-up; else waits for its end."""
        with self._changed:
            goes_on = self._phase is _Phase.WARM and self._is_owed()
            if goes_on:
                self._running.add(worker)
            else:
                self._end()
            return goes_on

    def _is_owed(self) -> bool:
        """Whether some worker has steps left to take."""
        assert self._queue is not None
        assert self._calls is not None
        (calls,) = self._calls()
        return any(calls[worker] < self.steps for worker in self._there - self._queue.barred)

    def _end(self) -> None:
        """Once nobody trains by itself any more, let all begin anew."""
        queue = self._queue
        if self._phase is _Phase.WARM:
            self._phase = _Phase.ENDING
        while self._phase is _Phase.ENDING:
            assert queue is not None
            barred = queue.barred
            if self._running - barred:
                self._changed.wait(LOOK_EVERY_S)
                running(self._of)  # raises once it is closed
                continue
            self.local_slots.free(without=barred)
            self.twins.clear()
            self._variables.clear()
            self._phase = _Phase.OVER
            self._inner.all_begin(without=barred)
            queue.look_again()
            self._changed.notify_all()


def is_at_begin(optimizers: Iterable[Any], *, strategy: Any) -> bool:
    """Whether none of the optimizers has trained yet, and nothing came from a checkpoint."""
    counts = [int(optimizer.iterations.numpy()) for optimizer in optimizers]
    return not any(counts) and not any(strategy.stats().versions)
