"""A graph whose owner protects it with a lock of its own."""

from __future__ import annotations

import contextlib

import tensorflow as tf


class OwnedGraph(tf.Graph):
    """A graph without TensorFlow's lock between its changes and its runs.

    That lock is Python code, which the exception of a signal can interrupt: after Ctrl-C in the few
    microseconds in which a run takes the lock, the next run of the graph waits forever. The owner
    of this graph must hold a `threading.Lock` while it changes or runs it; ``with`` takes and
    releases such a lock atomically.

    Example:

    >>> with OwnedGraph().as_default() as graph:
    ...     three = tf.constant(3)
    >>> with tf.compat.v1.Session(graph=graph) as session:
    ...     int(session.run(three))
    3
    """

    def _mutation_lock(self) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    def _session_run_lock(self) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()
