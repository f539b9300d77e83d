"""The errors of a coordinator's closures: whose mistake they are, and that each is told once."""

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

# With this a Python function in a worker's process says that it cannot reach a server.
LOST_SERVER = "tfps lost the parameter server"
# With these a worker that others may wait for says that a server's answer did not come, though the
# server may be there, or that it does not know the worker any more: what it ran runs again.
NO_ANSWER = f"{LOST_SERVER} in the middle of a function: no answer came"
NO_MEMBER = "tfps has let this worker out in the middle of a function"
# A task answers so when it cannot read a request; it has begun nothing of what was asked for.
UNREAD_REQUEST = "Unable to parse request"
CALL_OF_A_FUNCTION = "/tensorflow.eager.EagerService/RunComponentFunction"
# Most requests that cannot be read are accidents, and so are most connections that break; one that
# is not stays so.
ATTEMPTS = 5
RECONNECT_AFTER_S = 0.2

logger = logging.getLogger(__name__)


def tells_of_a_lost_server(error: BaseException) -> bool:
    """Whether an error's text, whatever its type, says that a server could not be reached."""
    if not isinstance(error, tf.errors.OpError):
        return False
    renamed = "originally returned UnavailableError" in error.message
    return LOST_SERVER in error.message or (
        renamed and private.RPC_ERROR_FROM_SERVER in error.message
    )


def tells_of_an_unread_request(error: BaseException) -> bool:
    """Whether a task could not read the request to run a function, and so has not begun it."""
    return (
        isinstance(error, tf.errors.InternalError)
        and UNREAD_REQUEST in error.message
        and CALL_OF_A_FUNCTION in error.message
    )


def tells_of_a_member_let_out(error: BaseException) -> bool:
    """Whether a server has refused what a worker sent, since it does not take part any more."""
    return isinstance(error, tf.errors.InvalidArgumentError) and NO_MEMBER in error.message


def _has_broken_connection(error: BaseException, worker: Any) -> bool:
    """Whether a worker's connection has ended with a server that is there."""
    is_one = isinstance(error, tf.errors.UnavailableError) and NO_ANSWER in error.message
    return is_one and not worker.failure_handler.servers.excuses(error)


@contextlib.contextmanager
def lost_servers_as_unavailable() -> Iterator[None]:
    """Raise an `UnavailableError` in the place of TensorFlow's other names for a lost server."""
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
    """Who hears of a coordinator's closures.

    Args:
        tell: called with an error, the function's graph (or None) and the worker's index; answers
            the error that is raised in its place.
        prepare: called with a worker's index and the concrete function that it is about to run.
    """

    tell: Callable[[Exception, Any, int], Exception]
    prepare: Callable[[int, Any], None] = lambda *_: None


_watched_clusters: weakref.WeakKeyDictionary[Any, ClosureObserver] = weakref.WeakKeyDictionary()


def watch_closures(coordinator: Any, watch: ClosureObserver) -> None:
    """Let the errors of closures reach the coordinator as what they are, and be told once.

    When a request from inside a worker's function fails because a server is lost, TensorFlow
    renames the error to `InternalError` (or `UnknownError`, from a Python function) and keeps the
    original's name in the text only; the coordinator would take it for a mistake in the function.

    A mistake in the function is raised where somebody waits for it. TensorFlow also logs it, with
    all of its text, up to two times for each worker; those lines are left out.

    A closure of which a request did not arrive whole, or no answer came from a server that is
    there, is run again. What it did before is asked for once more, as it is when TensorFlow runs
    the closure of a lost worker again: servers know the tickets of `fit`, and the numbers of
    closures.

    Args:
        coordinator: whose closures are watched from now on.
        watch: who hears of them.
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
                    "a request of worker %d, or the answer to it, did not arrive whole; it runs "
                    "its function again (attempt %d of %d)",
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
    """Execute a closure; False if a request or an answer did not arrive, and it may be repeated.

    Raises:
        Exception: what the coordinator shall be told.
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
            worker.executor.clear_error()  # which would be told when it is collected
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
            raise  # the failure handler lets it run again
        traced = getattr(closure, "_concrete_function", None)
        told = watch.tell(error, getattr(traced, "graph", None), index)
        if not is_task_failure(told):
            told._tfps_raised_by_closure = True  # type: ignore[attr-defined]
            worker.executor.clear_error()  # which would be told again when it is collected
        if told is not error:
            raise told from None
        raise
    finally:
        membership.on_end(index)
    return True


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
