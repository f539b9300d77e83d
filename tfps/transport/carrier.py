"""Send requests to servers and return their replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.errors import UnsupportedError
from tfps.transport.chunk import max_payload_bytes_from_environment
from tfps.transport.message import REPLY_FIELDS
from tfps.transport.packing import Segments


class Message(NamedTuple):
    """A request or a reply."""

    header: tf.Tensor  # int64 fields
    ids: tf.Tensor  # int64; the ids of rows, often none
    payload: tf.Tensor  # uint8

    @classmethod
    def signature(cls, header_fields: int) -> list[tf.TensorSpec]:
        return [
            tf.TensorSpec([header_fields], tf.int64),
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None], tf.uint8),
        ]

    @classmethod
    def from_tensors(cls, header: tf.Tensor, payload: tf.Tensor | None = None) -> Message:
        """Return a message without ids, and with an empty payload if none is given."""
        empty = tf.zeros([0], tf.uint8) if payload is None else payload
        return cls(header, tf.zeros([0], tf.int64), empty)


class ServerCall(NamedTuple):
    """A request for one server: its device, the function that it runs, and the message.

    Args:
        device: the device of the server.
        function: the function that the server runs.
        request: the message; its payload follows the segments, if there are any.
        reply_bytes: the size of the reply's payload.
        row_bytes: the largest size of rows that may follow in the reply.
        segments: the tensors at the start of the payload, not yet joined.
    """

    device: str
    function: tf.types.experimental.ConcreteFunction
    request: Message
    reply_bytes: int
    row_bytes: int = 0
    segments: Segments | None = None

    @property
    def tensors(self) -> list[tf.Tensor]:
        """All tensors to send."""
        return [*self.request, *(self.segments.tensors if self.segments else ())]

    @property
    def joined(self) -> ServerCall:
        """The call with its segments joined into the payload, for carriers that send one vector."""
        if self.segments is None:
            return self
        payload = self.segments.join_with(self.request.payload)
        return self._replace(request=self.request._replace(payload=payload), segments=None)


class Carrier(Protocol):
    """Moves requests to all servers at the same time, and returns their replies."""

    name: str

    def exchange(self, calls: Mapping[int, ServerCall]) -> dict[int, Message]:
        """Send each call to its server, all at the same time, and return the replies."""


class RemoteCallCarrier:
    """Sends one `RemoteCall` per server.

    The function has no resource handle as argument, so the placer leaves the call on the worker,
    and it is one request and one response.
    """

    name: str

    def exchange(self, calls: Mapping[int, ServerCall]) -> dict[int, Message]:
        replies = {}
        for server, call in calls.items():
            outputs = tf.raw_ops.RemoteCall(
                target=call.device,
                args=list(call.joined.request),
                Tout=[tf.int64, tf.int64, tf.uint8],
                f=call.function,
            )
            if not tf.executing_eagerly():
                private.run_independently(outputs[0].op)
                for output, spec in zip(outputs, Message.signature(REPLY_FIELDS), strict=True):
                    output.set_shape(spec.shape)
            replies[server] = Message(*outputs)
        return replies


class GrpcCarrier(RemoteCallCarrier):
    """Uses TensorFlow's own RPC, to any `tf.distribute.Server`."""

    name = "grpc"

    def exchange(self, calls: Mapping[int, ServerCall]) -> dict[int, Message]:
        limit_bytes = max_payload_bytes_from_environment()
        calls = {server: call.joined for server, call in calls.items()}
        for server, call in calls.items():
            request_bytes = call.request.payload.shape[0] or 0
            if (size_bytes := max(request_bytes, call.reply_bytes)) > limit_bytes:
                raise UnsupportedError(
                    f"ps {server}: received a message of {size_bytes} bytes, expected at most "
                    f"{limit_bytes} over grpc. Use tfps's own processes with transport='direct', "
                    "which has no limit, or divide the variables among more parameter servers."
                )
        return super().exchange(calls)


class InProcessCarrier(RemoteCallCarrier):
    """Calls functions on other devices of the same process, without RPC.

    A server function in the worker's own graph would be inlined there, and would release what it
    holds, such as a lock, only at the end of the worker's loop.
    """

    name = "in_process"
