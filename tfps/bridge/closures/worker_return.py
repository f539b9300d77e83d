"""Adds hooks that run when TensorFlow reconnects workers that returned."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

from tfps.bridge.tensorflow_private import Context

DrainContext = Callable[[], contextlib.AbstractContextManager[None]]
_drains: weakref.WeakKeyDictionary[Any, DrainContext] = weakref.WeakKeyDictionary()


def drain_while_workers_return(coordinator: Any, make_drain_context: DrainContext) -> None:
    """Open a context each time that TensorFlow reconnects a coordinator's lost workers.

    TensorFlow then waits for every running function, and lets no function start. Functions that
    wait for each other would never end if one of them has started and the other one has not.

    Args:
        coordinator: the coordinator whose workers are reconnected.
        make_drain_context: makes the context; opened before TensorFlow starts, closed at its end.
    """
    _drains[coordinator] = make_drain_context
    if getattr(Context, "_tfps_drains", False):
        return
    original = Context.update_server_def

    @functools.wraps(original)  # so that its parameters are still known
    def update_server_def(self: Any, *arguments: Any, **options: Any) -> None:
        with contextlib.ExitStack() as drains:
            for each in [
                its for which, its in list(_drains.items()) if _is_reconnecting_thread(which)
            ]:
                drains.enter_context(each())
            original(self, *arguments, **options)

    Context.update_server_def = update_server_def
    Context._tfps_drains = True


def call_on_worker_return(coordinator: Any, callback: Callable[[int], None]) -> None:
    """Call a function each time that TensorFlow has reconnected a worker.

    Args:
        coordinator: the coordinator of the workers.
        callback: called with the worker's index, on its thread, before it takes a closure.
    """
    for worker in coordinator._cluster.workers:

        def recovered(worker: Any = worker, original: Any = worker._on_worker_recovery) -> None:
            original()
            callback(worker.worker_index)

        worker._on_worker_recovery = recovered


def _is_reconnecting_thread(coordinator: Any) -> bool:
    """Return whether this is the thread that reconnects the lost workers of this coordinator."""
    handler = coordinator._cluster.failure_handler
    return threading.current_thread() is handler._preemption_handler_thread
