"""Encodes the rows of tables for messages: unchanged, or each as bytes of a codec."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfps.bridge.variables.shards import get_row_bytes
from tfps.compression.by_path import CodecChoice
from tfps.compression.row_codec import RowCodec, row_codec_of
from tfps.optimizers.gathered_rows import concat_rows
from tfps.transport.traffic import CodedPart


@dataclass(frozen=True)
class RowFormat:
    """The format of one shard's rows that travel unchanged.

    Args:
        native: the shard's variable.
    """

    native: Any

    @property
    def kind(self) -> Hashable:
        """A key for formats: rows of one kind are encoded together."""
        return self.row_shape, self.native.dtype.name

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(self.native.shape[1:])

    @property
    def size_bytes(self) -> int:
        """The size of an encoded row."""
        return get_row_bytes(self.native)

    def encode(self, rows: tf.Tensor, *, seed: tf.Tensor | None = None) -> tf.Tensor:
        """Return the bytes of rows, one after the other.

        Args:
            rows: of the shard's dtype.
            seed: int64 [2], the seed of a codec.
        """
        return tf.reshape(tf.bitcast(rows, tf.uint8), [-1])

    def decode(self, data: tf.Tensor) -> tf.Tensor:
        """Return rows from their bytes."""
        dtype, shape = self.native.dtype, [-1, *self.row_shape]
        if dtype.size == 1:
            return tf.reshape(tf.bitcast(data, dtype), shape)
        return tf.reshape(tf.bitcast(tf.reshape(data, [-1, dtype.size]), dtype), shape)

    def measure_sizes(self, rows: tf.Tensor) -> list[CodedPart]:
        """Return the sizes of a number of rows before and after encoding; empty without codec."""
        return []


@dataclass(frozen=True)
class CodedRows(RowFormat):
    """The format of rows that travel as bytes of a codec, each by itself.

    Args:
        native: the shard's variable.
        codec: the codec of the rows.
        group: the group of variables that have it for the same reason.
    """

    codec: RowCodec
    group: str

    @property
    def kind(self) -> Hashable:
        return super().kind, repr(self.codec)

    @property
    def size_bytes(self) -> int:
        return self.codec.size_bytes(self._items)

    def encode(self, rows: tf.Tensor, *, seed: tf.Tensor | None = None) -> tf.Tensor:
        flat = tf.reshape(tf.cast(rows, tf.float32), [-1, self._items])
        return tf.reshape(self.codec.encode_rows(flat, seed=seed), [-1])

    def decode(self, data: tf.Tensor) -> tf.Tensor:
        rows = self.codec.decode_rows(tf.reshape(data, [-1, self.size_bytes]), self._items)
        return tf.cast(tf.reshape(rows, [-1, *self.row_shape]), self.native.dtype)

    def measure_sizes(self, rows: tf.Tensor) -> list[CodedPart]:
        plain = get_row_bytes(self.native)
        return [CodedPart(repr(self.codec), self.group, rows * self.size_bytes, rows * plain)]

    @property
    def _items(self) -> int:
        return math.prod(self.row_shape)


def choose_row_formats(
    shards: Sequence[Any], choices: Mapping[int, CodecChoice]
) -> tuple[RowFormat, ...]:
    """Choose the formats of the rows of some shards.

    Args:
        shards: shards of tables, as Keras variables.
        choices: the codecs, by the ids of shards.
    """
    return tuple(_choose_row_format(shard._value, choices.get(id(shard))) for shard in shards)


def _choose_row_format(native: Any, choice: CodecChoice | None) -> RowFormat:
    if choice is None:
        return RowFormat(native)
    codec = row_codec_of(choice.codec, math.prod(native.shape[1:]))
    return RowFormat(native) if codec is None else CodedRows(native, codec, choice.group)


def encode_all_rows(
    formats: Sequence[RowFormat], rows: Sequence[tf.Tensor], *, seed: tf.Tensor
) -> tf.Tensor:
    """Encode the rows of several variables, one after the other."""
    return concat_rows(
        [
            formats[run[0]].encode(concat_rows([rows[k] for k in run]), seed=seed)
            for run in _group_neighbors(formats)
        ]
    )


def decode_all_rows(
    data: tf.Tensor, formats: Sequence[RowFormat], counts: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Decode the rows of several variables from their concatenated bytes.

    Args:
        data: all bytes.
        formats: the formats of the variables' rows.
        counts: the number of rows of each variable, int64.
    """
    runs = list(_group_neighbors(formats))
    sizes = [tf.add_n([counts[k] for k in run]) * formats[run[0]].size_bytes for run in runs]
    parts = [data] if len(runs) == 1 else tf.split(data, sizes)
    decoded: list[tf.Tensor] = []
    for run, part in zip(runs, parts, strict=True):
        rows = formats[run[0]].decode(part)
        decoded += [rows] if len(run) == 1 else tf.split(rows, [counts[k] for k in run])
    return decoded


def _group_neighbors(formats: Sequence[RowFormat]) -> Iterator[list[int]]:
    """Yield the indices of consecutive formats of the same kind."""
    for _, run in itertools.groupby(range(len(formats)), lambda number: formats[number].kind):
        yield list(run)
