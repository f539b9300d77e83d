"""The coordinator's calls of a server are not those of a closure that is cancelled."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

import tfps
from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.named_resource import open_mutex
from tfps.consistency.server_ledger import MUTEX
from tfps.runtime.coordinator.server import Server

DEADLINE_S = 30.0


@pytest.fixture
def server(make_strategy: Callable[..., tfps.ParameterServerStrategy]) -> Server:
    return make_strategy().runtime.servers[0]


@contextlib.contextmanager
def closure_runs() -> Iterator[tuple[Any, threading.Event]]:
    """A thread runs a closure until the event; TensorFlow's way to cancel it is the process's."""
    cancellation = private.CoordinatedClosureQueue()._cancellation_mgr
    runs, ends = threading.Event(), threading.Event()

    def closure() -> None:
        runs.set()
        assert ends.wait(DEADLINE_S)

    thread = threading.Thread(target=cancellation.get_cancelable_function(closure))
    thread.start()
    try:
        assert runs.wait(DEADLINE_S)
        yield cancellation, ends
    finally:
        ends.set()
        thread.join(DEADLINE_S)


def test_what_is_cancelled_before_it_starts_is_called_again(server: Server) -> None:
    before = server.cells()
    with closure_runs() as (cancellation, ends):
        cancellation.start_cancel()
        threading.Timer(0.05, ends.set).start()
        assert list(server.cells()) == list(before)


def test_what_is_cancelled_while_it_waits_for_the_mutex_is_called_again(server: Server) -> None:
    before = server.cells()
    replies: queue.Queue[list[int]] = queue.Queue()
    with tf.device(server.device):
        mutex = open_mutex(server.contents.container, MUTEX)
        lock = tf.raw_ops.MutexLock(mutex=mutex)
    with closure_runs() as (cancellation, _):
        thread = threading.Thread(target=lambda: replies.put(list(server.cells())))
        thread.start()
        time.sleep(0.2)  # it waits by then; where it does not, this is the case above
        cancellation.start_cancel()
    del lock  # which releases the mutex
    assert replies.get(timeout=DEADLINE_S) == list(before)
    thread.join(DEADLINE_S)
