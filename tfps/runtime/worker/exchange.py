"""Requests of a worker to a program's functions on all servers, and the replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from tfps.runtime.message.payload import Body
from tfps.runtime.message.request_header import NOBODY, NOTHING_TOLD, Caller, request_header
from tfps.runtime.server.half import ServerHalf
from tfps.transport.carrier import Carrier, Message, ServerCall
from tfps.transport.message import Kind, Reply, Request


class Ask(Protocol):
    """Asks all servers for something on behalf of a step."""

    def __call__(
        self,
        kind: Kind,
        bodies: Mapping[int, Body] | None = None,
        *,
        call_number: int = 0,
        versions: Sequence[Any] | None = None,
    ) -> dict[int, Message]:
        """The replies, by server; see `requests`.

        Args:
            kind: of the requests.
            bodies: by server.
            call_number: which optimizer call, or table.
            versions: by server; None: those that the step was computed from.
        """


class Origin(NamedTuple):
    """What requests say of where they come from.

    Args:
        versions: by server, that they were computed from, or the round that they ask for; none
            where that does not matter.
        caller: who makes them.
        told: further fields of their headers.
    """

    versions: Sequence[Any] = ()
    caller: Caller = NOBODY
    told: Mapping[Request, Any] = NOTHING_TOLD


FROM_NOBODY = Origin()


def requests(
    servers: Sequence[ServerHalf],
    kind: Kind,
    bodies: Mapping[int, Body] | None = None,
    *,
    call_number: int = 0,
    origin: Origin = FROM_NOBODY,
) -> dict[int, ServerCall]:
    """One request to each server that there is a body for.

    Args:
        servers: the program's functions on each server.
        kind: of the requests.
        bodies: by server; None: all are asked, and nothing is sent.
        call_number: which optimizer call, or table.
        origin: of the requests.
    """
    if bodies is None:
        bodies = dict.fromkeys(range(len(servers)), Body(tf.zeros([0], tf.uint8)))
    calls = {}
    for p, (payload, ids) in bodies.items():
        header = request_header(
            kind,
            job_id=servers[p].job_id,
            plan_id=servers[p].plan_id,
            call_number=call_number,
            version=origin.versions[p] if origin.versions else 0,
            caller=origin.caller,
            told=origin.told,
        )
        message = Message.of(header, payload) if ids is None else Message(header, ids, payload)
        calls[p] = servers[p].call(kind, message, call_number=call_number)
    return calls


def payloads_of(replies: Mapping[int, Message]) -> list[tf.Tensor]:
    """The payloads of replies, in the order of the servers."""
    return [replies[p].payload for p in sorted(replies)]


def column_of(replies: Mapping[int, Message], field: Reply) -> list[tf.Tensor]:
    """A field of the replies' headers, in the order of the servers."""
    return [replies[p].header[field] for p in sorted(replies)]


def timestamp_after(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """The time when all of them are there."""
    with tf.control_dependencies(list(tensors)):
        return tf.timestamp()


def microseconds(begin: tf.Tensor, *, until: Sequence[tf.Tensor]) -> tf.Tensor:
    """From a timestamp until tensors are there, int64."""
    return tf.cast((timestamp_after(until) - begin) * 1e6, tf.int64)


def timed_exchange(
    carrier: Carrier, calls: Mapping[int, ServerCall]
) -> tuple[dict[int, Message], tf.Tensor]:
    """Bring requests to servers; answers the replies, and the microseconds until the last of them.

    Args:
        carrier: brings them.
        calls: by server.
    """
    begin = timestamp_after([tensor for call in calls.values() for tensor in call.request])
    sent = {}
    with tf.control_dependencies([begin]):
        for server, call in calls.items():
            request = call.request._replace(header=tf.identity(call.request.header))
            sent[server] = call._replace(request=request)
    replies = carrier.exchange(sent)
    return replies, microseconds(begin, until=[reply.header for reply in replies.values()])
