"""Codecs for rows of tables, of which a message contains as many as a batch needs."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tfps.compression.codec import ITEM_BYTES, Codec
from tfps.compression.late_tensorflow import tf
from tfps.compression.memory import keeps_state


@runtime_checkable
class RowCodec(Protocol):
    """Encodes each row by itself, in a graph that does not know the number of rows.

    A row is encoded as a vector of the same length, see `Codec`.
    """

    def encode_rows(self, rows: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        """Encode rows.

        Args:
            rows: float32, a matrix whose number of columns is known.
            seed: see `Codec.encode`.

        Returns:
            A uint8 matrix with ``size_bytes`` columns and a row for each row.
        """

    def decode_rows(self, data: tf.Tensor, items: int) -> tf.Tensor:
        """Decode what ``encode_rows`` returned; returns float32 rows of ``items`` items."""

    def size_bytes(self, items: int) -> int:
        """Return the number of bytes of an encoded row of ``items`` items."""


def row_codec_of(codec: Codec, items: int) -> RowCodec | None:
    """Return the codec of rows of ``items`` items; None if they are not compressed.

    It is None too if workers would keep a residual: the next batch has other rows.

    Example:

    >>> from tfps.compression.quantize import Quantize
    >>> row_codec_of(Quantize(8), 64)
    Quantize(bits=8, block_items=256)
    >>> row_codec_of(Quantize(8), 1)  # 5 bytes for 4
    """
    if not isinstance(codec, RowCodec) or keeps_state(codec):
        return None
    return codec if codec.size_bytes(items) < ITEM_BYTES * items else None
