"""The warm-up of scheduled functions, as the coordinator leads it."""

from __future__ import annotations

import enum
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.attendance import Attendance
from tfps.bridge.chief_constant import chief_constant
from tfps.bridge.closure_twin import choose, has_choice, prepare_twin
from tfps.bridge.step_scope import outside_the_step
from tfps.runtime.coordinator.beginning import is_at_begin
from tfps.runtime.coordinator.kept_slots import KeptSlots
from tfps.runtime.program.program import Program
from tfps.runtime.warm_up.kept_weights import WARM, KeptWeights
from tfps.runtime.warm_up.warm_up_sums import WarmUpSums

if TYPE_CHECKING:
    from tfps.bridge.closure_queue import ClosureQueue
    from tfps.runtime.coordinator.runtime import Runtime

LOOK_EVERY_S = 0.2


class _Phase(enum.Enum):
    UNKNOWN = "no function that trains was scheduled"
    WARM = "workers train by themselves"
    ENDING = "no further function of the warm-up begins"
    OVER = "over, or there was none"


class WarmUp(Attendance):
    """Decides for each function that trains, when a worker takes it, whether it is of the warm-up.

    Until all workers that are there have called optimizers often enough, all go on by themselves,
    so nobody waits. Workers that hang are not counted, nor are those that have lost what they had.
    Then functions of the mode begin as soon as those of the warm-up that still run have ended.

    It stands before the attendance that the mode needs, which hears of the latter only.

    Args:
        runtime: the job.
        steps: how often each worker calls optimizers.
    """

    def __init__(self, runtime: Runtime, *, steps: int) -> None:
        self._of = weakref.ref(runtime)
        self.kept = KeptSlots(container=runtime.container, lines=runtime.worker_lines)
        self._steps = steps
        self._phase = _Phase.UNKNOWN
        self._changed = threading.Condition()
        self._running: set[int] = set()  # workers that run a function of the warm-up
        self._lost: set[int] = set()  # workers that may have lost what they kept
        self._inner = Attendance()
        self._queue: ClosureQueue | None = None
        self._sums: list[WarmUpSums] = []
        self._count: Callable[..., Any] | None = None  # the calls of each worker
        self._ends: list[Callable[..., Any]] = []  # of each server

    def stand_before(self, inner: Attendance, *, queue: ClosureQueue) -> None:
        """Lead the functions of a coordinator.

        Args:
            inner: what hears of functions that are not of the warm-up.
            queue: of the coordinator.
        """
        self._inner, self._queue = inner, queue

    def begins(self, optimizers: Iterable[Any], *, strategy: Any) -> bool:
        """Whether a function that is being traced, and trains, may still be of the warm-up."""
        with self._changed:
            if self._phase is _Phase.UNKNOWN:
                at_begin = is_at_begin(optimizers, strategy=strategy)
                self._phase = _Phase.WARM if at_begin else _Phase.OVER
            return self._phase is _Phase.WARM

    def sums(self) -> Sequence[WarmUpSums]:
        """Of each server."""
        if not self._sums:
            runtime = self._runtime()
            self._sums = [WarmUpSums(server, runtime=runtime) for server in runtime.servers]
        return self._sums

    def prepare_end(self, program: Program) -> None:
        """Trace what ends a warm-up in which a program runs: it ends while others wait for it."""
        KeptWeights.note(program.kept, self.kept)
        self.kept.note(program.local.slots, role=WARM)
        with outside_the_step():
            lines = [server.control for server in self._runtime().servers]
            ends = [
                line.function(sums.trace_end, arguments=1)
                for line, sums in zip(lines, self.sums(), strict=True)
            ]
            count = self._count or lines[0].function(self.sums()[0].trace_calls, arguments=0)
            self.kept.prepare()
        with self._changed:
            self._count, self._ends = count, ends

    def comes_back_at_call(self) -> tf.Tensor:
        """Inside a function: whether its worker was lost before, so that it joins the others."""
        graph: Any = private.current_graph()

        def at_call() -> tf.Tensor:
            return chief_constant(private.worker_index() in self._lost, tf.bool)

        spec = tf.TensorSpec([], tf.bool)
        comes_back: tf.Tensor = graph.capture_call_time_value(at_call, spec, key="tfps_comes_back")
        return comes_back

    def end(self) -> None:
        """Let what comes now go on from the mean, however far the workers are."""
        with self._changed:
            if self._phase is _Phase.WARM:
                self._phase = _Phase.ENDING
            self._finish()

    def is_member(self, worker: int) -> bool:
        return self._inner.is_member(worker)

    def scheduled(self, closure: Any, *, at_rest: bool) -> bool:
        if self._phase is _Phase.OVER:
            return self._inner.scheduled(closure, at_rest=at_rest)
        prepare_twin(closure, self._queue)
        return False

    def comes_home(self, worker: int) -> None:
        self._inner.comes_home(worker)

    def takes(self, worker: int, closure: Any) -> None:
        if has_choice(closure):
            warm = self._is_warm(worker)
            choose(closure, twin=warm)
            if warm:
                return
        self._inner.takes(worker, closure)

    def ends(self, worker: int) -> None:
        with self._changed:
            self._running.discard(worker)
            self._changed.notify_all()
        self._inner.ends(worker)

    def fails(self, worker: int) -> None:
        self._inner.fails(worker)

    def leaves(self, worker: int) -> None:
        self._inner.leaves(worker)

    def loses(self, worker: int) -> None:
        with self._changed:
            self._lost.add(worker)
        self._inner.loses(worker)

    def _is_warm(self, worker: int) -> bool:
        """Whether what a worker takes now is of the warm-up; waits for what has to end before."""
        with self._changed:
            if self._phase is _Phase.WARM and not self._owing(self._calls()):
                self._phase = _Phase.ENDING
            if self._phase is _Phase.WARM:
                self._running.add(worker)
                return True
            self._finish()
            return False

    def _owing(self, calls: Sequence[int]) -> set[int]:
        """The workers that still have steps to take."""
        assert self._queue is not None
        behind = {worker for worker, count in enumerate(calls) if count < self._steps}
        return behind - self._lost - self._queue.barred

    def _calls(self) -> Sequence[int]:
        return () if self._count is None else tuple(map(int, self._count()[0]))

    def _finish(self) -> None:
        """Once nobody trains by itself any more, let all begin anew."""
        queue = self._queue
        while self._phase is _Phase.ENDING:
            assert queue is not None
            if self._running - queue.barred:
                self._changed.wait(LOOK_EVERY_S)
                self._runtime()  # raises once it is closed
                continue
            has_trained = int(any(self._calls()))
            for end in self._ends:
                end(has_trained)
            barred = queue.barred
            self.kept.free(without=barred)
            self._phase = _Phase.OVER
            self._sums.clear()
            self._inner.all_begin(without=barred)
            queue.look_again()
        self._changed.notify_all()

    def _runtime(self) -> Runtime:
        runtime = self._of()
        if runtime is None or runtime.closed:
            raise tf.errors.CancelledError(None, None, "the strategy was closed")
        return runtime
