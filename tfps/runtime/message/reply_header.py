"""Checks the headers of requests, and builds the headers of replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET, Ledger, Status
from tfps.runtime.message.request_header import pack_header
from tfps.transport.message import PROTOCOL, Reply, Request


@dataclass(frozen=True)
class PlanHeader:
    """The fields that all requests for the functions of one plan share."""

    job_id: int
    plan_id: int  # identifies the layouts with which both sides were traced

    def matches_plan(self, header: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return whether a request was made for this plan."""
        expected = tf.constant([PROTOCOL, self.job_id, self.plan_id], tf.int64)
        return tf.reduce_all(tf.equal(header[: Request.PLAN + 1], expected))

    def read_incarnation(self, header: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the sender's incarnation; -1 if the request was made for another plan."""
        return tf.where(self.matches_plan(header), header[Request.INCARNATION], -1)

    def is_alive(self, header: Sequence[tf.Tensor], ledger: Ledger, worker: Any) -> tf.Tensor:
        """Return whether a request was made for this plan by a worker that takes part."""
        return ledger.is_alive(worker, self.read_incarnation(header))

    def compute_status(self, header: Sequence[tf.Tensor], *, alive: Any) -> tf.Tensor:
        """Return the status of a request that is accepted from any worker that takes part."""
        status = tf.where(alive, tf.constant(int(Status.OK), tf.int64), int(Status.EVICTED))
        return tf.where(self.matches_plan(header), status, int(Status.REPLAN))


@dataclass(frozen=True)
class ReplyHeader:
    """The header of a reply."""

    version: Any  # the version of the parameters in the reply
    status: Any = int(Status.OK)
    staleness: Any = 0  # the staleness of the request's gradients, in updates
    next_ticket: Any = NO_TICKET
    clock: Any = 0  # the clock of a worker that joins
    other_writes: Any = 0  # see `Reply`

    def to_tensor(self) -> tf.Tensor:
        """Return the header as an int64 vector."""
        fields = {
            Reply.STATUS: self.status,
            Reply.VERSION: self.version,
            Reply.STALENESS: self.staleness,
            Reply.NEXT_TICKET: self.next_ticket,
            Reply.CLOCK: self.clock,
            Reply.OTHER_WRITES: self.other_writes,
        }
        return pack_header([fields[field] for field in Reply])


def set_fields(reply: tf.Tensor, fields: Mapping[Reply, tf.Tensor]) -> tf.Tensor:
    """Return the header of a reply with some fields replaced."""
    if not fields:
        return reply
    places = [[int(field)] for field in fields]
    return tf.tensor_scatter_nd_update(reply, places, tf.stack(list(fields.values())))
