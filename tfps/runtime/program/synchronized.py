"""Warns that batch normalization is not synchronized between workers."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable
from typing import Any

logger = logging.getLogger(__name__)

SYNCHRONIZED = (
    "%s: tfps ignores synchronized=True between the %d workers, and each worker normalizes with "
    "the mean and variance of its own batch; only the devices of one worker share them. For "
    "statistics of more examples use a larger batch_size, or set synchronized=False."
)
_logged: weakref.WeakSet[Any] = weakref.WeakSet()


def warn_of_synchronized(layers: Iterable[Any], *, workers: int) -> None:
    """Log one warning about layers that ask for the statistics of all replicas.

    Args:
        layers: the layers that a step calls in training.
        workers: the number of workers.
    """
    asking = {layer.path: layer for layer in layers if layer.synchronized and layer not in _logged}
    if asking and workers > 1:
        _logged.update(asking.values())
        logger.warning(SYNCHRONIZED, ", ".join(asking), workers)
