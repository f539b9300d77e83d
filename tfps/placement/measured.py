"""The measurements that the advice uses; a test compares them with the reports.

They are from one machine with two cores, so they include the processor's part, but no network's.
"""

from __future__ import annotations

# docs/benchmarks/data/transport.json: a push with Adam, 407 KB there and back takes 0.85 ms and
# 99.6 MB take 59.8.
PUSH_MS = 0.6
PUSH_MS_PER_MB = 0.594
# docs/benchmarks/data/scaling.json: of a server, with 16 workers.
SERVER_MS_PER_PUSH = 0.855
# docs/benchmarks/data/throughput.json: an MLP on one worker and one server, over one process.
SHARE_OF_ONE_PROCESS = 0.545


def push_ms(size_bytes: int) -> float:
    """Return how many ms a worker waits for an exchange of ``size_bytes`` each way.

    >>> round(push_ms(407_080), 2)
    0.84
    """
    return PUSH_MS + PUSH_MS_PER_MB * size_bytes / 1e6


def pays_from_ms(*, workers: int, size_bytes: int) -> float:
    """Return the step time in ms from which several workers take more steps than one process.

    A worker computes and then exchanges, so all workers take ``workers`` steps in the time of both;
    a server applies one push after the other.

    Args:
        workers: the number of workers, at least two.
        size_bytes: the bytes of an exchange, each way.

    Example:

    >>> round(pays_from_ms(workers=2, size_bytes=99_606_568), 1)
    59.8
    """
    return max(push_ms(size_bytes) / (workers - 1), SERVER_MS_PER_PUSH)
