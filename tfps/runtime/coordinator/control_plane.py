"""Calls functions on one server for the coordinator, apart from the workers' traffic."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.functions.owned_graph import OwnedGraph
from tfps.bridge.functions.server_function import trace_server_function
from tfps.bridge.tensorflow_private import mark_session_closed
from tfps.cluster import accepts_connections
from tfps.errors import StrategyClosed
from tfps.transport import tokens
from tfps.transport.session_options import session_options

# A server replies within a millisecond. TensorFlow waits for one that is gone, so each attempt is
# short and followed by a look at the port; a busy machine may need the whole time.
ATTEMPT_TIMEOUT_S = 3.0
CALL_TIMEOUT_S = 30.0
# The time for a channel's look whether its server accepts connections.
PROBE_TIMEOUT_S = 1.0
# TensorFlow has repeated a request that had arrived, because it got no reply.
DUPLICATE_REQUEST = "was received twice"
# Errors of a server that works: it cannot write or read a file.
WORKING_SERVER_ERRORS = (
    tf.errors.DataLossError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
)
# TensorFlow's message about a PyFunc whose token the process does not know.
UNKNOWN_TOKEN = "Could not find callback with key"


def to_signature(arguments: int | Sequence[tf.TensorSpec]) -> list[tf.TensorSpec]:
    """Return the input signature of a function: some int64 scalars, or the given specs."""
    if isinstance(arguments, int):
        return [tf.TensorSpec([], tf.int64)] * arguments
    return list(arguments)


_thread = threading.local()


@contextlib.contextmanager
def bringing_servers_back() -> Iterator[None]:
    """Allow calls to lost servers on this thread, which is bringing the servers back."""
    _thread.brings_back = True
    try:
        yield
    finally:
        _thread.brings_back = False


def is_bringing_back() -> bool:
    """Return whether this thread is bringing a server back."""
    return getattr(_thread, "brings_back", False)


@contextlib.contextmanager
def fail_lost_servers_at_once() -> Iterator[None]:
    """Fail calls to lost servers immediately on this thread, which has a lock that they need."""
    _thread.fails_at_once = True
    try:
        yield
    finally:
        _thread.fails_at_once = False


def waits_for_lost_servers() -> bool:
    """Return whether calls on this thread wait for a server that is being brought back.

    A thread that fills a server does not wait: the server may be lost again in that time.
    """
    return not (getattr(_thread, "fails_at_once", False) or is_bringing_back())


def never_returns() -> bool:
    """Return False: the task is not brought back."""
    return False


def make_channel_closed_error() -> StrategyClosed:
    """Return the error of calls on a channel that its owner has closed."""
    return StrategyClosed("the connection to this task of the cluster is closed")


class SendError(tf.errors.UnavailableError):
    """The error of a call that was not sent, since the server was already lost."""

    def __init__(self, reason: str) -> None:
        super().__init__(None, None, reason)


class NoSuchFunction(LookupError):
    """The error of a call whose function a task's process does not have.

    The task is a plain `tf.distribute.Server`.
    """


class ControlPlane:
    """Calls small functions of a server through a TensorFlow session with its own deadline.

    The coordinator's eager context cannot be used while it takes in a worker that came back:
    TensorFlow then waits for every running closure, and those wait for tickets that only the
    coordinator can grant. A session goes to the server directly, reaches the same named resources,
    and works with any `tf.distribute.Server`.

    Args:
        address: returns the task's address, ``host:port``; called for each session.
        accepts_restarted_task: a restarted task gets calls as well; for workers, which keep nothing
            that such a call could read.
        longest_attempt_s: the limit of an attempt; attempts become longer, up to this.
    """

    def __init__(
        self,
        *,
        address: Callable[[], str],
        device: str,
        accepts_restarted_task: bool = False,
        longest_attempt_s: float = ATTEMPT_TIMEOUT_S,
    ) -> None:
        self._device, self._get_address = device, address
        self._longest_attempt_s = longest_attempt_s
        self._to_any_incarnation = accepts_restarted_task
        self._graph = OwnedGraph()
        self._lock = threading.Lock()
        self.lost: str | None = None  # the reason why no call is attempted
        self.wait_for_return: Callable[[], bool] = never_returns
        self._make_closed_error: Callable[[], Exception] | None = (
            None  # makes the error of each call
        )
        self._token_functions: dict[str, Callable[..., Any]] = {}  # by token
        self._session = self._connect()

    @property
    def _address(self) -> str:
        return self._get_address()

    def _connect(self) -> Any:
        options = session_options(self._device, timeout_s=ATTEMPT_TIMEOUT_S)
        target = f"grpc://{self._address}"
        return tf.compat.v1.Session(target, graph=self._graph, config=options)

    def make_function(
        self, trace: Callable[..., Sequence[tf.Tensor]], *, arguments: int | Sequence[tf.TensorSpec]
    ) -> Callable[..., list[np.ndarray[Any, Any]]]:
        """Trace a function of the server; see `ControlChannel`."""
        # Not traced in the session's graph: there `==` of two tensors asks whether they are the
        # same object, as in TensorFlow 1, and every decision that compares would be wrong.
        signature = to_signature(arguments)
        concrete = trace_server_function(trace, device=self._device, signature=signature)
        with self._tracing():
            inputs = [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in signature]
            return self._make_caller(inputs, concrete(*inputs))

    def ask(self, token: str, *values: int | bytes, patience_s: float = CALL_TIMEOUT_S) -> Any:
        """Call a Python function of the task's process; see `ControlChannel`."""
        if token not in self._token_functions:
            result = tf.string if token in tokens.RETURNING_BYTES else tf.int64
            dtypes = [tf.string if isinstance(value, bytes) else tf.int64 for value in values]
            with self._tracing():
                inputs = [tf.compat.v1.placeholder(dtype, []) for dtype in dtypes]
                outputs = tf.raw_ops.PyFunc(input=inputs, token=token, Tout=[result])
            self._token_functions[token] = self._make_caller(inputs, outputs)
        try:
            return self._token_functions[token](*values, patience_s=patience_s)[0]
        except tf.errors.UnavailableError as error:
            if UNKNOWN_TOKEN in error.message:
                raise NoSuchFunction(f"{self._device} has no function {token}") from error
            raise

    @contextlib.contextmanager
    def _tracing(self) -> Iterator[None]:
        with self._lock, tf.init_scope(), self._graph.as_default(), tf.device(self._device):
            yield

    def _make_caller(
        self, inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor]
    ) -> Callable[..., list[np.ndarray[Any, Any]]]:
        def call(*values: Any, patience_s: float = CALL_TIMEOUT_S) -> list[np.ndarray[Any, Any]]:
            feed_dict = dict(zip(inputs, values, strict=True))
            return self._run_until_reply(outputs, feed_dict, patience_s=patience_s)

        return call

    def _run_session(self, outputs: Any, feed_dict: dict[Any, Any], timeout_s: float) -> list[Any]:
        options = None  # those of the session
        if timeout_s != ATTEMPT_TIMEOUT_S:
            options = tf.compat.v1.RunOptions(timeout_in_ms=int(timeout_s * 1000))
        with self._lock:
            if self._make_closed_error is not None:
                raise self._make_closed_error()
            if self.lost is not None and not is_bringing_back():
                raise SendError(self.lost)
            try:
                return list(self._session.run(outputs, feed_dict, options=options))
            except tf.errors.AbortedError:  # the session went with an earlier incarnation
                if not self._to_any_incarnation:
                    raise
                self._session = self._connect()
                return list(self._session.run(outputs, feed_dict, options=options))

    def _run_until_reply(
        self, outputs: Any, feed_dict: dict[Any, Any], *, patience_s: float
    ) -> list[Any]:
        """Run a call until the server replies; every call may be repeated without harm.

        Raises:
            tf.errors.UnavailableError: the server is gone, was restarted, or does not reply.
            tf.errors.OpError: one of `WORKING_SERVER_ERRORS`.
            Exception: the error given to `close`, after that.
        """
        until_s = time.monotonic() + patience_s
        timeout_s = ATTEMPT_TIMEOUT_S
        while True:
            session = self._session
            try:
                return self._run_session(outputs, feed_dict, timeout_s)
            except WORKING_SERVER_ERRORS:
                raise
            except tf.errors.OpError as error:
                waits = patience_s and waits_for_lost_servers()
                if self._session is not session or (waits and self.wait_for_return()):
                    until_s, timeout_s = time.monotonic() + patience_s, ATTEMPT_TIMEOUT_S
                    continue
                if isinstance(error, SendError) and self.lost is None:
                    continue  # it came back before this call could wait for it
                if self.lost is not None:
                    raise tf.errors.UnavailableError(None, None, self.lost) from error
                slow = (
                    isinstance(error, tf.errors.DeadlineExceededError)
                    or DUPLICATE_REQUEST in error.message
                )
                busy = slow and accepts_connections(self._address)
                if busy and time.monotonic() < until_s:
                    timeout_s = min(2 * timeout_s, self._longest_attempt_s)
                    continue
                raise tf.errors.UnavailableError(
                    None,
                    None,
                    f"The parameter server {self._device} at {self._address} is lost, restarted "
                    f"or does not reply: {error.message}",
                ) from error

    def renew(self) -> None:
        """Reconnect to a restarted task, and keep the existing functions.

        A channel that is closed stays closed; each call raises its error.
        """
        with self._lock:
            if self._make_closed_error is not None:
                return
            mark_session_closed(self._session)
            self._session = self._connect()

    def is_reachable(self, *, timeout_s: float = PROBE_TIMEOUT_S) -> bool:
        """Return whether the task accepts connections."""
        return accepts_connections(self._address, timeout_s=timeout_s)

    def close(
        self,
        *,
        is_responding: bool = True,
        error: Callable[[], Exception] = make_channel_closed_error,
    ) -> None:
        """Close the channel; see `ControlChannel`."""
        with self._lock:
            self._make_closed_error = error
            if is_responding and self.lost is None and self.is_reachable():
                # A restarted task does not know the session.
                with contextlib.suppress(tf.errors.AbortedError):
                    self._session.close()
            else:
                mark_session_closed(self._session)
