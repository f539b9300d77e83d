"""The end of a strategy: when it is closed or collected, at exit, or with its cluster."""

from __future__ import annotations

import atexit
import functools
import logging
import weakref
from collections.abc import Mapping

import tensorflow as tf

from tfps.bridge.closures.connection import disconnect, is_connected, stop_coordinator
from tfps.cluster import Client, register_client
from tfps.recovery.guard import Guard
from tfps.recovery.probing.probe import Task, all_tasks_reply
from tfps.runtime.coordinator.runtime import Runtime
from tfps.strategy.weak_method import make_weak_method
from tfps.training.fit_strategy import FitStrategy

logger = logging.getLogger(__name__)


class StrategyShutdown:
    """Ends a strategy once: when it is closed or collected, at exit, or when its cluster closes.

    Args:
        strategy: the strategy; this object does not keep it alive.
        runtime: the strategy's job.
        guard: the strategy's guard.
        is_named: whether the job has a name: then the servers keep it until it is closed, so
            that another chief can take it over.
    """

    def __init__(
        self, strategy: FitStrategy, *, runtime: Runtime, guard: Guard, is_named: bool
    ) -> None:
        self._strategy = weakref.ref(strategy)
        self._tasks, self._runtime, self._guard = runtime.processes, runtime, guard
        self._finalizer = weakref.finalize(
            strategy, _leave_resources if is_named else _free_resources, runtime, guard
        )
        deadline_s = guard.policy.deadline_s
        self._at_exit = self._finalizer if is_named else make_weak_method(self, "_close_at_exit")
        atexit.register(self._at_exit)
        register_client(
            Client(
                frozenset(address for _, _, address in runtime.cluster.tasks("worker", "ps")),
                leave=make_weak_method(self, "leave"),
                disconnect=functools.partial(_disconnect, self._tasks, deadline_s=deadline_s),
                is_open=make_weak_method(self, "_is_open"),
            )
        )

    def close(self, reason: str) -> None:
        """Free the strategy's resources on the servers; later calls do nothing."""
        if self._mark_ended():
            if self._end_coordinator(reason):  # first: running functions use those resources
                self._runtime.finish_exchanges()
            _free_resources(self._runtime, self._guard, reason)

    def leave(self, reason: str) -> None:
        """Stop using the tasks, which are about to end with all their resources.

        If the tasks are simulated in this process, they do not end, so their resources are freed.
        """
        if not self._tasks:
            self.close(reason)
        elif self._mark_ended():
            self._end_coordinator(reason)
            self._guard.close()
            is_responding = all_tasks_reply(self._tasks, deadline_s=self._guard.policy.deadline_s)
            self._runtime.abandon(reason, is_responding=is_responding)

    def _close_at_exit(self) -> None:
        self.close("its process ends")

    def _is_open(self) -> bool:
        return self._finalizer.alive

    def _mark_ended(self) -> bool:
        """Remove the finalizer and the exit handler; return False if they were removed before."""
        atexit.unregister(self._at_exit)
        return self._finalizer.detach() is not None

    def _end_coordinator(self, reason: str) -> bool:
        """Cancel the coordinator's functions; return whether any was running."""
        strategy, error = (
            self._strategy(),
            functools.partial(self._runtime.make_closed_error, reason),
        )
        if strategy is None or strategy.run_state.coordinator is None:
            return False
        return stop_coordinator(strategy.run_state.coordinator, error)


def _free_resources(
    runtime: Runtime, guard: Guard, reason: str = "no variable refers to it"
) -> None:
    guard.close()
    try:
        runtime.close(reason)
    except tf.errors.OpError as error:  # a server is gone, with its resources
        logger.debug("could not free the resources of the job: %s", error)


def _leave_resources(runtime: Runtime, guard: Guard) -> None:
    guard.close()
    runtime.abandon("no variable refers to it", is_responding=False)


def _disconnect(tasks: Mapping[Task, str], *, deadline_s: float) -> None:
    """Close TensorFlow's connections to tasks that are about to end, if all of them reply."""
    if is_connected(tasks.values()) and all_tasks_reply(tasks, deadline_s=deadline_s):
        disconnect()
