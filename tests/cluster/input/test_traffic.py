"""The bytes that the chief sends do not grow with a dataset that can be serialised."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import psutil
import pytest
import tensorflow as tf

import tfps

FEATURES, BATCH = 4096, 64
BATCH_BYTES = BATCH * FEATURES * 4
LONG = 40
# Of `struct tcp_info`: tcpi_bytes_acked.
ACKED_AT = 120

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def wide(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    with strategy.scope():
        model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    return model


def _bytes_sent() -> int:
    """Return the bytes sent on the TCP connections of this process, as the kernel counts them."""
    sent = 0
    for connection in psutil.Process().net_connections("tcp"):
        with socket.socket(fileno=os.dup(connection.fd)) as copy:
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            sent += struct.unpack_from("Q", info, ACKED_AT)[0]
    return sent


def _serialisable(batches: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(batches).map(
        lambda number: (
            tf.random.stateless_uniform([BATCH, FEATURES], [0, number]),
            tf.zeros([BATCH, 1]),
        )
    )


def _by_python(batches: int) -> tf.data.Dataset:
    def rows(number: np.ndarray) -> np.ndarray:
        return np.random.default_rng(number).random((BATCH, FEATURES)).astype(np.float32)

    return tf.data.Dataset.range(batches).map(
        lambda number: (
            tf.ensure_shape(tf.numpy_function(rows, [number], tf.float32), [BATCH, FEATURES]),
            tf.zeros([BATCH, 1]),
        )
    )


@pytest.mark.repeats
@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the kernel must count bytes")
def test_bytes_do_not_grow_with_a_serialisable_dataset(wide: keras.Model) -> None:
    def sent_by(make: Callable[[int], tf.data.Dataset], batches: int) -> int:
        before = _bytes_sent()
        wide.fit(make(batches), verbose=0)
        return _bytes_sent() - before

    sent_by(_serialisable, 2)  # connections open, functions are traced
    data_bytes: Any = (LONG - 2) * BATCH_BYTES
    growth = sent_by(_serialisable, LONG) - sent_by(_serialisable, 2)
    assert growth < 0.05 * data_bytes
    fed = sent_by(_by_python, LONG) - sent_by(_by_python, 2)
    assert fed > 0.9 * data_bytes  # so the count counts
