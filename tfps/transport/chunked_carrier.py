"""Send messages that are too large for a carrier in parts, and others unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfps.bridge.variables.resource_holder import ResourceHolder
from tfps.transport.carrier import Carrier, Message, ServerCall
from tfps.transport.chunk import chunk_bytes_from_environment, chunks
from tfps.transport.message import Reply
from tfps.transport.staging import Staging

NO_BYTES = 0


class ChunkedCarrier:
    """Sends large requests, and fetches large replies, one part at a time.

    TensorFlow's RPC fails above 2 GiB. If both payloads of a call fit into a chunk, the call goes
    to the inner carrier unchanged; this is decided when the exchange is traced. Otherwise the parts
    of the request are staged on the server, the function runs there on the whole request, and the
    parts of its reply are fetched. Only one part per server is in flight at a time; calls to
    different servers run in parallel.

    A payload whose size is not known during tracing is never split.

    Args:
        inner: the carrier of small messages.
        contents: device of a server -> its record of resources.
        workers: the number of workers.
        chunk_bytes: the largest part of a payload to send at once; None reads the environment.
    """

    def __init__(
        self,
        inner: Carrier,
        *,
        contents: Mapping[str, ResourceHolder],
        workers: int,
        chunk_bytes: int | None = None,
    ) -> None:
        self._inner, self._contents, self._workers = inner, contents, workers
        self._chunk_bytes = chunk_bytes or chunk_bytes_from_environment()
        self._stagings: dict[str, Staging] = {}
        self.name = inner.name

    def exchange(self, calls: Mapping[int, ServerCall]) -> dict[int, Message]:
        calls = {server: call.joined for server, call in calls.items()}
        small = {s: call for s, call in calls.items() if not self._is_large(call)}
        replies = self._inner.exchange(small) if small else {}
        return {
            s: replies[s] if s in small else self._exchange_in_parts(c) for s, c in calls.items()
        }

    def _is_large(self, call: ServerCall) -> bool:
        return max(_size_bytes(call), call.reply_bytes) > self._chunk_bytes

    def _exchange_in_parts(self, call: ServerCall) -> Message:
        if call.device not in self._stagings:
            contents = self._contents[call.device]
            self._stagings[call.device] = Staging(contents, workers=self._workers)
        staging, header = self._stagings[call.device], call.request.header
        # Seeds of 0 draw from the machine's entropy: two workers never use the same stamp, even if
        # the user has fixed all seeds.
        stamp = tf.raw_ops.RandomUniformInt(
            shape=tf.constant([1], tf.int32),
            minval=tf.constant(1, tf.int64),
            maxval=tf.constant(tf.int64.max, tf.int64),
        )
        nothing = tf.zeros([NO_BYTES], tf.uint8)

        def call_server(
            function: Any, ids: Any, *, payload: Any = nothing, after: Message | None = None
        ) -> Message:
            with tf.control_dependencies([] if after is None else [after.header]):
                numbers = tf.concat([stamp, tf.convert_to_tensor(ids, tf.int64)], 0)
                request = Message(header, numbers, payload)
                inner_call = ServerCall(call.device, function, request, NO_BYTES)
                return self._inner.exchange({0: inner_call})[0]

        payload, request_bytes = call.request.payload, NO_BYTES
        last = call_server(staging.open, [])
        if _size_bytes(call) > self._chunk_bytes:
            payload, request_bytes = nothing, _size_bytes(call)
            for begin, size in chunks(request_bytes, chunk_bytes=self._chunk_bytes):
                part = tf.slice(call.request.payload, _place(begin), _place(size))
                last = call_server(staging.put, [begin, request_bytes], payload=part, after=last)
        keeps_reply = call.reply_bytes > self._chunk_bytes
        function = staging.call(call.function, request_bytes=request_bytes, keeps_reply=keeps_reply)
        reply = last = call_server(function, call.request.ids, payload=payload, after=last)
        reply_payload = reply.payload
        if keeps_reply:
            # Filled with a value from this reply, since constants would be created before the
            # request is sent, or once for all steps and copied in each.
            status = tf.cast(reply.header[Reply.STATUS], tf.uint8)
            reply_payload = tf.fill(_place(call.reply_bytes), status)
            for begin, size in chunks(call.reply_bytes, chunk_bytes=self._chunk_bytes):
                last = call_server(staging.fetch, [begin, size], after=last)
                # In place, since a concatenation would need the memory of the reply twice.
                reply_payload = tf.raw_ops.TensorStridedSliceUpdate(
                    input=reply_payload,
                    begin=_place(begin),
                    end=_place(begin + size),
                    strides=_place(1),
                    value=last.payload,
                )
        closed = call_server(staging.close, [], after=last)
        with tf.control_dependencies([closed.header]):
            return Message(tf.identity(reply.header), reply.ids, reply_payload)


def _size_bytes(call: ServerCall) -> int:
    return call.request.payload.shape[0] or NO_BYTES


def _place(byte: int) -> tf.Tensor:
    return tf.constant([byte], tf.int64)
