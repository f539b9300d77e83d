"""Cuts vectors into a slice for each member of a group, and joins them again. Pure: NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfps.placement.slab import ALIGNMENT_BYTES


def cut_slices(vectors: Sequence[np.ndarray], count: int) -> list[list[np.ndarray]]:
    """Return, for each member, its slice of every vector; sizes differ by at most one item.

    Example:

    >>> [[part.tolist() for part in parts] for parts in cut_slices([np.arange(3)], 2)]
    [[[0]], [[1, 2]]]
    """
    return [
        [vector[k * len(vector) // count : (k + 1) * len(vector) // count] for vector in vectors]
        for k in range(count)
    ]


def join_slices(slices: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Join what `cut_slices` has cut.

    Example:

    >>> join_slices(cut_slices([np.arange(3)], 2))
    [array([0, 1, 2])]
    """
    return [np.concatenate(parts) for parts in zip(*slices, strict=True)]


def parse_segments(payload: np.ndarray, *, like: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the arrays that a connection has sent as segments; ``like`` has their sizes."""
    arrays, offset = [], 0
    for each in like:
        arrays.append(payload[offset : offset + each.nbytes].view(each.dtype))
        offset += each.nbytes + (-each.nbytes % ALIGNMENT_BYTES if each.nbytes else ALIGNMENT_BYTES)
    return arrays
