"""The number of batches of a round that each worker takes. Pure: NumPy or TensorFlow vectors.

A round has a number of batches for each of its workers. Workers share them in proportion to their
speed, so that all end together: one that needs twice as long for a batch takes half as many. A
worker measures the time for its last batches, with the wait for data, and reports it with its push.
The server keeps a moving mean, its *pace*, and replies with the next quota.

A round need not have exactly the wanted number of batches: quotas are rounded, each from what is
known at the time of the request. The mean that a round applies is weighted by examples in any case.

Source: after Chen et al., "Semi-Dynamic Load Balancing: Efficient Distributed Learning in
Non-Dedicated Environments", SoCC 2020, which sizes batches at the barrier alike; it predicts the
speed of CPUs by a recurrent network where this takes a moving mean.
"""

from __future__ import annotations

from typing import Any

from tfps.consistency.logic import Logic
from tfps.consistency.vectors import Vectors

NOT_KNOWN = 0
# The time unit of a speed, in microseconds: it tells apart workers up to a million times slower
# than a batch in 1 us, and the product with 100,000 batches of 10 workers stays far below 2 ** 63.
SPEED_UNIT = 10**12
# A pace rises by a quarter of the difference, since one slow batch says little about the next. It
# falls by half, since a slow moment, such as the first call of a function, is over then.
RISE, FALL = 4, 2


def pace_after(pace: Any, measured: Any, *, logic: Logic) -> Any:
    """Return the moving mean of a worker's time for a batch, in microseconds.

    Args:
        pace: the mean before; `NOT_KNOWN` if there was none.
        measured: microseconds for each of its last batches; below 1: not measured.
        logic: arithmetic on these values.
    """
    slower = measured >= pace
    change = (measured - pace) // logic.choose(slower, RISE, FALL)
    following = logic.choose(pace > NOT_KNOWN, pace + change, measured)
    return logic.choose(measured > 0, following, pace)


def quota_of(
    worker: Any, *, paces: Any, takes_part: Any, adaptive_batches: int, vectors: Vectors
) -> Any:
    """Return the number of batches in a worker's next round: at least one, and at most all.

    Args:
        worker: vector with 1 for the worker, else 0.
        paces: the paces of all workers; an unknown one counts as this worker's.
        takes_part: vector with 1 for workers that take part.
        adaptive_batches: the number of batches in a round for each worker that takes part.
        vectors: operations.
    """
    own = vectors.sum(paces * worker)
    known = vectors.where(paces > NOT_KNOWN, paces, own)
    speeds = vectors.where(known > NOT_KNOWN, SPEED_UNIT, 0) // vectors.where(known > 1, known, 1)
    # The worker itself counts, even if it does not take part yet.
    members = vectors.where(takes_part + worker > 0, 1, 0)
    total = vectors.sum(speeds * members)
    batches = adaptive_batches * vectors.sum(members)
    share = batches * vectors.sum(speeds * worker)
    divisor = vectors.where(total > 0, total, 1)
    rounded = (share + divisor // 2) // divisor
    quota = vectors.where(own > NOT_KNOWN, rounded, adaptive_batches)
    return vectors.where(quota > 1, quota, 1)
