"""The state of a strategy's runs: the current one, the last one, and what they report."""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.cluster import accepts_connections
from tfps.recovery.guard import Guard
from tfps.runtime.coordinator.runtime import Runtime
from tfps.training.report.progress import ClusterProgbar
from tfps.training.report.step_rate import StepRate
from tfps.training.report.traffic_rate import TrafficRate
from tfps.training.run.ticket_run import TicketRun
from tfps.training.stop_request import StopRequest
from tfps.training.worker_use import WORKER_USE

if TYPE_CHECKING:
    from tfps.runtime.worker.closure_run import BatchSource
    from tfps.training.epoch_runner import EpochRunner
    from tfps.training.prediction import Predictor
    from tfps.training.resume import Resume

logger = logging.getLogger(__name__)


class Recovery(Protocol):
    """Recovers lost servers, also during a run."""

    @property
    def updates_lost(self) -> int:
        """The number of updates that the rows of all restored servers lack."""

    def watch_closures(self, coordinator: Any) -> None:
        """Watch the closures of the strategy's coordinator."""

    def callbacks_for(self, model: Any) -> list[Any]:
        """Return the callbacks that `fit` of a model needs so that it can be recovered."""

    def begin_run(self, run: TicketRun) -> None:
        """Record that a run is about to issue its first tickets."""

    def end_run(self, run: TicketRun, *, is_whole: bool) -> None:
        """Record that a run was drained and has ended; ``is_whole`` is False after an error."""

    def abandon_run(self) -> None:
        """Record that a run has ended with an error."""

    def save_after_warm_up(self, steps: int) -> None:
        """Save a checkpoint after warm-up steps, if `fit` saves any.

        The servers hold the mean of these steps, but do not count them as updates.
        """

    def end(self, reason: str) -> bool:
        """Give up the servers that are still lost; return whether there was one."""


class RunState:
    """The runs of a strategy, for all parts that begin, follow, interrupt or report them.

    Args:
        runtime: the job.
        guard: probes its tasks.

    Attributes:
        coordinator: of the strategy; None before it is used for the first time.
        run: the one that goes on; None: there is none.
        epoch_runner: what follows `run` for Keras.
        source: the input of the newest `fit` or `evaluate`.
        progress: what shows the epoch that goes on.
        rates: of the newest run of each kind, ``"train"`` and ``"test"``.
        traffic: of the newest run that trains.
        staleness_before: the job's staleness counts before that run.
        resume: the callback of a `fit` that has not made its input yet; None: it has none.
        stop_request: asks a `fit` that can be resumed to save and to end.
        recovery: brings lost servers back; None: the loss of one ends the training.
        describe_pace: says for the progress line how the workers do.
        describe_slow_worker: says for the line that ends an epoch which worker is slow.
    """

    def __init__(self, runtime: Runtime, guard: Guard) -> None:
        self._runtime, self.guard = runtime, guard
        self._predicting = threading.local()
        self.coordinator: Any = None
        self.run: TicketRun | None = None
        self.epoch_runner: EpochRunner | None = None
        self._last_run: weakref.ref[TicketRun] | None = None
        self.source: BatchSource | None = None
        self.progress: ClusterProgbar | None = None
        self.rates: dict[str, StepRate] = {}
        self.traffic: TrafficRate | None = None
        self.staleness_before: dict[int, int] = {}
        self.resume: Resume | None = None
        self.stop_request = StopRequest()
        self.recovery: Recovery | None = None
        self.describe_pace: Callable[[], str] = str
        self.describe_slow_worker: Callable[[], str] = str

    @contextlib.contextmanager
    def ending_in_order(self) -> Iterator[None]:
        """Let a signal ask a `fit` to save, while the context is open, if it can be resumed."""
        if self.resume is None:
            yield
            return
        with StopRequest(self.resume.save_now) as self.stop_request:
            try:
                yield
            finally:
                self.stop_request = StopRequest()

    def save_before_leave(self, index: np.ndarray[Any, Any]) -> np.int32:
        """Save for a server that ends, if `fit` can be resumed; return whether that was done."""
        server = self._runtime.servers[int(index)]
        return np.int32(self.stop_request.save_for(lambda: not accepts_connections(server.address)))

    @property
    def last_run(self) -> TicketRun | None:
        """The newest run that has ended; None without one, or if its model is collected."""
        return None if self._last_run is None else self._last_run()

    def keep_ended_run(self, run: TicketRun, *, model: Any) -> None:
        """Let a model keep its run that has ended, since the strategy outlives models."""
        self._last_run = weakref.ref(run)
        model.__dict__["_tfps_last_run"] = run

    @property
    def newest_run(self) -> TicketRun | None:
        """The current run, or else the last one."""
        return self.run or self.last_run

    @property
    def open_runs(self) -> list[TicketRun]:
        """The current run, and those that it interrupts."""
        runs, epoch_runner = [self.run], self.epoch_runner
        while epoch_runner is not None:
            run, epoch_runner = epoch_runner.outer_run
            runs.append(run)
        return [run for run in runs if run is not None]

    @property
    def predictor(self) -> Predictor | None:
        """The predictor that runs on the workers for this thread."""
        return getattr(self._predicting, "predictor", None)

    @contextlib.contextmanager
    def predicting(self, predictor: Predictor) -> Iterator[None]:
        """Make this thread's epoch iterators feed a prediction on the workers."""
        self._predicting.predictor = predictor
        try:
            yield
        finally:
            self._predicting.predictor = None

    def watch_tasks(self, coordinator: Any) -> None:
        """Probe the tasks from now on, until the strategy is closed.

        Args:
            coordinator: hands work to the tasks.
        """
        runtime = self._runtime
        runtime.refuse_if_closed()
        runtime.refuse_mismatches()
        WORKER_USE.begin()
        runtime.has_run = True
        execute_synchronously()
        runtime.on_layout_change()
        self.guard.start(
            private.get_closure_queue(coordinator), private.get_failure_handler(coordinator)
        )

    def drain(self) -> None:
        """Drain the workers of `fit`, so that every weight is of one version.

        Called before a weight is read or written, saved or predicted with; the next step of
        `fit` lets them go on.
        """
        if self.run is not None:
            with self._runtime.turn.hold():
                if self.run is not None:  # another thread may have ended it
                    self.run.drain()

    def drain_all(self) -> None:
        """Wait until `fit` and all scheduled functions are idle, before variables move.

        Functions that were traced before look for variables where they were.
        """
        with self._runtime.turn.hold():
            self.drain()
            if self.coordinator is not None and not self.coordinator.done():
                self.coordinator.join()

    def step_rate(self, kind: str, *, since_s: float) -> StepRate | None:
        """Return the rate of the newest run of a kind, if it began since a moment.

        Args:
            kind: ``"train"`` or ``"test"``.
            since_s: of the monotonic clock.
        """
        rate = self.rates.get(kind)
        return rate if rate is not None and rate.began_s >= since_s else None

    def worker_lives(self) -> tuple[int, ...]:
        """Return each worker's number of lives: 1, and one more for each return to work."""
        workers = self._runtime.workers
        if self.coordinator is None:
            return (1,) * workers
        return private.get_closure_queue(self.coordinator).count_lives(workers=workers)

    def get_life(self, worker: int) -> int:
        """Return the number of a worker's present life; the coordinator has one."""
        return self.worker_lives()[worker] if worker >= 0 else 1

    def residuals_dropped(self) -> int:
        """Return how often residuals of codecs were lost with a worker."""
        if self.coordinator is None or not self._runtime.residuals.has_names:
            return 0
        return private.get_closure_queue(self.coordinator).worker_losses


def execute_synchronously() -> None:
    """Let this thread wait for each eager operation, as it does by default.

    Otherwise a worker waits for inputs that this thread has not computed, and this thread waits for
    the worker.
    """
    if not tf.config.experimental.get_synchronous_execution():
        tf.config.experimental.set_synchronous_execution(True)
        logger.warning(
            "tf.config.experimental.set_synchronous_execution: received False, expected True with "
            "tfps.ParameterServerStrategy, and sets it. Remove the call: workers run beside this "
            "process in any case."
        )
