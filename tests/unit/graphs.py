"""What makes tests quick that trace much and run little."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def graphs_as_traced() -> Iterator[None]:
    """A third of the time would go into optimizing graphs that run a few times."""
    option = "disable_meta_optimizer"
    tf.config.optimizer.set_experimental_options({option: True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({option: False})


@contextlib.contextmanager
def graphs_left_alone_by_the_collector() -> Iterator[None]:
    """A tenth of the time would go into looking through all that imports and traces have left.

    What outlives a module's tests is looked through once, at the begin of the next ones: it stays
    frozen, since half a second would go into it each time.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20 * thresholds[0], *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
