"""A rate for what a process sends, where a benchmark can have no link of that rate."""

from __future__ import annotations

import functools
import os
import threading
import time

RATE_VARIABLE = "TFPS_DIRECT_MEGABITS_PER_S"


class TokenBucket:
    """When a link of a rate has carried what is sent over it, one message after the other.

    Args:
        bytes_per_s: that it carries.

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
        """How long so many more bytes are on their way."""
        self._free_s = max(self._free_s, now_s) + size_bytes / self._bytes_per_s
        return self._free_s - now_s


class LinkRate:
    """Holds messages of all threads of a process back as long as their link would carry them.

    Args:
        megabits_per_s: of the link, 10^6 bits.
    """

    def __init__(self, megabits_per_s: float) -> None:
        self._bucket = TokenBucket(bytes_per_s=megabits_per_s * 1e6 / 8)
        self._lock = threading.Lock()

    def carry(self, size_bytes: int) -> None:
        """Return when a message would have arrived."""
        with self._lock:
            delay_s = self._bucket.delay_s(size_bytes, now_s=time.monotonic())
        time.sleep(delay_s)


@functools.cache
def link_rate_of_this_process() -> LinkRate | None:
    """What the environment says; None: messages go as fast as they can."""
    rate = os.environ.get(RATE_VARIABLE)
    return LinkRate(float(rate)) if rate else None
