"""Brings messages that are too large for a carrier in parts; small ones pass as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfps.bridge.resource_holder import ResourceHolder
from tfps.transport.carrier import Carrier, Message, ServerCall
from tfps.transport.chunk import chunk_bytes_from_environment, chunks
from tfps.transport.message import Reply
from tfps.transport.staging import Staging

NO_BYTES = 0


class ChunkedCarrier:
    """Sends large requests, and fetches large replies, a part at a time.

    TensorFlow's RPC fails above 2 GiB. A call of which both payloads fit into a chunk goes to the
    inner carrier as it is; that is decided when the exchange is traced. Of any other the parts of
    the request are staged on the server first, the function runs there on the whole, and the parts
    of its reply are fetched. Parts follow each other, so only one is in flight per server; servers
    are served side by side.

    A payload whose size is not known when it is traced is never split.

    Args:
        inner: the carrier of small messages.
        contents: of each server, by its device.
        workers: how many can take part.
        chunk_bytes: most bytes of a payload that go at once; None reads the environment.
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
        large = {s: c for s, c in calls.items() if self._is_large(c)}
        replies = {}
        if len(large) < len(calls):
            replies = self._inner.exchange({s: c for s, c in calls.items() if s not in large})
        for server, call in large.items():
            replies[server] = self._in_parts(call)
        return {server: replies[server] for server in calls}

    def _is_large(self, call: ServerCall) -> bool:
        return max(_size_bytes(call), call.reply_bytes) > self._chunk_bytes

    def _in_parts(self, call: ServerCall) -> Message:
        staging, header = self._staging(call.device), call.request.header
        # Seeds of 0 draw from the machine's entropy: two workers never use the same stamp, even
        # when the user fixed all seeds.
        stamp = tf.raw_ops.RandomUniformInt(
            shape=tf.constant([], tf.int32),
            minval=tf.constant(1, tf.int64),
            maxval=tf.constant(tf.int64.max, tf.int64),
        )

        def ask(function: Any, after: Message | None, ids: list[Any], payload: Any) -> Message:
            numbers = tf.stack([tf.cast(number, tf.int64) for number in [stamp, *ids]])
            with tf.control_dependencies([] if after is None else [after.header]):
                request = Message(header, numbers, payload)
                return self._brought(call.device, function, request)

        nothing, payload = tf.zeros([NO_BYTES], tf.uint8), call.request.payload
        request_bytes, keeps_reply = _size_bytes(call), call.reply_bytes > self._chunk_bytes
        stages_request = request_bytes > self._chunk_bytes
        last = ask(staging.open, None, [], nothing)
        if stages_request:
            for begin, size in chunks(request_bytes, chunk_bytes=self._chunk_bytes):
                part = _part(payload, begin, size)
                last = ask(staging.put, last, [begin, request_bytes], part)
        function = _staged(
            staging,
            call.function,
            request_bytes=request_bytes if stages_request else NO_BYTES,
            keeps_reply=keeps_reply,
        )
        with tf.control_dependencies([last.header]):
            ids = tf.concat([stamp[None], call.request.ids], 0)
            message = Message(header, ids, nothing if stages_request else payload)
            reply = last = self._brought(call.device, function, message)
        answer = reply.payload
        if keeps_reply:
            # Filled with something of this very reply: constants would be made before the request
            # goes, or once for all steps and copied in each.
            whole = tf.constant([call.reply_bytes], tf.int64)
            answer = tf.fill(whole, tf.cast(reply.header[Reply.STATUS], tf.uint8))
            for begin, size in chunks(call.reply_bytes, chunk_bytes=self._chunk_bytes):
                last = ask(staging.fetch, last, [begin, size], nothing)
                # In place, where a concatenation would hold the reply twice.
                answer = tf.raw_ops.TensorStridedSliceUpdate(
                    input=answer,
                    begin=tf.constant([begin], tf.int64),
                    end=tf.constant([begin + size], tf.int64),
                    strides=tf.constant([1], tf.int64),
                    value=last.payload,
                )
        closed = ask(staging.close, last, [], nothing)
        with tf.control_dependencies([closed.header]):
            return Message(tf.identity(reply.header), reply.ids, answer)

    def _brought(self, device: str, function: Any, request: Message) -> Message:
        return self._inner.exchange({0: ServerCall(device, function, request, NO_BYTES)})[0]

    def _staging(self, device: str) -> Staging:
        if device not in self._stagings:
            self._stagings[device] = Staging(self._contents[device], workers=self._workers)
        return self._stagings[device]


def _size_bytes(call: ServerCall) -> int:
    return call.request.payload.shape[0] or 0


def _part(payload: tf.Tensor, begin: int, size: int) -> tf.Tensor:
    return tf.slice(payload, tf.constant([begin], tf.int64), tf.constant([size], tf.int64))


def _staged(staging: Staging, function: Any, *, request_bytes: int, keeps_reply: bool) -> Any:
    """The function on staged payloads; traced once, and forgotten with the function."""
    known = function.__dict__.setdefault("_tfps_staged", {})
    key = (staging, request_bytes, keeps_reply)
    if key not in known:
        known[key] = staging.call(function, request_bytes=request_bytes, keeps_reply=keeps_reply)
    return known[key]
