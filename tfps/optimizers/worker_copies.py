"""Counts the copies of variables that servers store for workers, before anything starts."""

from __future__ import annotations

from typing import Any

from tfps.optimizers.correction import Correction
from tfps.optimizers.worker_state import WorkerStateMixin
from tfps.optimizers.wrapped import get_leaf_optimizers, get_wrappers


def count_worker_copies(optimizer: Any, *, workers: int, replies: int) -> dict[str, int]:
    """Return how many copies of each variable its server stores for workers.

    The slot that worker 0 uses as its own is no copy: it is a variable of the optimizer.

    Args:
        optimizer: a built optimizer.
        workers: the number of workers whose gradients are applied separately; 0: none are.
        replies: the number of a server's replies that are stored for a worker.

    Returns:
        Path of a variable -> number of copies; variables without copies are left out.

    Example:

    >>> import keras
    >>> from tfps.optimizers import AsyncAdam
    >>> optimizer = AsyncAdam()
    >>> optimizer.build([keras.Variable([1.0], name="bias")])
    >>> count_worker_copies(optimizer, workers=8, replies=1)
    {'bias': 7}
    """
    copies: dict[str, int] = {}
    for leaf in get_leaf_optimizers(optimizer):
        count = 0
        if any(isinstance(wrapper, Correction) for wrapper in get_wrappers(optimizer, leaf)):
            count += workers * replies
        if isinstance(leaf, WorkerStateMixin) and leaf.per_worker_slot is not None:
            count += max(0, workers - 1)
        if count:
            copies |= {variable.path: count for variable in leaf._trainable_variables}
    return copies
