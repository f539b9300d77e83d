"""The requests of a worker to servers, and the reading of their replies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.messages import raises
from tfps.consistency.ledger import NO_TICKET, Status
from tfps.optimizers.optimizer_call import OptimizerCall
from tfps.runtime.message.payload import Body, decode_values, encode_push
from tfps.runtime.message.request_header import NOT_MEASURED, SLOTS, build_request_header
from tfps.runtime.message.wire import get_gradient_name
from tfps.runtime.program.devices import Devices
from tfps.runtime.program.program import Program
from tfps.runtime.server.half import ServerHalf
from tfps.runtime.worker.exchange import (
    ServerReplies,
    build_requests,
    get_field_by_server,
    get_payloads,
)
from tfps.runtime.worker.step import Step
from tfps.transport.carrier import Message, ServerCall
from tfps.transport.layout import Layout
from tfps.transport.message import PROTOCOL, Kind, Reply, Request
from tfps.transport.packing import pack, unpack


class Half(ServerHalf):
    """Functions on a server, as far as a request is made of them."""

    def __init__(self, plan_id: int) -> None:
        self.job_id, self.plan_id = 7, plan_id

    def call(self, kind: Kind, message: Message, *, call_number: int = 0) -> ServerCall:
        return ServerCall(f"plan {self.plan_id}", (kind, call_number), message, 0)


def _fields(header: tf.Tensor) -> dict[Request, int]:
    return {field: int(header[field]) for field in Request}


def test_a_header_says_nothing_of_what_is_left_out() -> None:
    asked = {Request.JOB: 7, Request.PLAN: 9, Request.CALL: SLOTS}
    fields = _fields(build_request_header(Kind.PULL, asked))
    said = {
        Request.PROTOCOL: PROTOCOL,
        Request.JOB: 7,
        Request.PLAN: 9,
        Request.KIND: Kind.PULL,
        Request.CALL: SLOTS,
        Request.CLOSED_STEPS: 1,
        Request.ACKED_TICKET: NO_TICKET,
    }
    durations = {field: NOT_MEASURED for field in Request if field.name.endswith("MICROSECONDS")}
    assert fields == {**dict.fromkeys(Request, 0), **said, **durations}


def test_a_header_says_who_asks_and_what_is_told() -> None:
    caller = {Request.WORKER: tf.constant(1, tf.int64), Request.INCARNATION: 4, Request.TICKET: 13}
    step_fields = {Request.CLOCK: 9, Request.EXAMPLES: tf.constant(32, tf.int32)}
    fields = _fields(
        build_request_header(Kind.PUSH, {**caller, **step_fields, Request.BASE_VERSION: 5})
    )
    asked = (Request.WORKER, Request.INCARNATION, Request.TICKET, Request.BASE_VERSION)
    assert [fields[field] for field in asked] == [1, 4, 13, 5]
    assert (fields[Request.CLOCK], fields[Request.EXAMPLES]) == (9, 32)


def test_all_servers_are_asked_for_nothing_more_than_a_kind() -> None:
    calls = build_requests([Half(1), Half(2)], Kind.PULL, call_number=SLOTS)
    assert [calls[p].function for p in (0, 1)] == [(Kind.PULL, SLOTS)] * 2
    headers = [_fields(calls[p].request.header) for p in (0, 1)]
    assert [header[Request.PLAN] for header in headers] == [1, 2]
    assert [header[Request.CALL] for header in headers] == [SLOTS, SLOTS]
    assert [int(tf.size(calls[p].request.payload)) for p in (0, 1)] == [0, 0]


def test_who_has_no_body_is_not_asked() -> None:
    body = Body(tf.constant([1, 2], tf.uint8), tf.constant([5], tf.int64))
    calls = build_requests([Half(1), Half(2)], Kind.LOOK_UP, {1: body}, versions=[10, 20])
    assert list(calls) == [1]
    assert calls[1].request.payload.numpy().tolist() == [1, 2]
    assert calls[1].request.ids.numpy().tolist() == [5]
    assert _fields(calls[1].request.header)[Request.BASE_VERSION] == 20


def test_replies_are_read_in_the_order_of_servers() -> None:
    header = [tf.constant([0, version, *[0] * (len(Reply) - 2)], tf.int64) for version in (4, 6)]
    replies = {p: Message.from_tensors(header[p], tf.constant([p], tf.uint8)) for p in (1, 0)}
    assert [int(version) for version in get_field_by_server(replies, Reply.VERSION)] == [4, 6]
    assert [int(payload[0]) for payload in get_payloads(replies)] == [0, 1]


@pytest.mark.parametrize("status", Status)
def test_an_answer_is_accepted_where_all_servers_go_on_with_the_worker(status: Status) -> None:
    headers = [tf.constant([each, *[0] * (len(Reply) - 1)], tf.int64) for each in (0, status)]
    replies = dict(enumerate(map(Message.from_tensors, headers)))
    takes_part = status in (Status.OK, Status.LATE, Status.DUPLICATE)
    assert ServerReplies.from_replies(replies).accepted == (status == Status.OK)
    assert ServerReplies.from_replies(replies, worst_status=Status.DUPLICATE).accepted == takes_part


def _variable(name: str, size: int) -> Any:
    native = SimpleNamespace(shared_name=name, shape=tf.TensorShape([size]))
    return SimpleNamespace(_value=native)


def test_rows_lie_behind_what_a_push_always_has() -> None:
    wire: Any = SimpleNamespace(request=Layout.from_entries([("g", "float32", (2,))]))
    tensors = {"g": tf.constant([1.0, 2.0]), "of another server": tf.constant(0.0)}
    body = encode_push(wire, tensors)
    assert body.ids is None
    rows = Body(tf.constant([8, 9], tf.uint8), tf.constant([1, 0], tf.int64))
    longer = encode_push(wire, tensors, rows)
    assert longer.joined.ids is longer.ids is rows.ids
    payload = body.joined.payload
    assert longer.joined.payload.numpy().tolist() == [*payload.numpy().tolist(), 8, 9]
    assert unpack(wire.request, payload)["g"].numpy().tolist() == [1.0, 2.0]


def test_gradients_go_to_the_carrier_as_they_are() -> None:
    """Only a carrier that needs one vector joins them."""
    wire: Any = SimpleNamespace(
        request=Layout.from_entries([("g", "float32", (2,)), ("h", "float32", (0,))])
    )
    tensors = {"h": tf.zeros([0]), "g": tf.constant([1.0, 2.0])}
    calls = build_requests([Half(9)], Kind.PUSH, {0: encode_push(wire, tensors)})
    sent = calls[0].tensors
    assert [id(tensor) for tensor in sent[3:]] == [id(tensors["g"]), id(tensors["h"])]
    assert calls[0].request.payload.shape == [0]
    assert calls[0].joined.request.payload.shape == [wire.request.size_bytes]
    assert calls[0].joined.segments is None


@pytest.mark.parametrize("device", ["/device:CPU:0", "/device:GPU:0"])
def test_gradients_of_a_gpu_are_joined_there(device: str) -> None:
    step = RecordingStep([OptimizerCall(keras.optimizers.SGD(), ())], devices=Devices([device]))
    layout = Layout.from_entries([("g", "float32", (2,))])
    wire: Any = SimpleNamespace(request=layout, coded=(), tables=(), row_formats=())
    step.servers[0].wires = [wire]
    body = step.encode(0, {"g": tf.constant([1.0, 2.0])})[0]
    if device == "/device:CPU:0":
        assert body.segments is not None
        body = body.joined
    assert body.segments is None
    assert unpack(layout, body.payload)["g"].numpy().tolist() == [1.0, 2.0]


def test_values_come_from_whichever_server_has_them() -> None:
    layouts = [Layout.from_entries([(name, "float32", (2,))]) for name in "ab"]
    payloads = [
        pack(layout, {name: tf.fill([2], value)})
        for layout, name, value in zip(layouts, "ab", (1.0, 2.0), strict=True)
    ]
    b, missing = _variable("b", 2), _variable("c", 2)
    ((found, value),) = decode_values(layouts, payloads, [missing, b])
    assert found is b
    np.testing.assert_array_equal(value, [2.0, 2.0])


class RecordingStep(Step):
    """A step that notes the exchanges it would make."""

    def __init__(self, calls: list[OptimizerCall], *, devices: Devices | None = None) -> None:
        program = Program(
            name="p",
            step=lambda _: None,
            batch_spec=None,
            changes_variables=True,
            calls=calls,
            devices=devices or Devices(),
        )
        server: Any = SimpleNamespace(
            program=program,
            server=SimpleNamespace(device=""),
            runtime=None,
            wires=[],
            has_function=lambda _: False,
        )
        super().__init__([server], carrier=None)  # type: ignore[arg-type]
        self.exchanged: list[tuple[int, list[str]]] = []

    def compute_push_key(self, call_number: int) -> tf.Tensor:
        return tf.constant(call_number, tf.int64)

    def exchange(self, call_number: int, tensors: Any) -> None:
        self.exchanged.append((call_number, list(tensors)))


def test_optimizer_calls_are_exchanges_in_the_order_of_the_first_trace() -> None:
    a, b = _variable("a", 1), _variable("b", 1)
    first, second = keras.optimizers.SGD(), keras.optimizers.SGD()
    step = RecordingStep([OptimizerCall(first, (a,)), OptimizerCall(second, (b,))])
    gradient = tf.constant([1.0])
    step.apply(first, [gradient, None], [a, b])
    step.apply(second, [gradient], [b])
    assert step.exchanged == [(0, [get_gradient_name(a)]), (1, [get_gradient_name(b)])]
    with raises(RuntimeError, "optimizer calls", received="another order", remedy="the same"):
        step.apply(second, [gradient], [b])  # once more than there were


def test_an_optimizer_call_on_other_variables_is_refused() -> None:
    a, b = _variable("a", 1), _variable("b", 1)
    optimizer = keras.optimizers.SGD()
    step = RecordingStep([OptimizerCall(optimizer, (a,))])
    with raises(RuntimeError, "optimizer calls", received="on other variables", remedy="the same"):
        step.apply(optimizer, [tf.constant([1.0])], [b])
    assert step.exchanged == []
