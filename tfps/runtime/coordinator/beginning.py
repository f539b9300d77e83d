"""Whether a job is at its begin, where `tfps.consistency.warm_up` has its place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def is_at_begin(optimizers: Iterable[Any], *, strategy: Any) -> bool:
    """Whether nothing was trained yet, nor loaded from a checkpoint.

    Args:
        optimizers: that are about to train.
        strategy: ours.
    """
    counts = [int(optimizer.iterations.numpy()) for optimizer in optimizers]
    return not any(counts) and not any(strategy.stats().versions)
