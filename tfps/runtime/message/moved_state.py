"""Describes how a worker's steps move variables, and applies such moves to newer values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.variables.shards import get_shards
from tfps.runtime.program.pace import MovingPace
from tfps.runtime.program.program import Program

KEPT = "kept of old values"  # one factor for each variable that the program moves


class ShardMove(NamedTuple):
    """A shard of a variable that steps move at a known pace."""

    shard: Any
    position: int  # of the variable among those that the program moves
    pace: MovingPace
    has_center: bool  # whether the batch's center comes as well, see `Program.centers`


class MovedState(NamedTuple):
    """The value of a variable before and after a worker's steps."""

    new: tf.Tensor
    begin: tf.Tensor
    kept_fraction: tf.Tensor  # of the old value, a float64 scalar
    center: tf.Tensor | None = None

    def apply_to(self, old: tf.Tensor) -> tf.Tensor:
        """Apply the same steps to another old value, and return the result.

        If the old value is the one from which the steps began, the result equals their new value
        bit for bit; an infinity from which they began has no difference to another old value, and
        the result is their new value as well.
        """
        kept, moved = tf.cast(self.kept_fraction, old.dtype), old - self.begin
        if not old.dtype.is_floating:
            return self.new + kept * moved
        is_new = tf.equal(old, self.begin) | tf.math.is_inf(self.begin)
        return tf.where(is_new, self.new, self.new + tf.math.multiply_no_nan(moved, kept))


def add_change(old: tf.Tensor, *, new: tf.Tensor, begin: tf.Tensor, workers: Any = 1) -> tf.Tensor:
    """Add a worker's part of a change to a value, where no pace is known.

    A change from or to infinity has no difference, so it counts as a whole: the new value replaces
    the old one.

    Args:
        old: real numbers, a value of the variable.
        new: the value after the worker's steps.
        begin: the value before them.
        workers: the number of workers that share in changes.

    Returns:
        The next value. For one worker it is the new value, bit for bit, if the old one is that
        before the steps.
    """
    mean = old + (new - begin) / tf.cast(tf.maximum(workers, 1), old.dtype)
    is_alone = tf.equal(old, begin) & (workers <= 1)
    is_whole = is_alone | tf.math.is_inf(old) | tf.math.is_inf(begin) | tf.math.is_inf(new)
    return tf.where(is_whole, tf.where(tf.equal(new, begin), old, new), mean)


def get_begin_name(shard: Any) -> str:
    """Return the name, in a payload, of the value from which steps began."""
    return f"begin of {shard._value.shared_name}"


def get_center_name(shard: Any) -> str:
    """Return the name, in a payload, of the new center for a variance."""
    return f"center of {shard._value.shared_name}"


def find_moves(program: Program, shards: Iterable[Any]) -> tuple[ShardMove, ...]:
    """Return the moves of the shards that the program moves at a known pace."""
    positions = {
        id(shard): (position, variable)
        for position, variable in enumerate(program.moved_variables)
        for shard in get_shards(variable)
    }
    centers = program.centers_in_rounds
    return tuple(
        ShardMove(shard, position, program.paces[id(variable)], id(variable) in centers)
        for shard in shards
        if id(shard) in positions
        for position, variable in [positions[id(shard)]]
    )


def list_move_entries(
    moves: Sequence[ShardMove], program: Program
) -> list[tuple[str, str, tuple[int, ...]]]:
    """List the payload entries of moves beside the new values: names, dtypes and shapes."""
    entries = []
    for move in moves:
        native = move.shard._value
        names = [get_begin_name(move.shard)]
        names += [get_center_name(move.shard)] if move.has_center else []
        entries += [(name, native.dtype.name, tuple(native.shape)) for name in names]
    return [*entries, (KEPT, "float64", (len(program.moved_variables),))] if moves else []


def unpack_moves(
    moves: Sequence[ShardMove], tensors: Mapping[str, tf.Tensor]
) -> dict[str, MovedState]:
    """Return the moves in the tensors of a message, by the names of their shards."""
    return {
        move.shard._value.shared_name: MovedState(
            new=tensors[move.shard._value.shared_name],
            begin=tensors[get_begin_name(move.shard)],
            kept_fraction=tensors[KEPT][move.position],
            center=tensors[get_center_name(move.shard)] if move.has_center else None,
        )
        for move in moves
    }
