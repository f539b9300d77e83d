"""Probe tasks with TensorFlow's `GetStatus` and a deadline, to find tasks that hang."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import grpc

from tfps.recovery.probing.liveness import ProbePolicy

METHOD = "/tensorflow.WorkerService/GetStatus"
CLOSE_TIMEOUT_S = 5.0  # the thread ends once its calls are cancelled, within milliseconds
CHANNEL_OPTIONS = (
    # A connection of its own: it shares no queue with other channels to the same address.
    ("grpc.use_local_subchannel_pool", 1),
    # Connect directly, as TensorFlow does.
    ("grpc.enable_http_proxy", 0),
    # Reach a restarted task again within a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 500),
)

Task = tuple[str, int]
Methods = Mapping[Task, grpc.UnaryUnaryMultiCallable]


@dataclass(frozen=True)
class Observation:
    """The outcome of one probe of one task.

    Args:
        replied: whether the task replied before the deadline.
        silent: whether the deadline passed without any reaction, as with a task that hangs; one
            that is gone refuses the connection.
        sent_s: the time of the probe, on the monotonic clock.
        judged_s: the time at which the outcome was known.
    """

    replied: bool
    silent: bool
    sent_s: float
    judged_s: float


class Prober:
    """Probes all tasks in parallel from one daemon thread, with grpcio's futures.

    TensorFlow notices a task that died, but never one that hangs, and its own health check has no
    deadline and holds the interpreter's lock meanwhile. A task that is only busy replies, since
    `GetStatus` waits for none of its work.

    Args:
        addresses: the address of each task, ``host:port``; read again before each round.
        policy: the period and the deadline of probes.
        report: called on the thread with the outcome of every round.
    """

    def __init__(
        self,
        addresses: Mapping[Task, str],
        *,
        policy: ProbePolicy,
        report: Callable[[Mapping[Task, Observation]], None],
    ) -> None:
        self._addresses, self._policy, self._report = addresses, policy, report
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._calls: dict[Task, grpc.Future] = {}
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; call it once only."""
        self._thread = threading.Thread(target=self._run, name="tfps-probe", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and close its connections."""
        self._ends.set()
        with self._lock:
            for call in self._calls.values():
                call.cancel()
        # A strategy can be collected on any thread, this one included.
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while not self._ends.is_set():
            self._probe(dict(self._addresses))

    def _probe(self, addresses: Mapping[Task, str]) -> None:
        """Probe tasks periodically over the same channels, until a task has another address."""
        with open_probe_channels(addresses) as methods:
            while not self._ends.is_set() and addresses == self._addresses:
                began_s = time.monotonic()
                observations = self._probe_once(methods)
                if not self._ends.is_set():
                    self._report(observations)
                self._ends.wait(max(0.0, began_s + self._policy.period_s - time.monotonic()))

    def _probe_once(self, methods: Methods) -> dict[Task, Observation]:
        sent_s = time.monotonic()
        with self._lock:
            if self._ends.is_set():
                return {}
            self._calls = _start_calls(methods, deadline_s=self._policy.deadline_s)
        try:
            return _collect_observations(self._calls, sent_s=sent_s)
        except grpc.FutureCancelledError:  # by `close`
            return {}


def all_tasks_reply(addresses: Mapping[Task, str], *, deadline_s: float) -> bool:
    """Probe all tasks once, in parallel, and return whether each has replied.

    Args:
        addresses: the address of each task, ``host:port``.
        deadline_s: the seconds that a reply may take.
    """
    seen = observe_once(addresses, deadline_s=deadline_s)
    return all(observation.replied for observation in seen.values())


def observe_once(addresses: Mapping[Task, str], *, deadline_s: float) -> dict[Task, Observation]:
    """Probe all tasks once, in parallel, and return the outcomes.

    Args:
        addresses: the address of each task, ``host:port``.
        deadline_s: the seconds that a reply may take.
    """
    with open_probe_channels(addresses) as methods:
        sent_s = time.monotonic()
        return _collect_observations(_start_calls(methods, deadline_s=deadline_s), sent_s=sent_s)


@contextlib.contextmanager
def open_probe_channels(
    addresses: Mapping[Task, str], *, method: str = METHOD
) -> Iterator[Methods]:
    """Open a gRPC channel to each task, yield the probe method of each, and close the channels."""
    channels = {
        task: grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        for task, address in addresses.items()
    }
    try:
        # Without a serializer a message is its bytes: the request is empty.
        yield {task: channel.unary_unary(method) for task, channel in channels.items()}
    finally:
        for channel in channels.values():
            channel.close()


def _start_calls(methods: Methods, *, deadline_s: float) -> dict[Task, grpc.Future]:
    return {task: method.future(b"", timeout=deadline_s) for task, method in methods.items()}


def _collect_observations(
    calls: Mapping[Task, grpc.Future], *, sent_s: float
) -> dict[Task, Observation]:
    """Wait for the calls, at most until their deadlines, and return the outcomes."""
    observations = {}
    for task, call in calls.items():
        error = call.exception()
        observations[task] = Observation(
            replied=error is None,
            silent=error is not None and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED,
            sent_s=sent_s,
            judged_s=time.monotonic(),
        )
    return observations
