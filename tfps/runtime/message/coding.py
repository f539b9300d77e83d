"""Encodes gradients and parameters with codecs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfps.bridge.variables.shards import get_shards, get_size_bytes
from tfps.compression.by_path import CodecChoice
from tfps.compression.codec import Codec
from tfps.compression.directions import Codecs, choice_for
from tfps.compression.identity import Identity
from tfps.errors import UnsupportedError
from tfps.transport.layout import Block, Layout
from tfps.transport.packing import join_block, split_block
from tfps.transport.traffic import CodedPart


@dataclass(frozen=True)
class CodedVector:
    """Tensors of one server and dtype that a codec encodes as one vector.

    Args:
        choice: the codec of all of them, and the reason for it.
        layout: the layout of the tensors on the sender.
        received: the layout of the same items on the receiver.
    """

    choice: CodecChoice
    layout: Layout
    received: Layout

    @property
    def codec(self) -> Codec:
        return self.choice.codec

    @property
    def name(self) -> str:
        """The name in a payload: both sides of a plan have the same codec."""
        return f"{self.codec!r} of {self.layout.names[0]}"

    @property
    def digest(self) -> str:
        """A hash of the layout, which does not depend on the codec."""
        return hashlib.blake2b(repr(self.layout).encode(), digest_size=8).hexdigest()

    @property
    def items(self) -> int:
        """The number of items of the vector."""
        return self._block.items

    @property
    def size_bytes(self) -> int:
        """The size of the encoded vector."""
        return self.codec.size_bytes(self.items)

    @property
    def entry(self) -> tuple[str, str, tuple[int, ...]]:
        """The layout entry of the encoded bytes: name, dtype and shape."""
        return self.name, "uint8", (self.size_bytes,)

    @property
    def sizes(self) -> CodedPart:
        """The sizes in bytes before and after encoding, for the counters."""
        sent = Layout.from_entries([self.entry]).size_bytes
        return CodedPart(repr(self.codec), self.choice.group, sent, self.layout.size_bytes)

    def build_vector(self, tensors: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Build the float32 vector that the sender encodes from its tensors, given by name."""
        return tf.cast(join_block(self._block, tensors), tf.float32)

    def build_received_vector(self, tensors: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Build the vector that the sender has encoded from the receiver's tensors, by name."""
        (block,) = self.received.blocks
        return tf.cast(join_block(block, tensors), tf.float32)

    def decode(self, data: tf.Tensor) -> tf.Tensor:
        """Decode the vector from a codec's bytes."""
        return self.codec.decode(data, self.items)

    def decode_tensors(self, data: tf.Tensor) -> dict[str, tf.Tensor]:
        """Decode the receiver's tensors, by name, from a codec's bytes."""
        return self.split_vector(self.decode(data))

    def split_vector(self, vector: tf.Tensor) -> dict[str, tf.Tensor]:
        """Split a decoded vector into the receiver's tensors, by name."""
        (block,) = self.received.blocks
        return split_block(tf.cast(vector, block.dtype), block)

    @property
    def _block(self) -> Block:
        (block,) = self.layout.blocks
        return block


def choose_codecs(variables: Iterable[Any], codecs: Codecs | None) -> dict[int, CodecChoice]:
    """Choose a codec for each shard, by the shard's id; shards without a codec are left out.

    Args:
        variables: whole variables.
        codecs: chooses codecs; None: all tensors travel as they are.

    Raises:
        UnsupportedError: a variable whose numbers are not real.
    """
    choices: dict[int, CodecChoice] = {}
    if codecs is None:
        return choices
    for variable in variables:
        if getattr(variable, "overwrite_with_gradient", False):
            continue  # its gradient is its next value
        shards = get_shards(variable)
        size_bytes = sum(get_size_bytes(shard._value) for shard in shards)
        choice = choice_for(codecs, variable.path, size_bytes=size_bytes)
        for shard in shards:
            if isinstance(choice.codec, Identity):
                continue
            if not shard._value.dtype.is_floating:
                raise UnsupportedError(
                    f"compression: received {choice.codec!r} for {variable.path} of dtype "
                    f"{shard._value.dtype.name}, expected a floating-point variable. Send it "
                    f"uncompressed with tfps.compression.ByPath({{{variable.path!r}: "
                    f"Identity()}}, otherwise={choice.codec!r})"
                )
            choices[id(shard)] = choice
    return choices
