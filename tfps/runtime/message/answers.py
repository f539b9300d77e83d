"""How a program's functions on a server know their requests, and head their replies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET, Entries, Status
from tfps.transport.message import PROTOCOL, Reply, Request


@dataclass(frozen=True)
class Handed:
    """The tickets that a reply brings.

    Args:
        ticket: the next one.
        batches: how many tickets it stands for.
        ahead: the one after it, for a pipelined worker.
    """

    ticket: Any = NO_TICKET
    batches: Any = 1
    ahead: Any = NO_TICKET


@dataclass(frozen=True)
class Answers:
    """What is said to requests of one plan.

    Args:
        job_id: of the job.
        plan_id: of the layouts that both sides were traced with.
    """

    job_id: int
    plan_id: int

    def is_ours(self, header: tf.Tensor) -> tf.Tensor:
        """Whether a request was made for these functions."""
        expected = tf.constant([PROTOCOL, self.job_id, self.plan_id], tf.int64)
        return tf.reduce_all(tf.equal(header[: Request.PLAN + 1], expected))

    def is_alive(self, header: tf.Tensor, entries: Entries) -> tf.Tensor:
        """Whether whoever makes a request for these functions takes part."""
        known = tf.where(self.is_ours(header), header[Request.INCARNATION], -1)
        return entries.is_alive(header[Request.SLOT], known)

    def reply(
        self,
        header: tf.Tensor,
        *,
        status: Any,
        version: Any,
        staleness: Any = 0,
        handed: Handed = Handed(),
        clock: Any = 0,
    ) -> tf.Tensor:
        """The header of a reply.

        Args:
            header: of the request.
            status: a `Status`.
            version: of the parameters that the reply brings.
            staleness: of the request's gradients, in updates.
            handed: the tickets that it brings.
            clock: of a worker that joins.
        """
        fields = {
            Reply.STATUS: tf.where(
                self.is_ours(header), tf.cast(status, tf.int64), int(Status.REPLAN)
            ),
            Reply.VERSION: version,
            Reply.STALENESS: staleness,
            Reply.NEXT_TICKET: handed.ticket,
            Reply.AHEAD_TICKET: handed.ahead,
            Reply.CLOCK: clock,
            Reply.NEXT_BATCHES: handed.batches,
        }
        return tf.stack([tf.cast(fields[field], tf.int64) for field in Reply])
