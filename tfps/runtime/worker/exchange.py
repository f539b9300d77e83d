"""Builds a worker's requests to a program's functions on all servers, and reads the replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET, Status
from tfps.runtime.message.duration import microseconds_between, take_timestamp_after
from tfps.runtime.message.payload import Body
from tfps.runtime.message.request_header import (
    NO_FIELDS,
    NOT_MEASURED,
    Fields,
    build_request_header,
)
from tfps.runtime.server.half import ServerHalf
from tfps.transport.carrier import Carrier, Message, ServerCall
from tfps.transport.message import Kind, Reply, Request


class ServerReplies(NamedTuple):
    """The replies of all servers to requests of one kind."""

    payloads: Sequence[tf.Tensor]  # the parameters, by server
    versions: Sequence[tf.Tensor]  # the versions of these, or positions if there are rounds
    accepted: tf.Tensor  # whether all servers know the worker, and accept its push
    other_writes: Sequence[tf.Tensor]  # the number of writes by others, by server; see `Reply`
    ids: Any = ()  # from server 0
    next_ticket: Any = NO_TICKET  # from the ticket server
    microseconds: Any = NOT_MEASURED  # from the requests to the last reply
    decode_microseconds: Any = NOT_MEASURED  # the duration of decoding
    # From the replies to the push before until this push: the worker's own part of a step.
    own_microseconds: Any = NOT_MEASURED
    replied_s: Any = 0.0  # the timestamp of the last reply

    @classmethod
    def from_replies(
        cls, replies: Mapping[int, Message], *, worst_status: Status = Status.OK
    ) -> ServerReplies:
        """Read replies; they are accepted if no status is worse than ``worst_status``."""
        statuses = tf.stack(get_field_by_server(replies, Reply.STATUS))
        accepted = tf.reduce_all(statuses <= worst_status)
        versions, writes = (
            get_field_by_server(replies, f) for f in (Reply.VERSION, Reply.OTHER_WRITES)
        )
        return cls(get_payloads(replies), versions, accepted, writes, replies[min(replies)].ids)


def build_requests(
    servers: Sequence[ServerHalf],
    kind: Kind,
    bodies: Mapping[int, Body] | None = None,
    *,
    call_number: int = 0,
    versions: Sequence[Any] = (),
    fields: Fields = NO_FIELDS,
) -> dict[int, ServerCall]:
    """Build one request to each server for which there is a body.

    Args:
        servers: the program's functions on each server.
        kind: the kind of the requests.
        bodies: by server; None: an empty body for every server.
        call_number: the index of the optimizer call, or of the table.
        versions: by server, the versions from which bodies were computed; empty if unused.
        fields: further fields of the headers.
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
        header = build_request_header(kind, {**own, **fields})
        message = (
            Message.from_tensors(header, payload) if ids is None else Message(header, ids, payload)
        )
        call = servers[p].call(kind, message, call_number=call_number)
        calls[p] = call._replace(segments=segments)
    return calls


def get_payloads(replies: Mapping[int, Message]) -> list[tf.Tensor]:
    """Return the payloads of replies, in the order of the servers."""
    return [replies[p].payload for p in sorted(replies)]


def get_field_by_server(replies: Mapping[int, Message], field: Reply) -> list[tf.Tensor]:
    """Return a field of the replies' headers, in the order of the servers."""
    return [replies[p].header[field] for p in sorted(replies)]


def exchange_timed(
    carrier: Carrier, calls: Mapping[int, ServerCall]
) -> tuple[dict[int, Message], tf.Tensor]:
    """Send requests; return the replies, and the microseconds until the last one."""
    replies, begin, end = exchange_stamped(carrier, calls)
    return replies, microseconds_between(begin, end)


def exchange_stamped(
    carrier: Carrier, calls: Mapping[int, ServerCall]
) -> tuple[dict[int, Message], tf.Tensor, tf.Tensor]:
    """Send requests; return the replies, and the timestamps of the requests and the last reply."""
    begin = take_timestamp_after([tensor for call in calls.values() for tensor in call.tensors])
    sent = {}
    with tf.control_dependencies([begin]):
        for server, call in calls.items():
            request = call.request._replace(header=tf.identity(call.request.header))
            sent[server] = call._replace(request=request)
    replies = carrier.exchange(sent)
    end = take_timestamp_after([reply.header for reply in replies.values()])
    return replies, begin, end
