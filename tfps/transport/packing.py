"""Tensors to one byte vector and back, by a layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from tfps.transport.layout import Block, Layout, Segment


def pack(layout: Layout, tensors: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """The payload of a layout: one concatenation per dtype, then a view as bytes.

    Args:
        layout: where each tensor goes.
        tensors: by name, of the layout's shapes; cast to the layout's dtypes.

    Returns:
        A uint8 vector of ``layout.size_bytes``.
    """
    blocks = [_as_bytes(joined_block(block, tensors)) for block in layout.blocks]
    if not blocks:
        return tf.zeros([0], tf.uint8)
    return blocks[0] if len(blocks) == 1 else tf.concat(blocks, 0)


class Segments(NamedTuple):
    """The tensors of a payload in its order: who sends them one after the other copies nothing.

    Args:
        layout: of the payload.
        tensors: of the layout's shapes and dtypes, each to lie on lines of its own.
    """

    layout: Layout
    tensors: tuple[tf.Tensor, ...]

    @classmethod
    def of(cls, layout: Layout, tensors: Mapping[str, tf.Tensor]) -> Segments:
        """In the order of the layout.

        Args:
            layout: of the payload.
            tensors: as `pack` takes them.
        """
        segments = (segment for block in layout.blocks for segment in block.segments)
        return cls(layout, tuple(_fitted(tensors[segment.name], segment) for segment in segments))

    def followed_by(self, data: tf.Tensor) -> tf.Tensor:
        """The payload as one vector, with bytes behind it, if there are any."""
        names = [segment.name for block in self.layout.blocks for segment in block.segments]
        payload = pack(self.layout, dict(zip(names, self.tensors, strict=True)))
        return payload if data.shape == [0] else tf.concat([payload, data], 0)


def unpack(layout: Layout, payload: tf.Tensor) -> dict[str, tf.Tensor]:
    """The tensors of a payload, as views where TensorFlow can share the buffer."""
    tensors: dict[str, tf.Tensor] = {}
    payload = tf.ensure_shape(payload, [layout.size_bytes])
    data = [payload]
    if len(layout.blocks) > 1:
        # Not slices: in a loop TensorFlow takes the first half of a payload of unknown length for
        # the whole when the second half is as long, and drops the slice.
        data = tf.split(payload, [block.size_bytes for block in layout.blocks])
    for block, part in zip(layout.blocks, data, strict=False):
        tensors.update(split_block(_from_bytes(part, block), block))
    return tensors


def split_block(vector: tf.Tensor, block: Block) -> dict[str, tf.Tensor]:
    """The tensors of a block, by name, from its items."""
    sizes = [segment.padded_items for segment in block.segments]
    parts = tf.split(vector, sizes) if len(sizes) > 1 else [vector]
    return {
        segment.name: tf.reshape(
            part if segment.padded_items == segment.items else part[: segment.items], segment.shape
        )
        for segment, part in zip(block.segments, parts, strict=True)
    }


def joined_block(block: Block, tensors: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """The items of a block, from its tensors by name."""
    stored = tf.uint8 if block.dtype == "bool" else tf.as_dtype(block.dtype)
    parts = []
    for segment in block.segments:
        parts.append(tf.reshape(tf.cast(tensors[segment.name], stored), [segment.items]))
        padding = segment.padded_items - segment.items
        if padding:
            parts.append(tf.zeros([padding], stored))
    return parts[0] if len(parts) == 1 else tf.concat(parts, 0)


def _fitted(tensor: tf.Tensor, segment: Segment) -> tf.Tensor:
    tensor = tf.cast(tensor, segment.dtype)
    return tensor if tensor.shape == segment.shape else tf.reshape(tensor, segment.shape)


def _as_bytes(vector: tf.Tensor) -> tf.Tensor:
    if vector.dtype == tf.uint8:
        return vector
    data = tf.bitcast(vector, tf.uint8)
    return tf.reshape(data, [-1])


def _from_bytes(data: tf.Tensor, block: Block) -> tf.Tensor:
    if block.dtype == "uint8":
        return data
    if block.dtype == "bool":
        return tf.cast(data, tf.bool)
    dtype = tf.as_dtype(block.dtype)
    if dtype.size == 1:
        return tf.bitcast(data, dtype)
    return tf.bitcast(tf.reshape(data, [block.items, dtype.size]), dtype)
