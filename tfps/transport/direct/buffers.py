"""Receive buffers that are aligned to 64 bytes and are reused when no reference is left."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tfps.placement.slab import ALIGNMENT_BYTES

Bytes = npt.NDArray[np.uint8]

# Nine for header, ids and payload: one each used by the reader, one not yet released by TensorFlow
# from the previous message, and one free. A dropped buffer is freed by its last reference.
KEPT_BUFFERS = 12
# Sizes are rounded up to a sixteenth of their power of two, so that ids and rows, whose number
# changes from batch to batch, can reuse a buffer; at most an eighth of the memory is unused.
STEPS_PER_OCTAVE_BITS = 4


class AlignedBuffers:
    """A pool of byte arrays that start at a multiple of 64 bytes.

    TensorFlow uses such an array without a copy, and keeps a reference as long as a tensor uses
    it. Every view of an array refers to the array that owns the memory, so an owner without other
    references is free. Only one thread at a time may use the pool.

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
        # With the offset of the first aligned byte: the address of an array takes 1 us to get.
        self._owners: list[tuple[Bytes, int]] = []

    def take(self, size_bytes: int) -> Bytes:
        """Return an unused array of this size with arbitrary content."""
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
        """Drop all buffers; those in use are freed by their last reference."""
        self._owners.clear()

    def __len__(self) -> int:
        return len(self._owners)


def _capacity_bytes(size_bytes: int) -> int:
    step_bits = max(size_bytes.bit_length() - STEPS_PER_OCTAVE_BITS, 6)
    return (-(-size_bytes >> step_bits) << step_bits) + ALIGNMENT_BYTES


def _references(owners: Sequence[tuple[Bytes, int]]) -> int:
    """Return the reference count of a free owner in `take`, which depends on Python's version."""
    for owner, _ in owners:
        return sys.getrefcount(owner)
    raise ValueError("owners: received none, expected at least one")


_FREE_REFERENCES = _references([(np.empty(1, np.uint8), 0)])
