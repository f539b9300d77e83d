"""How a server lets a worker in, with whatever it asks for first."""

from __future__ import annotations

import tensorflow as tf

from tfps.consistency import ledger as decide
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.reply_header import PlanHeader
from tfps.transport.message import Request


def enter_if_new(server: Server, plan: PlanHeader, header: tf.Tensor) -> tf.Tensor:
    """Let a new incarnation of a worker take part; answers, under the mutex, whether it is one.

    What the one before it has left goes back first.

    Args:
        server: whose function is traced.
        plan: of the request.
        header: of the request.
    """
    ledger, layout = server.ledger, server.ledger.layout
    worker, incarnation = header[Request.WORKER], header[Request.INCARNATION]
    newer = incarnation > ledger.entries().read(layout.incarnation(worker))
    is_new = tf.logical_and(plan.is_ours(header), newer)

    def enter() -> tf.Tensor:
        entries = ledger.entries()
        decide.remove(entries, worker=worker, leaves=is_new, closed=tf.constant(False))
        ledger.post(entries)
        entries = ledger.entries()
        accepted = decide.enter(entries, worker=worker, incarnation=incarnation)
        ledger.post(entries)
        server.membership.enter(worker, accepted)
        return accepted

    return tf.cond(is_new, enter, lambda: tf.constant(False))
