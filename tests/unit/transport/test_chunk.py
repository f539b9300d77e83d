"""Chunks have the size that is set; payloads above 2 GiB keep their places, or are refused."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests.messages import raises
from tfps.errors import ConfigError, UnsupportedError
from tfps.transport.carrier import GrpcCarrier, Message, ServerCall
from tfps.transport.chunk import (
    CHUNK_BYTES,
    CHUNK_BYTES_VARIABLE,
    MAX_MESSAGE_BYTES,
    chunk_bytes_from_environment,
)
from tfps.transport.layout import Layout
from tfps.transport.packing import pack, unpack


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


@pytest.mark.parametrize(
    ("request_bytes", "reply_bytes"), [(MAX_MESSAGE_BYTES + 1, 0), (8, MAX_MESSAGE_BYTES + 1)]
)
def test_grpc_refuses_messages_above_its_limit_by_server(
    request_bytes: int, reply_bytes: int
) -> None:
    """Shapes only: nothing of this size is allocated."""

    @tf.function(autograph=False)
    def exchange(header: tf.Tensor, payload: tf.Tensor) -> tf.Tensor:
        request = Message.from_tensors(header, payload)
        call = ServerCall("/job:ps/task:1", exchange, request, reply_bytes)
        return GrpcCarrier().exchange({1: call})[1].header

    specs = [tf.TensorSpec([3], tf.int64), tf.TensorSpec([request_bytes], tf.uint8)]
    with raises(
        UnsupportedError, "ps 1", received=f"{MAX_MESSAGE_BYTES + 1} bytes", remedy="direct"
    ):
        exchange.get_concrete_function(*specs)
