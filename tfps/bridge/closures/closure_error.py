"""Finds the causes of errors in a coordinator's closures, and reports each error once."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_numbers import mark_running

# The text with which a Python function in a worker's process reports an unreachable server.
LOST_SERVER = "tfps lost the parameter server"
# The texts of a worker for which others may wait: a server's reply did not arrive, though the
# server may still run, or the server no longer knows the worker. The closure runs again.
NO_REPLY = f"{LOST_SERVER} in the middle of a function, before its reply"
NOT_A_MEMBER = "tfps removed this worker from the members in the middle of a function"
# The reply of a task that cannot parse a request; it has started nothing of what was requested.
UNPARSED_REQUEST = "Unable to parse request"
FUNCTION_CALL_METHOD = "/tensorflow.eager.EagerService/RunComponentFunction"
# Most unreadable requests and broken connections are accidents; the others fail at each attempt.
MAX_ATTEMPTS = 5
RECONNECT_AFTER_S = 0.2

logger = logging.getLogger(__name__)


def is_lost_server_error(error: BaseException) -> bool:
    """Return whether the text of an error shows that a server was unreachable."""
    if not isinstance(error, tf.errors.OpError):
        return False
    renamed = "originally returned UnavailableError" in error.message
    return LOST_SERVER in error.message or (
        renamed and private.RPC_ERROR_FROM_SERVER in error.message
    )


def is_unparsed_request_error(error: BaseException) -> bool:
    """Return whether a task could not parse a request to run a function, and so ran nothing."""
    return (
        isinstance(error, tf.errors.InternalError)
        and UNPARSED_REQUEST in error.message
        and FUNCTION_CALL_METHOD in error.message
    )


def is_removed_member_error(error: BaseException) -> bool:
    """Return whether a server refused a message because its worker is no longer a member."""
    return isinstance(error, tf.errors.InvalidArgumentError) and NOT_A_MEMBER in error.message


def _has_broken_connection(error: BaseException, worker: Any) -> bool:
    """Return whether a worker lost its connection to a server that still runs."""
    is_one = isinstance(error, tf.errors.UnavailableError) and NO_REPLY in error.message
    return is_one and not worker.failure_handler.servers.is_caused_by_server_loss(error)


@contextlib.contextmanager
def unify_lost_server_errors() -> Iterator[None]:
    """Raise `UnavailableError` instead of TensorFlow's other errors for a lost server."""
    try:
        yield
    except (
        tf.errors.InternalError,
        tf.errors.InvalidArgumentError,
        tf.errors.UnknownError,
    ) as error:
        if not is_lost_server_error(error):
            raise
        raise tf.errors.UnavailableError(None, None, error.message) from error


class ClosureObserver(NamedTuple):
    """The callbacks that observe a coordinator's closures.

    Args:
        tell: called with an error, the function's graph (or None) and the worker's index; returns
            the error to raise instead.
        prepare: called with a worker's index and the concrete function that it is about to run.
    """

    tell: Callable[[Exception, Any, int], Exception]
    prepare: Callable[[int, Any], None] = lambda *_: None


_watched_clusters: weakref.WeakKeyDictionary[Any, ClosureObserver] = weakref.WeakKeyDictionary()


def watch_closures(coordinator: Any, observer: ClosureObserver) -> None:
    """Patch closures: restore types of errors, report each error once, and repeat lost requests.

    When a request from inside a worker's function fails because a server is lost, TensorFlow
    renames the error to `InternalError` (or `UnknownError`, from a Python function) and keeps the
    original's name in the text only; the coordinator would take it for a bug in the function.

    A bug in the function is raised by `join` or `fetch`. TensorFlow also logs it, with its whole
    text, up to two times for each worker; those log lines are dropped.

    A closure runs again if one of its requests did not arrive whole, or if a server that still
    runs did not reply. This is as safe as when TensorFlow repeats the closure of a lost worker:
    servers recognize repeated requests by the tickets of `fit` and the numbers of closures.

    Args:
        coordinator: the coordinator whose closures are watched from now on.
        observer: the callbacks.
    """
    _watched_clusters[coordinator._cluster] = observer
    if hasattr(private.Closure.execute_on, "tfps_original"):
        return
    original = private.Closure.execute_on

    def execute_on(self: Any, worker: Any) -> None:
        observer = _watched_clusters.get(worker._cluster)
        if observer is None:
            original(self, worker)
            return
        private.use_own_executor()
        execute = functools.partial(_execute, self, worker, observer, original)
        with mark_running(self):
            for attempt in range(2, MAX_ATTEMPTS + 1):
                if execute(may_repeat=True):
                    return
                logger.warning(
                    "worker %d: a request or its reply arrived incomplete; the worker runs its "
                    "function again (attempt %d of %d)",
                    worker.worker_index,
                    attempt,
                    MAX_ATTEMPTS,
                )
            execute(may_repeat=False)

    execute_on.tfps_original = original  # type: ignore[attr-defined] # marks the patched method
    private.Closure.execute_on = execute_on
    logging.getLogger("tensorflow").addFilter(_should_log)


def _execute(
    closure: Any,
    worker: Any,
    observer: ClosureObserver,
    original: Callable[..., None],
    *,
    may_repeat: bool,
) -> bool:
    """Execute a closure; return False if a message did not arrive and the closure may be repeated.

    Raises:
        Exception: the error that the coordinator receives.
    """
    queue, index = worker._cluster.closure_queue, worker.worker_index
    membership = queue.membership
    try:
        membership.on_start(index, closure)
        traced = getattr(closure, "_concrete_function", None)
        if traced is not None:
            observer.prepare(index, traced)
        with unify_lost_server_errors():
            original(closure, worker)
    except Exception as error:
        membership.on_error(index)
        if queue.is_closed:
            worker.executor.clear_error()  # it would be reported when the executor is collected
            raise
        if may_repeat and not queue.is_recalled():
            if is_unparsed_request_error(error):
                worker.executor.clear_error()
                return False
            if _has_broken_connection(error, worker):
                worker.executor.clear_error()
                time.sleep(RECONNECT_AFTER_S)
                return False
        if is_removed_member_error(error):
            worker.executor.clear_error()
            raise  # the failure handler runs it again
        traced = getattr(closure, "_concrete_function", None)
        reported = observer.tell(error, getattr(traced, "graph", None), index)
        if not is_task_failure(reported):
            reported._tfps_raised_by_closure = True  # type: ignore[attr-defined]
            worker.executor.clear_error()  # it would be reported again at the executor's collection
        if reported is not error:
            raise reported from None
        raise
    finally:
        membership.on_end(index)
    return True


def _should_log(record: logging.LogRecord) -> bool:
    arguments = record.args if isinstance(record.args, tuple) else ()
    return not any(
        getattr(each, "_tfps_raised_by_closure", False)
        or isinstance(each, tf.errors.CancelledError)  # raised by closures of other workers
        for each in arguments
    )


def is_task_failure(error: BaseException) -> bool:
    """Return whether an error means that a task was lost or that the closure was cancelled."""
    return bool(
        isinstance(error, tf.errors.CancelledError)
        or is_lost_server_error(error)
        or private.is_worker_failure(error)
        or private.is_server_failure(error)
    )
