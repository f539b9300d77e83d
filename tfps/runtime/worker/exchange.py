"""Requests of a worker to a program's functions on all servers, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET, Status
from tfps.runtime.message.duration import microseconds, timestamp_after
from tfps.runtime.message.payload import Body
from tfps.runtime.message.request_header import NOT_MEASURED, NOTHING_TOLD, Fields, request_header
from tfps.runtime.server.half import ServerHalf
from tfps.transport.carrier import Carrier, Message, ServerCall
from tfps.transport.message import Kind, Reply, Request


class Answer(NamedTuple):
    """What all servers have replied to requests of one kind."""

    payloads: Sequence[tf.Tensor]  # by server: parameters
    versions: Sequence[tf.Tensor]  # that these were read at, or positions where there are rounds
    accepted: tf.Tensor  # whether all servers know the worker, and take what it has sent
    other_writes: Sequence[tf.Tensor]  # by server, that these have seen; see `Reply`
    next_ticket: Any = NO_TICKET  # of the ticket server
    next_batches: Any = 1  # how many tickets that one stands for
    microseconds: Any = NOT_MEASURED  # from the requests to the last reply
    decode_microseconds: Any = NOT_MEASURED  # that codecs took for the payloads

    @classmethod
    def of(cls, replies: Mapping[int, Message], *, worst: Status = Status.OK) -> Answer:
        """What replies bring; a worker goes on only where all statuses are so good."""
        statuses = tf.stack(column_of(replies, Reply.STATUS))
        accepted = tf.reduce_all(statuses <= worst)
        versions, writes = (column_of(replies, f) for f in (Reply.VERSION, Reply.OTHER_WRITES))
        return cls(payloads_of(replies), versions, accepted, writes)


def requests(
    servers: Sequence[ServerHalf],
    kind: Kind,
    bodies: Mapping[int, Body] | None = None,
    *,
    call_number: int = 0,
    versions: Sequence[Any] = (),
    fields: Fields = NOTHING_TOLD,
) -> dict[int, ServerCall]:
    """One request to each server that there is a body for.

    Args:
        servers: the program's functions on each server.
        kind: of the requests.
        bodies: by server; None: all are asked, and nothing is sent.
        call_number: which optimizer call, or table.
        versions: by server, that bodies were computed from; none where that does not matter.
        fields: further ones of the headers.
    """
    if bodies is None:
        bodies = dict.fromkeys(range(len(servers)), Body(tf.zeros([0], tf.uint8)))
    calls = {}
    for p, (payload, ids, segments) in bodies.items():
        own = {
            Request.JOB: servers[p].job_id,
            Request.PLAN: servers[p].plan_id,
            Request.CALL: call_number,
            Request.BASE_VERSION: versions[p] if versions else 0,
        }
        header = request_header(kind, {**own, **fields})
        message = Message.of(header, payload) if ids is None else Message(header, ids, payload)
        call = servers[p].call(kind, message, call_number=call_number)
        calls[p] = call._replace(segments=segments)
    return calls


def payloads_of(replies: Mapping[int, Message]) -> list[tf.Tensor]:
    """The payloads of replies, in the order of the servers."""
    return [replies[p].payload for p in sorted(replies)]


def column_of(replies: Mapping[int, Message], field: Reply) -> list[tf.Tensor]:
    """A field of the replies' headers, in the order of the servers."""
    return [replies[p].header[field] for p in sorted(replies)]


def timed_exchange(
    carrier: Carrier, calls: Mapping[int, ServerCall]
) -> tuple[dict[int, Message], tf.Tensor]:
    """Bring requests to servers; answers the replies, and the microseconds until the last."""
    begin = timestamp_after([tensor for call in calls.values() for tensor in call.tensors])
    sent = {}
    with tf.control_dependencies([begin]):
        for server, call in calls.items():
            request = call.request._replace(header=tf.identity(call.request.header))
            sent[server] = call._replace(request=request)
    replies = carrier.exchange(sent)
    return replies, microseconds(begin, until=[reply.header for reply in replies.values()])
