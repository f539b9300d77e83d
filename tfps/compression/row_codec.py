"""Codecs for rows of which a message brings as many as a batch needs."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tfps.compression.codec import ITEM_BYTES, Codec
from tfps.compression.late_tensorflow import tf
from tfps.compression.memory import keeps_something


@runtime_checkable
class RowCodec(Protocol):
    """Codes each row by itself, in a graph that does not know how many there are.

    The bytes of a row are those of a vector as long as it, see `Codec`.
    """

    def encode_rows(self, rows: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        """The bytes of rows.

        Args:
            rows: float32, a matrix whose number of columns is known.
            seed: as `Codec.encode` takes it.

        Returns:
            A uint8 matrix with a row for each.
        """

    def decode_rows(self, data: tf.Tensor, items: int) -> tf.Tensor:
        """The float32 rows of so many items that ``encode_rows`` made the bytes of, about."""

    def size_bytes(self, items: int) -> int:
        """How many bytes a row of so many items takes."""


def row_codec_of(codec: Codec, items: int) -> RowCodec | None:
    """What codes rows of so many items; None: they go as they are.

    So do those of codecs that keep what they leave out: the next batch has other rows.

    Example:

    >>> from tfps.compression.quantize import Quantize
    >>> row_codec_of(Quantize(8), 64)
    Quantize(bits=8, block_items=256)
    >>> row_codec_of(Quantize(8), 1)  # 5 bytes for 4
    """
    if not isinstance(codec, RowCodec) or keeps_something(codec):
        return None
    return codec if codec.size_bytes(items) < ITEM_BYTES * items else None
