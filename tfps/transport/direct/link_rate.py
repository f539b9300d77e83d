"""Limits the rate at which a process sends, to simulate a slower link in a benchmark."""

from __future__ import annotations

import functools
import os
import threading
import time

RATE_VARIABLE = "TFPS_DIRECT_MEGABITS_PER_S"


class TokenBucket:
    """Computes when a link of a given rate has transferred messages that follow each other.

    Args:
        bytes_per_s: the rate of the link.

    Example:

    >>> bucket = TokenBucket(bytes_per_s=1000.0)
    >>> bucket.delay_s(500, now_s=10.0), bucket.delay_s(500, now_s=10.0)
    (0.5, 1.0)
    >>> bucket.delay_s(500, now_s=20.0)
    0.5
    """

    def __init__(self, *, bytes_per_s: float) -> None:
        self._bytes_per_s, self._free_s = bytes_per_s, 0.0

    def delay_s(self, size_bytes: int, *, now_s: float) -> float:
        """Return the time until a further message of this size would have arrived."""
        self._free_s = max(self._free_s, now_s) + size_bytes / self._bytes_per_s
        return self._free_s - now_s


class LinkRate:
    """Delays messages of all threads of a process for as long as the link would take.

    Args:
        megabits_per_s: the rate of the link, in 10^6 bits per second.
    """

    def __init__(self, megabits_per_s: float) -> None:
        self._bucket = TokenBucket(bytes_per_s=megabits_per_s * 1e6 / 8)
        self._lock = threading.Lock()

    def wait_for_transfer(self, size_bytes: int) -> None:
        """Wait until a message would have arrived."""
        with self._lock:
            delay_s = self._bucket.delay_s(size_bytes, now_s=time.monotonic())
        time.sleep(delay_s)


@functools.cache
def link_rate_of_this_process() -> LinkRate | None:
    """Return the link rate set in the environment; None for no limit."""
    rate = os.environ.get(RATE_VARIABLE)
    return LinkRate(float(rate)) if rate else None
