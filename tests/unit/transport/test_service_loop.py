"""A server's loops: a push has its own thread, and no other request waits with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.transport.direct.certificates import made_tls, needs_openssl
from tests.unit.transport.served import CONNECTIONS, ServedFunctions, served
from tfps.bridge.named_functions import register_named_function
from tfps.transport.direct import Connection, ConnectionLost, Encryption, FrameLimits, Plain
from tfps.transport.message import REPLY_FIELDS, Kind, Request
from tfps.transport.service import Entry

LIMITS = FrameLimits(header_fields=REPLY_FIELDS, max_ids=0, max_payload_bytes=8)
# Of the payload of a push: it does nothing else, waits at the gate, or takes long below the mutex.
PASSES, WAITS, LONG = range(3)

_threads: list[tuple[int, int]] = []  # worker, thread
_begun, _done = threading.Event(), threading.Event()


def _note(worker: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    _threads.append((int(worker), threading.get_ident()))
    return worker


def _noted(worker: tf.Tensor) -> tf.Tensor:
    (noted,) = tf.raw_ops.PyFunc(input=[worker], token="test_note_thread", Tout=[tf.int64])
    noted.set_shape([])
    return noted


@tf.function(jit_compile=True, autograph=False)
def _kernel(header: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """A stand-in for the kernel that decides on a push and applies it."""
    return header[Request.TICKET :][:REPLY_FIELDS] + amount


def _gate() -> tf.Tensor:
    return tf.raw_ops.FIFOQueueV2(component_types=[tf.int64], shapes=[[]], shared_name="gate")


def _push(*, has_gate: bool) -> Any:
    """Return a push like a program's: counted under the server's mutex, it may wait at the gate."""

    def push(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        before = _noted(header[Request.WORKER])
        lock = tf.raw_ops.MutexLock(mutex=tf.raw_ops.MutexV2(shared_name="mutex"))
        with tf.control_dependencies([lock, before]):
            under = tf.cond(
                payload[0] == LONG,
                lambda: tf.raw_ops.PyFunc(input=[], token="test_work", Tout=[tf.int64])[0],
                lambda: tf.constant(0, tf.int64),
            )
        reply = _kernel(header, under)
        with tf.control_dependencies([reply]):
            noted = [_noted(header[Request.WORKER]) for _ in range(3)]
        with tf.control_dependencies(noted):
            tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
            passed = tf.constant(0, tf.int64)
            if has_gate:
                passed = tf.cond(payload[0] == WAITS, _wait, lambda: tf.constant(0, tf.int64))
        with tf.control_dependencies([passed]):
            return [tf.identity(reply), ids, payload]

    return push


def _wait() -> tf.Tensor:
    def look_again(_: tf.Tensor) -> tf.Tensor:
        (token,) = tf.raw_ops.QueueDequeueV2(handle=_gate(), component_types=[tf.int64])
        return tf.ensure_shape(token, [])

    return tf.while_loop(lambda n: n > 0, look_again, [tf.constant(1, tf.int64)])[0]


def _release(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
    """Release the request that has waited longest."""
    token = tf.constant(0, tf.int64)
    with tf.control_dependencies([tf.raw_ops.QueueEnqueueV2(handle=_gate(), components=[token])]):
        return [tf.identity(header[Request.TICKET :][:REPLY_FIELDS]), ids, payload]


def _look_up(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
    """A look-up: a push that passes, with another reply."""
    reply, ids, payload = _push(has_gate=False)(header, ids, payload)
    return [reply, ids, payload + 1]


def _work() -> np.int64:
    """Work under the mutex until the test ends it."""
    _begun.set()
    assert _done.wait(60)
    return np.int64(0)


@pytest.fixture(params=["plain", pytest.param("tls", marks=[needs_openssl, pytest.mark.repeats])])
def encryption(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Encryption:
    is_tls = request.param == "tls"
    return made_tls(tmp_path_factory.mktemp("tls") / "job") if is_tls else Plain()


def _served(encryption: Encryption, *, has_gate: bool) -> Any:
    register_named_function("test_note_thread", _note)
    register_named_function("test_work", _work)
    _threads.clear()
    _begun.clear()
    _done.clear()
    functions = {
        Entry(Kind.JOIN, 0, 8, 8): _release,
        Entry(Kind.PUSH, 0, 8, 8): _push(has_gate=has_gate),
        Entry(Kind.LOOK_UP, 0, 8, 8): _look_up,
    }
    return served(functions, encryption, tcp=encryption != Plain())


@pytest.fixture
def server(encryption: Encryption) -> Iterator[ServedFunctions]:
    """Its pushes never wait for others, but at the mutex."""
    with _served(encryption, has_gate=False) as server:
        yield server


@pytest.fixture
def gated(encryption: Encryption) -> Iterator[ServedFunctions]:
    """Its pushes may have to wait at a gate."""
    with _served(encryption, has_gate=True) as server:
        yield server


def _send(server: ServedFunctions, connection: Connection, content: int, **options: Any) -> None:
    payload = tf.fill([8], tf.constant(content, tf.uint8))
    call = server.call(options.pop("kind", Kind.PUSH), payload, **options)
    connection.send(*(tensor.numpy() for tensor in call.tensors))


def _wait_until_counted(pushes: int) -> None:
    while len(_threads) < 4 * pushes:
        time.sleep(0.01)


def _end(server: ServedFunctions, connections: list[Connection]) -> None:
    for connection in connections:
        connection.close()
    while server.threads:
        time.sleep(0.01)


def test_a_push_runs_on_the_thread_that_begins_it(server: ServedFunctions) -> None:
    """So do the operations after the mutex and a kernel, which TensorFlow could move to others."""
    connection = server.connect()
    for worker in range(20):
        _send(server, connection, PASSES, worker=worker % 3, ticket=worker)
        assert connection.receive(LIMITS).header[0] == worker
    _end(server, [connection])
    for push in range(20):
        assert len(set(_threads[4 * push : 4 * push + 4])) == 1


def test_each_request_of_a_step_has_its_own_answer_on_one_thread(server: ServedFunctions) -> None:
    connection = server.connect()
    for number in range(12):
        kind = Kind.LOOK_UP if number % 3 else Kind.PUSH
        _send(server, connection, PASSES, kind=kind, ticket=number)
        reply = connection.receive(LIMITS)
        assert reply.header[0] == number
        assert reply.payload.tolist() == [PASSES + (kind == Kind.LOOK_UP)] * 8
    _end(server, [connection])
    for request in range(12):
        assert len(set(_threads[4 * request : 4 * request + 4])) == 1


def test_pushes_wait_for_the_mutex_on_their_own_threads(server: ServedFunctions) -> None:
    """All connections but two may wait so: other requests get replies meanwhile."""
    working = server.connect()
    _send(server, working, LONG)
    assert _begun.wait(60)
    waiting = [server.connect() for _ in range(CONNECTIONS - 2)]
    for number, connection in enumerate(waiting):
        _send(server, connection, PASSES, ticket=number)
    other = server.connect()
    for _ in range(10):
        _send(server, other, PASSES, kind=Kind.JOIN)
        other.receive(LIMITS)
    assert len(_threads) <= 1 + len(waiting)  # no push has passed the mutex
    _done.set()
    working.receive(LIMITS)
    for number, connection in enumerate(waiting):
        assert connection.receive(LIMITS).header[0] == number
    _end(server, [*waiting, working, other])


def test_a_worker_that_dies_waiting_for_the_mutex_is_counted_once(server: ServedFunctions) -> None:
    """Its push has arrived whole: it counts, and its loop ends."""
    working, dying, other = (server.connect() for _ in range(3))
    _send(server, working, LONG, worker=0)
    assert _begun.wait(60)
    _send(server, dying, PASSES, worker=1)
    dying.close()
    _done.set()
    working.receive(LIMITS)
    while len(server.threads) > 2:
        time.sleep(0.01)
    assert [worker for worker, _ in _threads].count(1) == 4
    _send(server, other, PASSES, worker=2)
    other.receive(LIMITS)
    _end(server, [working, other])


def test_the_end_of_the_job_ends_who_waits_for_the_mutex(
    server: ServedFunctions, caplog: pytest.LogCaptureFixture
) -> None:
    working, *waiting = [server.connect() for _ in range(4)]
    _send(server, working, LONG)
    assert _begun.wait(60)
    for connection in waiting:
        _send(server, connection, PASSES, worker=1)
    ending = threading.Thread(target=server.end_job)
    ending.start()
    for connection in waiting:
        with pytest.raises(ConnectionLost):
            connection.receive(LIMITS)
    while len(server.threads) > 1:  # the thread that works cannot be told to end
        time.sleep(0.01)
    _done.set()
    ending.join()
    _end(server, [working, *waiting])
    assert caplog.messages == []


def test_who_waits_at_the_gate_holds_up_nobody(gated: ServedFunctions) -> None:
    """All connections but one may wait there: others push on, and the gate releases in turn."""
    waiting = [gated.connect() for _ in range(CONNECTIONS - 1)]
    for number, connection in enumerate(waiting):
        _send(gated, connection, WAITS, ticket=number)
    _wait_until_counted(len(waiting))
    passing = gated.connect()
    for _ in range(10):
        _send(gated, passing, PASSES)
        passing.receive(LIMITS)
    for _ in waiting:
        _send(gated, passing, PASSES, kind=Kind.JOIN)
        passing.receive(LIMITS)
    for number, connection in enumerate(waiting):
        assert connection.receive(LIMITS).header[0] == number
    _end(gated, [*waiting, passing])


def test_the_loop_of_a_worker_that_dies_at_the_gate_ends_once_it_is_released(
    gated: ServedFunctions,
) -> None:
    dying, other = gated.connect(), gated.connect()
    _send(gated, dying, WAITS)
    _wait_until_counted(1)
    dying.close()
    for kind in (Kind.PUSH, Kind.JOIN):
        _send(gated, other, PASSES, kind=kind)
        other.receive(LIMITS)
    _end(gated, [other])


def test_the_end_of_the_job_ends_who_waits_at_the_gate(
    gated: ServedFunctions, caplog: pytest.LogCaptureFixture
) -> None:
    """No thread is left waiting for a gate that no request opens any more."""
    waiting = [gated.connect() for _ in range(3)]
    for connection in waiting:
        _send(gated, connection, WAITS)
    _wait_until_counted(len(waiting))
    gated.end_job()
    for connection in waiting:
        with pytest.raises(ConnectionLost):
            connection.receive(LIMITS)
    _end(gated, waiting)
    assert caplog.messages == []
    gated.open()  # another job, or the same again, is served as ever
    again = gated.connect()
    _send(gated, again, PASSES, ticket=4)
    assert again.receive(LIMITS).header[0] == 4
    _end(gated, [again])
