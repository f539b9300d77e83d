"""Provides helpers for replies: lets workers enter, and reads values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from tfps.consistency import ledger as decide
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.reply_header import PlanHeader
from tfps.runtime.message.wire import ServerShards
from tfps.transport.message import Request
from tfps.transport.packing import pack

# Traces a function on a server: the header, ids and payload of the request, then of the reply.
Trace = Callable[[Sequence[tf.Tensor], tf.Tensor, tf.Tensor], Sequence[tf.Tensor]]


def read_values(held: ServerShards) -> list[tf.Tensor]:
    """Trace reading the current values of variables and slabs, under the server's mutex."""
    return [native.read_value() for native in held.natives]


def pack_values(held: ServerShards, values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Pack the values of variables and slabs as the payload of a reply."""
    names = [native.shared_name for native in held.natives]
    return pack(held.server_layout, dict(zip(names, values, strict=True)))


def enter_if_new(
    server: Server, plan: PlanHeader, header: Sequence[tf.Tensor], *, is_grouped: bool = False
) -> tf.Tensor:
    """Let a worker enter if its incarnation is new, with its first request.

    Returns, under the mutex, whether it is new. The tickets of the incarnation before it go back
    first. If ``is_grouped``, workers add up gradients among themselves.
    """
    server_ledger, layout = server.ledger, server.ledger.layout
    worker, incarnation = header[Request.WORKER], header[Request.INCARNATION]
    newer = incarnation > server_ledger.open().read(layout.incarnation(worker))
    is_new = tf.logical_and(plan.matches_plan(header), newer)

    def enter() -> tf.Tensor:
        if server.rounds is not None and server.issues_tickets:
            server_ledger.write(
                tf.constant(layout.IS_GROUPED, tf.int64), tf.constant(int(is_grouped), tf.int64)
            )
            if is_grouped:
                server.rounds.regroup(worker, is_new, joins=True)
        ledger = server_ledger.open()
        decide.remove(ledger, worker=worker, leaves=is_new, closed=tf.constant(False))
        server_ledger.write_changes(ledger)
        ledger = server_ledger.open()
        accepted = decide.enter(ledger, worker=worker, incarnation=incarnation)
        server_ledger.write_changes(ledger)
        server.membership.enter(worker, accepted)
        return accepted

    return tf.cond(is_new, enter, lambda: tf.constant(False))
