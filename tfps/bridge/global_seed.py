"""The seed that `tf.random.set_seed` sets for all operations without one of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tfps.bridge import tensorflow_private as private


def get_global_seed() -> int | None:
    """Return the seed that `tf.random.set_seed` has set; None without one."""
    seed = private.current_context()._seed
    return None if seed is None else int(seed)


@contextlib.contextmanager
def tracing_with_seed(seed: int) -> Iterator[None]:
    """Trace functions as if `tf.random.set_seed` had set a seed, without its other effects."""
    current = private.current_context()
    before, current._seed = current._seed, seed
    try:
        yield
    finally:
        current._seed = before
