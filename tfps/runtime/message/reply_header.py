"""How a program's functions on a server know their requests, and head their replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfps.consistency.issuing import NO_GRANT, TicketGrant
from tfps.consistency.ledger import Ledger, Status
from tfps.runtime.message.request_header import header_of
from tfps.transport.message import PROTOCOL, Reply, Request


@dataclass(frozen=True)
class PlanHeader:
    """The fields that every request for the functions of one plan has."""

    job_id: int
    plan_id: int  # of the layouts that both sides were traced with

    def is_ours(self, header: Sequence[tf.Tensor]) -> tf.Tensor:
        """Whether a request was made for these functions."""
        expected = tf.constant([PROTOCOL, self.job_id, self.plan_id], tf.int64)
        return tf.reduce_all(tf.equal(header[: Request.PLAN + 1], expected))

    def incarnation(self, header: Sequence[tf.Tensor]) -> tf.Tensor:
        """The sender's incarnation; one that no worker has where the request is not ours."""
        return tf.where(self.is_ours(header), header[Request.INCARNATION], -1)

    def is_alive(self, header: Sequence[tf.Tensor], ledger: Ledger, worker: Any) -> tf.Tensor:
        """Whether a request was made for these functions by a worker that takes part."""
        return ledger.is_alive(worker, self.incarnation(header))

    def status(self, header: Sequence[tf.Tensor], *, alive: Any) -> tf.Tensor:
        """How a request is answered that needs no decision but whether its sender takes part."""
        status = tf.where(alive, tf.constant(int(Status.OK), tf.int64), int(Status.EVICTED))
        return tf.where(self.is_ours(header), status, int(Status.REPLAN))


@dataclass(frozen=True)
class ReplyHeader:
    """The header of a reply."""

    version: Any  # of the parameters that it brings
    status: Any = int(Status.OK)
    staleness: Any = 0  # of the request's gradients, in updates
    grant: TicketGrant = NO_GRANT  # the tickets that it brings
    clock: Any = 0  # of a worker that joins
    other_writes: Any = 0  # see `Reply`

    def tensor(self) -> tf.Tensor:
        """As it travels, int64."""
        fields = {
            Reply.STATUS: self.status,
            Reply.VERSION: self.version,
            Reply.STALENESS: self.staleness,
            Reply.NEXT_TICKET: self.grant.ticket,
            Reply.AHEAD_TICKET: self.grant.ahead,
            Reply.CLOCK: self.clock,
            Reply.NEXT_BATCHES: self.grant.batches,
            Reply.OTHER_WRITES: self.other_writes,
        }
        return header_of([fields[field] for field in Reply])


def with_fields(reply: tf.Tensor, fields: Mapping[Reply, tf.Tensor]) -> tf.Tensor:
    """The header of a reply, with what was known only when its parameters were read."""
    if not fields:
        return reply
    places = [[int(field)] for field in fields]
    return tf.tensor_scatter_nd_update(reply, places, tf.stack(list(fields.values())))
