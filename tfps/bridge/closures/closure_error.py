"""Errors of a coordinator's closures: find their cause, and report each of them once."""

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
from tfps.bridge.closures.closure_numbers import running

# The text with which a Python function in a worker's process reports an unreachable server.
LOST_SERVER = "tfps lost the parameter server"
# The texts of a worker for which others may wait: a server's reply did not arrive, though the
# server may still run, or the server no longer knows the worker. The closure runs again.
NO_ANSWER = f"{LOST_SERVER} in the middle of a function, before its reply"
NO_MEMBER = "tfps removed this worker from the members in the middle of a function"
# The reply of a task that cannot parse a request; it has started nothing of what was requested.
UNREAD_REQUEST = "Unable to parse request"
CALL_OF_A_FUNCTION = "/tensorflow.eager.EagerService/RunComponentFunction"
# Most unreadable requests and broken connections are accidents; the others fail at each attempt.
ATTEMPTS = 5
RECONNECT_AFTER_S = 0.2

logger = logging.getLogger(__name__)


def tells_of_a_lost_server(error: BaseException) -> bool:
    """Return whether an error of any type says in its text that a server was unreachable."""
    if not isinstance(error, tf.errors.OpError):
        return False
    renamed = "originally returned UnavailableError" in error.message
    return LOST_SERVER in error.message or (
        renamed and private.RPC_ERROR_FROM_SERVER in error.message
    )


def tells_of_an_unread_request(error: BaseException) -> bool:
    """Return whether a task could not parse the request to run a function, and did not start it."""
    return (
        isinstance(error, tf.errors.InternalError)
        and UNREAD_REQUEST in error.message
        and CALL_OF_A_FUNCTION in error.message
    )


def tells_of_a_member_let_out(error: BaseException) -> bool:
    """Return whether a server refused a worker's message because the worker is no member now."""
    return isinstance(error, tf.errors.InvalidArgumentError) and NO_MEMBER in error.message


def _has_broken_connection(error: BaseException, worker: Any) -> bool:
    """Return whether a worker lost its connection to a server that still runs."""
    is_one = isinstance(error, tf.errors.UnavailableError) and NO_ANSWER in error.message
    return is_one and not worker.failure_handler.servers.is_caused_by_server_loss(error)


@contextlib.contextmanager
def lost_servers_as_unavailable() -> Iterator[None]:
    """Raise `UnavailableError` instead of the other errors TensorFlow has for a lost server."""
    try:
        yield
    except (
        tf.errors.InternalError,
        tf.errors.InvalidArgumentError,
        tf.errors.UnknownError,
    ) as error:
        if not tells_of_a_lost_server(error):
            raise
        raise tf.errors.UnavailableError(None, None, error.message) from error


class ClosureObserver(NamedTuple):
    """The callbacks for a coordinator's closures.

    Args:
        tell: called with an error, the function's graph (or None) and the worker's index; returns
            the error to raise instead.
        prepare: called with a worker's index and the concrete function that it is about to run.
    """

    tell: Callable[[Exception, Any, int], Exception]
    prepare: Callable[[int, Any], None] = lambda *_: None


_watched_clusters: weakref.WeakKeyDictionary[Any, ClosureObserver] = weakref.WeakKeyDictionary()


def watch_closures(coordinator: Any, watch: ClosureObserver) -> None:
    """Give errors of closures their original type, report each once, and repeat failed requests.

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
        watch: the callbacks.
    """
    _watched_clusters[coordinator._cluster] = watch
    if getattr(private.Closure, "_tfps_patched", False):
        return
    original = private.Closure.execute_on

    def execute_on(self: Any, worker: Any) -> None:
        watch = _watched_clusters.get(worker._cluster)
        if watch is None:
            original(self, worker)
            return
        private.work_apart()
        execute = functools.partial(_execute, self, worker, watch, original)
        with running(self):
            for attempt in range(2, ATTEMPTS + 1):
                if execute(may_repeat=True):
                    return
                logger.warning(
                    "worker %d: a request or its reply arrived incomplete; the worker runs its "
                    "function again (attempt %d of %d)",
                    worker.worker_index,
                    attempt,
                    ATTEMPTS,
                )
            execute(may_repeat=False)

    private.Closure.execute_on = execute_on
    private.Closure._tfps_patched = True
    logging.getLogger("tensorflow").addFilter(_is_not_raised_anyway)


def _execute(
    closure: Any,
    worker: Any,
    watch: ClosureObserver,
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
            watch.prepare(index, traced)
        with lost_servers_as_unavailable():
            original(closure, worker)
    except Exception as error:
        membership.on_error(index)
        if queue.is_closed:
            worker.executor.clear_error()  # it would be reported when the executor is collected
            raise
        if may_repeat and not queue.is_recalled():
            if tells_of_an_unread_request(error):
                worker.executor.clear_error()
                return False
            if _has_broken_connection(error, worker):
                worker.executor.clear_error()
                time.sleep(RECONNECT_AFTER_S)
                return False
        if tells_of_a_member_let_out(error):
            worker.executor.clear_error()
            raise  # the failure handler runs it again
        traced = getattr(closure, "_concrete_function", None)
        reported = watch.tell(error, getattr(traced, "graph", None), index)
        if not is_task_failure(reported):
            reported._tfps_raised_by_closure = True  # type: ignore[attr-defined]
            worker.executor.clear_error()  # it would be reported again at the executor's collection
        if reported is not error:
            raise reported from None
        raise
    finally:
        membership.on_end(index)
    return True


def _is_not_raised_anyway(record: logging.LogRecord) -> bool:
    arguments = record.args if isinstance(record.args, tuple) else ()
    return not any(
        getattr(each, "_tfps_raised_by_closure", False)
        or isinstance(each, tf.errors.CancelledError)  # raised by closures of other workers
        for each in arguments
    )


def is_task_failure(error: BaseException) -> bool:
    """Return whether TensorFlow's coordinator sees a lost task in an error, or cancelled it."""
    return bool(
        isinstance(error, tf.errors.CancelledError)
        or tells_of_a_lost_server(error)
        or private.is_worker_failure(error)
        or private.is_server_failure(error)
    )
