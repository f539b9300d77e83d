"""How many batches of a round each worker takes. Pure: NumPy or TensorFlow vectors.

A round has a number of batches for each of its workers. They are shared out in proportion to the
workers' speed, so that all end together: who needs twice as long for a batch takes half as many.
A worker measures how long it has taken for its last batches, waits for data included, and says so
with its push; the server keeps a moving mean, its *pace*, and answers with the next quota.

Rounds need not have exactly as many batches as are wanted: quotas are rounded, each from what is
known when it is asked for. The mean that a round applies is weighted by examples in any case.

Source: after Chen et al., "Semi-Dynamic Load Balancing: Efficient Distributed Learning in
Non-Dedicated Environments", SoCC 2020, which sizes batches at the barrier alike; it predicts the
speed of CPUs by a recurrent network where this takes a moving mean.
"""

from __future__ import annotations

from typing import Any

from tfps.consistency.logic import Logic
from tfps.consistency.vectors import Vectors

NOT_KNOWN = 0
# Batches per so many microseconds: workers up to a million times slower than a batch in 1 us are
# told apart, and the product with 100,000 batches of 10 workers stays far below 2 ** 63.
SPEED_UNIT = 10**12
# A pace rises by a quarter of the difference, since one slow batch says little about the next, and
# falls by half, since a moment that was slow, such as the first call of a function, is over then.
RISE, FALL = 4, 2


def pace_after(pace: Any, measured: Any, *, logic: Logic) -> Any:
    """The moving mean of a worker's time for a batch, in microseconds.

    Args:
        pace: before; `NOT_KNOWN` if there was none.
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
    """How many batches a worker takes in its next round: one at least, and all at most.

    Args:
        worker: vector with 1 for the worker, else 0.
        paces: of all workers, a vector. Of whom none is known, the asking worker's own counts.
        takes_part: vector with 1 for those that take part.
        adaptive_batches: how many a round has for each that takes part.
        vectors: operations.
    """
    own = vectors.sum(paces * worker)
    known = vectors.where(paces > NOT_KNOWN, paces, own)
    speeds = vectors.where(known > NOT_KNOWN, SPEED_UNIT, 0) // vectors.where(known > 1, known, 1)
    # The worker counts as one of those that take part, whether they know of it yet or not.
    members = vectors.where(takes_part + worker > 0, 1, 0)
    total = vectors.sum(speeds * members)
    batches = adaptive_batches * vectors.sum(members)
    share = batches * vectors.sum(speeds * worker)
    divisor = vectors.where(total > 0, total, 1)
    rounded = (share + divisor // 2) // divisor
    quota = vectors.where(own > NOT_KNOWN, rounded, adaptive_batches)
    return vectors.where(quota > 1, quota, 1)
