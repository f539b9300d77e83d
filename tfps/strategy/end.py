"""The end of a strategy: by itself, with its process, or with the tasks that it uses."""

from __future__ import annotations

import atexit
import functools
import logging
import weakref
from collections.abc import Mapping

import tensorflow as tf

from tfps.bridge.closures.connection import disconnect, end_coordinator, is_connected
from tfps.cluster import Client, register_client
from tfps.recovery.guard import Guard
from tfps.recovery.probing.probe import Task, all_answer
from tfps.runtime.coordinator.runtime import Runtime
from tfps.strategy.weak_method import weak_method
from tfps.training.training_strategy import TrainingStrategy

logger = logging.getLogger(__name__)


class End:
    """Comes once: when a strategy is closed, collected, left at exit, or its cluster is closed.

    Args:
        strategy: not kept alive.
        runtime: of the strategy.
        guard: of the strategy.
        is_named: the job has a name, so it stays until it is closed, for another chief to find.
    """

    def __init__(
        self, strategy: TrainingStrategy, *, runtime: Runtime, guard: Guard, is_named: bool
    ) -> None:
        self._strategy = weakref.ref(strategy)
        self._tasks, self._runtime, self._guard = runtime.processes, runtime, guard
        self._finalizer = weakref.finalize(strategy, _stay if is_named else _free, runtime, guard)
        deadline_s = guard.policy.deadline_s
        self._at_exit = self._finalizer if is_named else weak_method(self, "_exit")
        atexit.register(self._at_exit)
        register_client(
            Client(
                frozenset(address for _, _, address in runtime.cluster.tasks("worker", "ps")),
                leave=weak_method(self, "leave"),
                disconnect=functools.partial(_disconnect, self._tasks, deadline_s=deadline_s),
                is_open=weak_method(self, "_is_open"),
            )
        )

    def close(self, reason: str) -> None:
        """Free what the strategy holds on the servers; later calls do nothing."""
        if self._begins():
            if self._end_coordinator(reason):  # first: what runs looks for what is freed
                self._runtime.let_exchanges_end()
            _free(self._runtime, self._guard, reason)

    def leave(self, reason: str) -> None:
        """Use the tasks no more: they are about to end with all that they hold.

        Those of this very process do not end, so what they hold is freed.
        """
        if not self._tasks:
            self.close(reason)
        elif self._begins():
            self._end_coordinator(reason)
            self._guard.close()
            answering = all_answer(self._tasks, deadline_s=self._guard.policy.deadline_s)
            self._runtime.abandon(reason, answering=answering)

    def _exit(self) -> None:
        self.close("its process ends")

    def _is_open(self) -> bool:
        return self._finalizer.alive

    def _begins(self) -> bool:
        """Whether this is the first time; nothing is left for the collector, or for exit."""
        atexit.unregister(self._at_exit)
        return self._finalizer.detach() is not None

    def _end_coordinator(self, reason: str) -> bool:
        """Cancel what runs, and return whether anything did."""
        strategy, error = self._strategy(), functools.partial(self._runtime.closed_error, reason)
        if strategy is None or strategy.run_state.coordinator is None:
            return False
        return end_coordinator(strategy.run_state.coordinator, error)


def _free(runtime: Runtime, guard: Guard, reason: str = "nothing refers to it any more") -> None:
    guard.close()
    try:
        runtime.close(reason)
    except tf.errors.OpError as error:  # a server that is gone has nothing left to free
        logger.debug("could not free the job's resources: %s", error)


def _stay(runtime: Runtime, guard: Guard) -> None:
    guard.close()
    runtime.abandon("nothing refers to it any more", answering=False)


def _disconnect(tasks: Mapping[Task, str], *, deadline_s: float) -> None:
    """End TensorFlow's connections to tasks that are about to end; not where it would wait."""
    if is_connected(tasks.values()) and all_answer(tasks, deadline_s=deadline_s):
        disconnect()
