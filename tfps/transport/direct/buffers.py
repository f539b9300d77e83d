"""Receive buffers on 64-byte lines, used again once nobody holds them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tfps.placement.slab import ALIGNMENT_BYTES

Bytes = npt.NDArray[np.uint8]

# Header, ids and payload, each held by the reader, by TensorFlow's deferred release of the message
# before, and free: nine. Dropping one more is safe, its holder frees it.
KEPT_BUFFERS = 12
# Sizes are rounded up to a sixteenth of their power of two, so that ids and rows, whose number
# changes from batch to batch, find a buffer again; at most an eighth of the memory is spare.
STEPS_PER_OCTAVE_BITS = 4


class AlignedBuffers:
    """A pool of byte arrays whose first byte lies on a line of 64 bytes.

    TensorFlow takes such an array without a copy and holds a reference as long as a tensor shows
    it. Every view of an array, whatever its depth, refers to the array that owns the memory: an
    owner without foreign references is free. One thread at a time.

    Example:

    >>> buffers = AlignedBuffers()
    >>> first = buffers.take(1000)
    >>> first.nbytes, first.ctypes.data % 64
    (1000, 0)
    >>> place = first.ctypes.data
    >>> del first
    >>> buffers.take(999).ctypes.data == place
    True
    """

    def __init__(self) -> None:
        # With the place of the first line: to ask an array for its address takes a microsecond.
        self._owners: list[tuple[Bytes, int]] = []

    def take(self, size_bytes: int) -> Bytes:
        """An array of this many bytes, of any content, that nobody else holds."""
        capacity_bytes = _capacity_bytes(size_bytes)
        for owner, begin in self._owners:
            if owner.nbytes == capacity_bytes and sys.getrefcount(owner) == _FREE_REFERENCES:
                return owner[begin : begin + size_bytes]
        owner = np.empty(capacity_bytes, np.uint8)
        begin = -owner.ctypes.data % ALIGNMENT_BYTES
        self._owners.append((owner, begin))
        if len(self._owners) > KEPT_BUFFERS:
            del self._owners[0]
        return owner[begin : begin + size_bytes]

    def clear(self) -> None:
        """Keep nothing; what is still held elsewhere goes with its holder."""
        self._owners.clear()

    def __len__(self) -> int:
        return len(self._owners)


def _capacity_bytes(size_bytes: int) -> int:
    step_bits = max(size_bytes.bit_length() - STEPS_PER_OCTAVE_BITS, 6)
    return (-(-size_bytes >> step_bits) << step_bits) + ALIGNMENT_BYTES


def _references(owners: Sequence[tuple[Bytes, int]]) -> int:
    """References to an owner in a loop like `take`'s, which depend on Python's version."""
    for owner, _ in owners:
        return sys.getrefcount(owner)
    raise ValueError("expected an owner")


_FREE_REFERENCES = _references([(np.empty(1, np.uint8), 0)])
