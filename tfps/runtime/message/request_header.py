"""The header of a request: which function it is for, who makes it, and what it tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET
from tfps.transport.message import PROTOCOL, Kind, Request

NOT_MEASURED = -1
SLOTS = 1  # the call of a pull that asks for what the optimizers on a worker begin with
NOTHING_TOLD: Mapping[Request, Any] = {}


class Caller(NamedTuple):
    """Who makes a request; where that does not matter, nobody.

    Args:
        worker: the worker's index, int64.
        incarnation: int64, of a worker that takes part (see `member_of_call`).
        clock: int64, steps that it has completed.
        ticket: int64, the right to its step; where there are no tickets, 0 for a worker, and
            `message.COORDINATOR` for the coordinator, which has no slot.
    """

    worker: Any = 0
    incarnation: Any = 0
    clock: Any = 0
    ticket: Any = 0

    @classmethod
    def at_call(cls, worker: tf.Tensor) -> Caller:
        """The caller of a function that is scheduled, or run by the coordinator.

        Args:
            worker: see `worker_of_call`.
        """
        zero = tf.constant(0, tf.int64)
        return cls(tf.maximum(worker, zero), ticket=tf.minimum(worker, zero))


NOBODY = Caller()


def request_header(
    kind: Kind,
    *,
    job_id: int,
    plan_id: int,
    call_number: int = 0,
    version: Any = 0,
    caller: Caller = NOBODY,
    told: Mapping[Request, Any] = NOTHING_TOLD,
) -> tf.Tensor:
    """The header of a request to one server, an int64 vector.

    Args:
        kind: of the request.
        job_id: of the job.
        plan_id: of the layouts that both sides were traced with.
        call_number: which optimizer call; of a look-up the table's number.
        version: of this server, that the payload was computed from, or the round asked for.
        caller: who makes the request.
        told: further fields; those that are left out say nothing.
    """
    values: dict[Request, Any] = {
        Request.PROTOCOL: PROTOCOL,
        Request.JOB: job_id,
        Request.PLAN: plan_id,
        Request.KIND: int(kind),
        Request.WORKER: caller.worker,
        Request.INCARNATION: caller.incarnation,
        Request.TICKET: caller.ticket,
        Request.CALL: call_number,
        Request.BASE_VERSION: version,
        Request.ACKED_TICKET: NO_TICKET,
        Request.EXAMPLES: 0,
        Request.PUSH_MICROSECONDS: NOT_MEASURED,
        Request.PULL_MICROSECONDS: NOT_MEASURED,
        Request.WAIT_MICROSECONDS: NOT_MEASURED,
        Request.STEP_EXAMPLES: 0,
        Request.CLOSED_STEPS: 1,
        Request.CLOCK: caller.clock,
        Request.BATCH_MICROSECONDS: NOT_MEASURED,
        **told,
    }
    return tf.stack([tf.cast(values[field], tf.int64) for field in Request])
