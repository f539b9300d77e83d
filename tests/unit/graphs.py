"""What makes tests quick that trace much and run little."""

from __future__ import annotations

import contextlib
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
