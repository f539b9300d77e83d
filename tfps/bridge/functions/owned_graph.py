"""A graph that one owner builds and runs, under the owner's own lock."""

from __future__ import annotations

import contextlib

import tensorflow as tf


class OwnedGraph(tf.Graph):
    """A graph without TensorFlow's lock between its changes and its runs.

    That lock is Python code, which a signal's exception can leave in the middle: Ctrl-C within the
    few microseconds in which a run takes it, and the next run of the graph waits forever. Whoever
    uses this graph holds a `threading.Lock` while it changes or runs it; ``with`` takes and leaves
    such a lock as one step.

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
