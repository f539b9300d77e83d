"""Packs tensors into one byte vector by a layout, and unpacks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from tfps.transport.layout import Block, Layout, Segment


def pack(layout: Layout, tensors: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Pack tensors into a payload: one concatenation per dtype, then a view as bytes.

    Args:
        layout: the positions of the tensors.
        tensors: name -> tensor of the layout's shape; cast to the layout's dtype.

    Returns:
        A uint8 vector of ``layout.size_bytes``.
    """
    blocks = [_as_bytes(join_block(block, tensors)) for block in layout.blocks]
    if not blocks:
        return tf.zeros([0], tf.uint8)
    return blocks[0] if len(blocks) == 1 else tf.concat(blocks, 0)


class Segments(NamedTuple):
    """The tensors of a payload in its order, which can be sent one by one without a copy.

    Args:
        layout: the layout of the payload.
        tensors: tensors of the layout's shapes and dtypes; padded here to multiples of 64 bytes.
    """

    layout: Layout
    tensors: tuple[tf.Tensor, ...]

    @classmethod
    def pack(cls, layout: Layout, tensors: Mapping[str, tf.Tensor]) -> Segments:
        """Return tensors in the order of a layout.

        Args:
            layout: the layout of the payload.
            tensors: as in `pack`.
        """
        segments = (segment for block in layout.blocks for segment in block.segments)
        return cls(
            layout, tuple(_pad_to_segment(tensors[segment.name], segment) for segment in segments)
        )

    def join_with(self, data: tf.Tensor) -> tf.Tensor:
        """Return the payload as one vector, followed by the given bytes."""
        names = [segment.name for block in self.layout.blocks for segment in block.segments]
        payload = pack(self.layout, dict(zip(names, self.tensors, strict=True)))
        return payload if data.shape == [0] else tf.concat([payload, data], 0)


def unpack(layout: Layout, payload: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the tensors of a payload, as views where TensorFlow can share the buffer."""
    tensors: dict[str, tf.Tensor] = {}
    payload = tf.ensure_shape(payload, [layout.size_bytes])
    data = [payload]
    if len(layout.blocks) > 1:
        # Not slices: in a loop, if a payload of unknown length has two halves of equal length,
        # TensorFlow takes the first half for the whole and drops the slice.
        data = tf.split(payload, [block.size_bytes for block in layout.blocks])
    for block, part in zip(layout.blocks, data, strict=False):
        tensors.update(split_block(_from_bytes(part, block), block))
    return tensors


def split_block(vector: tf.Tensor, block: Block) -> dict[str, tf.Tensor]:
    """Split the items of a block into its tensors by name."""
    sizes = [segment.padded_items for segment in block.segments]
    parts = tf.split(vector, sizes) if len(sizes) > 1 else [vector]
    return {
        segment.name: tf.reshape(
            part if segment.padded_items == segment.items else part[: segment.items], segment.shape
        )
        for segment, part in zip(block.segments, parts, strict=True)
    }


def join_block(block: Block, tensors: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Join tensors by name into the items of a block."""
    stored = tf.uint8 if block.dtype == "bool" else tf.as_dtype(block.dtype)
    parts = []
    for segment in block.segments:
        parts.append(tf.reshape(tf.cast(tensors[segment.name], stored), [segment.items]))
        padding = segment.padded_items - segment.items
        if padding:
            parts.append(tf.zeros([padding], stored))
    return parts[0] if len(parts) == 1 else tf.concat(parts, 0)


def _pad_to_segment(tensor: tf.Tensor, segment: Segment) -> tf.Tensor:
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
