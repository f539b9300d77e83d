"""How a server lets a worker in with whatever it asks for first."""

from __future__ import annotations

import tensorflow as tf

from tfps.consistency import ledger as decide
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.answers import Answers
from tfps.transport.message import Request


def join_if_new(server: Server, answers: Answers, header: tf.Tensor) -> tf.Tensor:
    """Let a new incarnation of a worker take part; answers, under the mutex, when that is done.

    A scheduled function pulls each time that it runs, and enters with the first pull after its
    worker had nothing to run. So joining is no request of its own.
    """
    ledger, books = server.ledger, server.ledger.books
    slot, incarnation = header[Request.SLOT], header[Request.INCARNATION]
    newer = incarnation > ledger.entries().read(books.incarnation(slot))
    is_new = tf.logical_and(answers.is_ours(header), newer)

    def join() -> tf.Tensor:
        entries = ledger.entries()
        decide.dismiss(entries, slot=slot, leaves=is_new, closed=tf.constant(False))
        ledger.post(entries)
        entries = ledger.entries()
        accepted = decide.enter(entries, slot=slot, incarnation=incarnation)
        ledger.post(entries)
        server.membership.enter(slot, accepted)
        return tf.constant(0)

    return tf.cond(is_new, join, lambda: tf.constant(0))
