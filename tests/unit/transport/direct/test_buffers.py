"""Buffers: on a line, never given out while in use, and not more than needed."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tfps.transport.direct.buffers import KEPT_BUFFERS, AlignedBuffers


def _place(array: Any) -> int:
    return int(array.ctypes.data)


@given(sizes=st.lists(st.integers(1, 10**6), max_size=20))
def test_every_buffer_begins_on_a_line_and_has_the_size(sizes: list[int]) -> None:
    buffers = AlignedBuffers()
    for size in sizes:
        array = buffers.take(size)
        assert (array.shape, array.dtype) == ((size,), np.dtype(np.uint8))
        assert _place(array) % 64 == 0
        array[:] = 255  # all of it is ours
    assert len(buffers) <= KEPT_BUFFERS


@given(size=st.integers(1, 2**30))
def test_little_memory_is_spare(size: int) -> None:
    owner = AlignedBuffers().take(size).base
    assert isinstance(owner, np.ndarray)
    assert size + 64 <= owner.nbytes <= size + size / 8 + 128


def test_a_steady_exchange_takes_the_same_memory_again() -> None:
    buffers = AlignedBuffers()
    places = set()
    for _ in range(50):
        header, payload = buffers.take(176), buffers.take(400_000)
        places.add((_place(header), _place(payload)))
        del header, payload
    assert len(places) == 1
    assert len(buffers) == 2


def test_sizes_that_vary_a_little_share_a_buffer() -> None:
    buffers = AlignedBuffers()
    assert len({_place(buffers.take(size)) for size in range(10_000, 10_100)}) == 1


HOLDERS = {
    "itself": lambda array: array,
    "slice": lambda array: array[3:5],
    "slice of a slice": lambda array: array[1:][2:][:1],
    "other dtype": lambda array: array.view(np.int64),
    "reshaped view": lambda array: array.reshape(8, -1)[2].view(np.float32),
    "memoryview": memoryview,
    "memoryview's slice": lambda array: array.data[5:],
    "frombuffer": lambda array: np.frombuffer(array.data[8:16], np.int64),
    "transposed": lambda array: array.reshape(2, -1).T,
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS.keys())
def test_memory_that_somebody_sees_is_not_given_out(hold: Any) -> None:
    buffers = AlignedBuffers()
    array = buffers.take(640)
    place = _place(array)
    held = hold(array)
    del array
    others = [buffers.take(640) for _ in range(3)]
    assert place not in map(_place, others)
    assert len(set(map(_place, others))) == 3
    del held, others
    assert place in {_place(array) for array in [buffers.take(640) for _ in range(3)]}


def test_buffers_that_are_all_held_are_forgotten_and_left_alone() -> None:
    buffers = AlignedBuffers()
    held = []
    for number in range(3 * KEPT_BUFFERS):
        array = buffers.take(100)
        array[:] = number
        held.append(array)
    assert len(buffers) == KEPT_BUFFERS
    assert [int(array[0]) for array in held] == list(range(3 * KEPT_BUFFERS))
    assert all((array == array[0]).all() for array in held)


def test_a_cleared_pool_leaves_alone_what_others_hold() -> None:
    buffers = AlignedBuffers()
    array = buffers.take(640)
    array[:] = 7
    buffers.clear()
    assert len(buffers) == 0
    assert _place(buffers.take(640)) != _place(array)
    assert (array == 7).all()
