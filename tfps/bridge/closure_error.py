"""The errors of a coordinator's closures: whose mistake they are, and that each is told once."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private

# With this a Python function in a worker's process says that it cannot reach a server.
LOST_SERVER = "tfps lost the parameter server"


def tells_of_a_lost_server(error: BaseException) -> bool:
    """Whether an error's text, whatever its type, says that a server could not be reached."""
    if not isinstance(error, tf.errors.OpError):
        return False
    renamed = "originally returned UnavailableError" in error.message
    return LOST_SERVER in error.message or (
        renamed and private.RPC_ERROR_FROM_SERVER in error.message
    )


@contextlib.contextmanager
def lost_servers_as_unavailable() -> Iterator[None]:
    """Raise an `UnavailableError` in the place of TensorFlow's other names for a lost server."""
    try:
        yield
    except (tf.errors.InternalError, tf.errors.UnknownError) as error:
        if not tells_of_a_lost_server(error):
            raise
        raise tf.errors.UnavailableError(None, None, error.message) from error


Tell = Callable[[Exception, Any, int], Exception]
_watched_clusters: weakref.WeakKeyDictionary[Any, Tell] = weakref.WeakKeyDictionary()


def watch_closures(coordinator: Any, tell: Tell) -> None:
    """Let the errors of closures reach the coordinator as what they are, and be told once.

    When a request from inside a worker's function fails because a server is lost, TensorFlow
    renames the error to `InternalError` (or `UnknownError`, from a Python function) and keeps the
    original's name in the text only; the coordinator would take it for a mistake in the function.

    A mistake in the function is raised where somebody waits for it. TensorFlow also logs it, with
    all of its text, up to two times for each worker; those lines are left out.

    Args:
        coordinator: whose closures are watched from now on.
        tell: called with an error, the function's graph (or None) and the worker's index; answers
            the error that is raised in its place.
    """
    _watched_clusters[coordinator._cluster] = tell
    if getattr(private.Closure, "_tfps_patched", False):
        return
    original = private.Closure.execute_on

    def execute_on(self: Any, worker: Any) -> None:
        tell = _watched_clusters.get(worker._cluster)
        if tell is None:
            original(self, worker)
            return
        private.work_apart()
        attendance = worker._cluster.closure_queue.attendance
        try:
            attendance.takes(worker.worker_index, self)
            with lost_servers_as_unavailable():
                original(self, worker)
        except Exception as error:
            attendance.fails(worker.worker_index)
            traced = getattr(self, "_concrete_function", None)
            told = tell(error, getattr(traced, "graph", None), worker.worker_index)
            is_cancelled = isinstance(told, tf.errors.CancelledError)
            if private.is_worker_failure(told) and not is_cancelled:
                attendance.loses(worker.worker_index)
            if not is_task_failure(told):
                told._tfps_raised_by_closure = True  # type: ignore[attr-defined]
                worker.executor.clear_error()  # which would be told again when it is collected
            if told is not error:
                raise told from None
            raise
        finally:
            attendance.ends(worker.worker_index)

    private.Closure.execute_on = execute_on
    private.Closure._tfps_patched = True
    logging.getLogger("tensorflow").addFilter(_is_not_raised_anyway)


def _is_not_raised_anyway(record: logging.LogRecord) -> bool:
    arguments = record.args if isinstance(record.args, tuple) else ()
    return not any(
        getattr(each, "_tfps_raised_by_closure", False)
        or isinstance(each, tf.errors.CancelledError)  # of the closures beside it
        for each in arguments
    )


def is_task_failure(error: BaseException) -> bool:
    """Whether TensorFlow's coordinator takes an error for a lost task, or cancelled it itself."""
    return bool(
        isinstance(error, tf.errors.CancelledError)
        or tells_of_a_lost_server(error)
        or private.is_worker_failure(error)
        or private.is_server_failure(error)
    )
