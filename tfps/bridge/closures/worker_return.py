"""TensorFlow takes in workers that came back: what is drained meanwhile, and what does not wait."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

from tfps.bridge.tensorflow_private import Context

Drained = Callable[[], contextlib.AbstractContextManager[None]]
_drains: weakref.WeakKeyDictionary[Any, Drained] = weakref.WeakKeyDictionary()


def drain_while_workers_return(coordinator: Any, drained: Drained) -> None:
    """Drain something each time that the tasks of the cluster are connected anew.

    TensorFlow waits there for every function that runs, and lets none begin: functions that wait
    for each other would never end, if one of them has begun and the other one has not.

    Args:
        coordinator: what is drained, is drained for it.
        drained: opened before TensorFlow begins, closed when it is done.
    """
    _drains[coordinator] = drained
    if getattr(Context, "_tfps_drains", False):
        return
    original = Context.update_server_def

    def update_server_def(self: Any, *arguments: Any, **options: Any) -> None:
        with contextlib.ExitStack() as drains:
            for each in [its for which, its in list(_drains.items()) if _takes_in(which)]:
                drains.enter_context(each())
            original(self, *arguments, **options)

    Context.update_server_def = update_server_def
    Context._tfps_drains = True


def tell_of_return(coordinator: Any, tell: Callable[[int], None]) -> None:
    """Call something with a worker's index each time that TensorFlow has taken it in again.

    Args:
        coordinator: whose workers they are.
        tell: called on the worker's thread, before it takes a closure.
    """
    for worker in coordinator._cluster.workers:

        def recovered(worker: Any = worker, original: Any = worker._on_worker_recovery) -> None:
            original()
            tell(worker.worker_index)

        worker._on_worker_recovery = recovered


def _takes_in(coordinator: Any) -> bool:
    """Whether this thread connects the coordinator's lost workers; nobody waits for another's."""
    handler = coordinator._cluster.failure_handler
    return threading.current_thread() is handler._preemption_handler_thread
