"""Messages above the limit of a chunk, here 1000 bytes, arrive as if there were none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.bridge.functions.server_function import trace_server_function
from tfps.consistency.ledger import Status
from tfps.launch import LocalCluster
from tfps.runtime.coordinator.server_contents import ServerContents
from tfps.transport.carrier import GrpcCarrier, Message, ServerCall
from tfps.transport.chunk import CHUNK_BYTES_VARIABLE
from tfps.transport.chunked_carrier import ChunkedCarrier
from tfps.transport.message import REQUEST_FIELDS, Reply, Request
from tfps.transport.staging import Staging

CHUNK = 1000
CHIEF = "/job:chief/replica:0/task:0/device:CPU:0"
SERVER = "/job:ps/replica:0/task:0/device:CPU:0"
WORKERS = [f"/job:worker/replica:0/task:{worker}/device:CPU:0" for worker in range(2)]
SIZES = [
    (0, 0), (0, 2500), (2500, 0), (999, 1000), (1000, 1000), (1001, 999), (999, 1001),
    (2000, 2000), (3 * CHUNK, 1), (12_345, 54_321),
]  # fmt: skip
RANDOM = np.random.default_rng(0)

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def chunked_cluster(tfps_cluster_factory: Callable[..., LocalCluster]) -> Iterator[LocalCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CHUNK_BYTES_VARIABLE, str(CHUNK))
        yield tfps_cluster_factory(environment={CHUNK_BYTES_VARIABLE: str(CHUNK)})


# The replies themselves are brought by `grpc` in both cases; what differs is which side trains.
@pytest.fixture(scope="module", params=["grpc", "direct"])
def strategy(
    chunked_cluster: LocalCluster, request: pytest.FixtureRequest
) -> Iterator[tfps.ParameterServerStrategy]:
    made = tfps.ParameterServerStrategy(chunked_cluster.cluster_resolver, transport=request.param)
    yield made
    made.close()


@pytest.fixture
def carrier(strategy: tfps.ParameterServerStrategy) -> Iterator[ChunkedCarrier]:
    contents = ServerContents(device=SERVER, container="chunks")
    yield ChunkedCarrier(GrpcCarrier(), contents={SERVER: contents}, workers=2, chunk_bytes=CHUNK)
    contents.free(contents.records)


def _echo(reply_bytes: int) -> Any:
    """The reply's bytes follow from the sum of all bytes of the request, and from their order."""

    def serve(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        numbers = tf.cast(payload, tf.int64)
        checked = tf.reduce_sum(numbers * tf.range(1, tf.size(numbers, tf.int64) + 1))
        fields = tf.stack([tf.constant(0, tf.int64), checked, header[Request.TICKET], -1])
        pattern = tf.range(checked, checked + reply_bytes) % 251
        return [fields, tf.reverse(ids, [0]), tf.cast(pattern, tf.uint8)]

    return trace_server_function(serve, device=SERVER, signature=Message.signature(REQUEST_FIELDS))


def _header(*, worker: int = 0, incarnation: int = 0, ticket: int = 0) -> tf.Tensor:
    values = {Request.WORKER: worker, Request.INCARNATION: incarnation, Request.TICKET: ticket}
    return tf.constant([values.get(field, 0) for field in Request], tf.int64)


def _expected(payload: np.ndarray, reply_bytes: int) -> np.ndarray:
    checked = int((payload.astype(np.int64) * np.arange(1, payload.size + 1)).sum())
    return ((checked + np.arange(reply_bytes)) % 251).astype(np.uint8)


def _ask(carrier: Any, function: Any, header: tf.Tensor, payload: Any, reply_bytes: int) -> Message:
    @tf.function(autograph=False)
    def ask(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> Message:
        request = Message(header, ids, payload)
        return carrier.exchange({0: ServerCall(SERVER, function, request, reply_bytes)})[0]

    return ask(header, tf.constant([7, 8, 9], tf.int64), tf.constant(payload))


@pytest.mark.parametrize(("request_bytes", "reply_bytes"), SIZES)
def test_replies_are_those_of_the_inner_carrier(
    carrier: ChunkedCarrier, request_bytes: int, reply_bytes: int
) -> None:
    function = _echo(reply_bytes)
    payload = RANDOM.integers(0, 256, request_bytes).astype(np.uint8)
    with tf.device(CHIEF):
        whole = _ask(GrpcCarrier(), function, _header(ticket=3), payload, reply_bytes)
        for incarnation in (0, 1, 1):
            header = _header(ticket=3, incarnation=incarnation, worker=1)
            found = _ask(carrier, function, header, payload, reply_bytes)
            for part, expected in zip(found, whole, strict=True):
                np.testing.assert_array_equal(part, expected)
    np.testing.assert_array_equal(whole.payload, _expected(payload, reply_bytes))


def test_small_messages_cost_nothing_more(carrier: ChunkedCarrier) -> None:
    function = _echo(CHUNK)

    def operations(carrier: Any) -> list[str]:
        @tf.function(autograph=False)
        def ask(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> Message:
            request = Message(header, ids, payload)
            return carrier.exchange({0: ServerCall(SERVER, function, request, CHUNK)})[0]

        arguments = _header(), tf.zeros([0], tf.int64), tf.zeros([CHUNK], tf.uint8)
        graph = ask.get_concrete_function(*arguments).graph
        return [operation.type for operation in graph.get_operations()]

    assert operations(carrier) == operations(GrpcCarrier())


def test_parts_of_several_senders_do_not_meet(carrier: ChunkedCarrier) -> None:
    """Senders without a worker, from two workers and the coordinator, all at once."""
    function = _echo(3500)

    def run(place: str, seed: int) -> None:
        for payload in np.random.default_rng(seed).integers(0, 256, (6, 2500)).astype(np.uint8):
            with tf.device(place):
                found = _ask(carrier, function, _header(), payload, 3500)
            np.testing.assert_array_equal(found.payload, _expected(payload, 3500))

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(run, p, k) for k, p in enumerate([CHIEF, *WORKERS])]:
            done.result()


def test_a_dead_worker_leaves_nothing_behind(strategy: tfps.ParameterServerStrategy) -> None:
    """It ended after some of its parts; its successor's exchange is whole, its own is refused."""
    contents = ServerContents(device=SERVER, container="dead_worker")
    staging = Staging(contents, workers=2)
    inner = GrpcCarrier()
    call = staging.call(_echo(100), request_bytes=2000, keeps_reply=True)

    def ask(function: Any, *ids: int, incarnation: int, payload: Any = ()) -> Message:
        header = _header(worker=1, incarnation=incarnation)
        part = tf.constant(np.array(payload, np.uint8))
        request = Message(header, tf.constant(ids, tf.int64), part)
        with tf.device(CHIEF):
            return inner.exchange({0: ServerCall(SERVER, function, request, 0)})[0]

    def status(message: Message) -> int:
        return int(message.header[Reply.STATUS])

    old, new, ones, twos = 11, 22, np.ones(1000), np.full(1000, 2)
    assert status(ask(staging.open, old, incarnation=1)) == Status.OK
    assert status(ask(staging.put, old, 0, 2000, incarnation=1, payload=ones)) == Status.OK
    assert status(ask(staging.open, new, incarnation=2)) == Status.OK
    assert status(ask(staging.put, new, 0, 2000, incarnation=2, payload=twos)) == Status.OK
    refused = ask(staging.put, old, 1000, 2000, incarnation=1, payload=ones)
    assert status(refused) == Status.EVICTED
    assert status(ask(staging.open, old, incarnation=1)) == Status.EVICTED
    twice = ask(staging.put, new, 0, 2000, incarnation=2, payload=ones)
    assert status(twice) == Status.EVICTED
    assert status(ask(staging.put, new, 1000, 2000, incarnation=2, payload=twos)) == Status.OK
    assert status(ask(call, old, incarnation=1)) == Status.EVICTED
    assert status(ask(call, new, 5, incarnation=2)) == Status.OK
    expected = _expected(np.full(2000, 2, np.uint8), 100)
    part = ask(staging.fetch, new, 0, 100, incarnation=2).payload
    np.testing.assert_array_equal(part, expected)
    nothing = ask(staging.fetch, old, 0, 100, incarnation=1)
    assert status(nothing) == Status.EVICTED
    assert not nothing.payload.numpy().any()
    assert status(ask(staging.close, old, incarnation=1)) == Status.EVICTED
    assert status(ask(staging.close, new, incarnation=2)) == Status.OK
    contents.free(contents.records)


def _model() -> keras.Model:
    keras.utils.set_random_seed(1)
    layers = [keras.Input((33,)), keras.layers.Dense(17, activation="tanh"), keras.layers.Dense(3)]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    return model


def test_fit_in_chunks(strategy: tfps.ParameterServerStrategy) -> None:
    x, y = RANDOM.normal(size=(64, 33)).astype("float32"), RANDOM.integers(0, 3, 64)
    with strategy.scope():
        model = _model()
    with tf.device(CHIEF):
        local = _model()
        begin = [weight.copy() for weight in local.get_weights()]
    model.set_weights(begin)
    for found, expected in zip(model.get_weights(), begin, strict=True):
        np.testing.assert_array_equal(found, expected)
    history = model.fit(x, y, batch_size=64, epochs=3, shuffle=False, verbose=0)
    with tf.device(CHIEF):
        reference = local.fit(x, y, batch_size=64, epochs=3, shuffle=False, verbose=0)
    assert history.history["loss"] == pytest.approx(reference.history["loss"], abs=1e-5)
    for found, expected in zip(model.get_weights(), local.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    model.fit(x, y, batch_size=4, epochs=2, verbose=0)
    assert int(model.optimizer.iterations) == 3 + 2 * 16
    values, _ = strategy.pull()
    kernel = model.get_weights()[0]
    assert any(np.array_equal(value, kernel) for value in values.values())
