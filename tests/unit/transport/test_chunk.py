"""Chunks cover a message once, in order; payloads above 2 GiB keep their places."""

from __future__ import annotations

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.messages import raises
from tfps.errors import ConfigError
from tfps.transport.chunk import (
    CHUNK_BYTES,
    CHUNK_BYTES_VARIABLE,
    chunk_bytes_from_environment,
    chunks,
)
from tfps.transport.layout import Layout
from tfps.transport.packing import pack, unpack


@given(size=st.integers(0, 10_000), chunk=st.integers(1, 3000))
def test_chunks_cover_all_bytes_once(size: int, chunk: int) -> None:
    parts = list(chunks(size, chunk_bytes=chunk))
    covered = [place for begin, length in parts for place in range(begin, begin + length)]
    assert covered == list(range(size))
    assert all(0 < length <= chunk for _, length in parts)


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHUNK_BYTES_VARIABLE, raising=False)
    assert chunk_bytes_from_environment() == CHUNK_BYTES
    monkeypatch.setenv(CHUNK_BYTES_VARIABLE, " 1000 ")
    assert chunk_bytes_from_environment() == 1000
    for wrong in ("0", "-1", "1e3", "much"):
        monkeypatch.setenv(CHUNK_BYTES_VARIABLE, wrong)
        with raises(ConfigError, CHUNK_BYTES_VARIABLE, received=repr(wrong), remedy="unset"):
            chunk_bytes_from_environment()


def test_packing_is_traced_above_two_gibibytes() -> None:
    """Shapes only: nothing of this size is allocated."""
    entries = [("a", "float32", (2**31 + 5,)), ("b", "float32", (2**20, 700)), ("c", "int64", (3,))]
    layout = Layout.from_entries(entries)
    assert layout.size_bytes > 2**33

    @tf.function(autograph=False)
    def there_and_back(tensors: dict[str, tf.Tensor]) -> tf.Tensor:
        unpacked = unpack(layout, pack(layout, tensors))
        assert {name: tuple(t.shape) for name, t in unpacked.items()} == {
            name: shape for name, _, shape in entries
        }
        return pack(layout, unpacked)

    specs = {name: tf.TensorSpec(shape, dtype) for name, dtype, shape in entries}
    concrete = there_and_back.get_concrete_function(specs)
    assert concrete.structured_outputs.shape == [layout.size_bytes]
