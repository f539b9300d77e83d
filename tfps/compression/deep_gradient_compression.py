"""The largest numbers of what momentum has gathered, with their places."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tfps.compression.late_tensorflow import tf
from tfps.compression.memory import Kept, Remembered
from tfps.compression.top_k import (
    PAIR_BYTES,
    chosen_items,
    fraction_problem,
    largest_pairs,
    vector_of_pairs,
)
from tfps.errors import ConfigError

FIRST_FRACTION = 0.25  # with which a warm-up begins


@dataclass(frozen=True)
class DeepGradientCompression:
    """The largest numbers go, as `TopK` sends them, of gradients with momentum on the worker.

    For fractions so small that most numbers wait for long. The worker has the momentum that the
    optimizer would have: each gradient is added to a velocity, and the velocity to what is still to
    be sent. What is sent is taken out of both, so that a number is not carried on by a velocity
    from long ago. In a warm-up more numbers go: a quarter in a worker's first push, and from push
    to push by the same factor fewer, down to ``fraction`` after ``warm_up_steps``. A worker that
    was lost warms up again.

    The optimizer must be plain ``keras.optimizers.SGD``, without momentum: any other is refused.

    Source: Lin et al., "Deep Gradient Compression: Reducing the Communication Bandwidth for
    Distributed Training", ICLR 2018.

    Args:
        fraction: of a server's numbers that goes after the warm-up, above 0, up to 1; at least one
            number does.
        warm_up_steps: pushes of each worker until then; 0: the fraction holds at once.
        momentum: what is left of the velocity from push to push, from 0, below 1.
        clip_norm: the largest length of the gradient that a server gets, cut before it is added to
            the velocity; of N workers take the limit of one machine divided by the square root of
            N. None: there is none.

    Raises:
        ConfigError: anything else.

    Example:

    >>> DeepGradientCompression(0.001, warm_up_steps=1000).size_bytes(100_000)
    800
    """

    fraction: float = 0.001
    warm_up_steps: int = 0
    momentum: float = 0.9
    clip_norm: float | None = None

    is_unbiased: ClassVar[bool] = False
    corrects_momentum: ClassVar[bool] = True  # so an optimizer on the server must have none

    def __post_init__(self) -> None:
        problems = [problem for problem in [fraction_problem(self.fraction)] if problem]
        steps = self.warm_up_steps
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
            problems.append(f"warm_up_steps: received {steps!r}, expected a whole number from 0")
        if not _is_number(self.momentum) or not 0 <= self.momentum < 1:
            problems.append(
                f"momentum: received {self.momentum!r}, expected a number from 0, below 1"
            )
        if self.clip_norm is not None and (not _is_number(self.clip_norm) or self.clip_norm <= 0):
            problems.append(
                f"clip_norm: received {self.clip_norm!r}, expected a number above 0, or None"
            )
        if problems:
            raise ConfigError(problems, source="DeepGradientCompression")

    @property
    def memory(self) -> MomentumCorrection:
        return MomentumCorrection(self)

    def encode(self, vector: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        return largest_pairs(vector, chosen_items(self.fraction, vector.shape[0]))

    def decode(self, data: tf.Tensor, items: int) -> tf.Tensor:
        return vector_of_pairs(data, items)

    def size_bytes(self, items: int) -> int:
        return PAIR_BYTES * chosen_items(self.fraction, items)

    def most_bytes(self, items: int) -> int:
        """How many a vector takes in the first push of a warm-up."""
        return PAIR_BYTES * chosen_items(
            self._first if self.warm_up_steps else self.fraction, items
        )

    def chosen(self, items: int, *, pushes: tf.Tensor) -> tf.Tensor | int:
        """How many numbers go after so many pushes."""
        last = chosen_items(self.fraction, items)
        if not self.warm_up_steps:
            return last
        share = tf.minimum(tf.cast(pushes, tf.float32) / self.warm_up_steps, 1.0)
        fraction = self._first * tf.pow(tf.constant(self.fraction / self._first), share)
        number = tf.cast(tf.math.ceil(fraction * items), tf.int32)
        most = chosen_items(self._first, items)
        return tf.where(pushes < self.warm_up_steps, tf.clip_by_value(number, last, most), last)

    @property
    def _first(self) -> float:
        return max(FIRST_FRACTION, self.fraction)


@dataclass(frozen=True)
class MomentumCorrection:
    """What is still to be sent, the velocity, and how many pushes there were.

    What has arrived and what is still to be sent add up to all velocities.

    Args:
        codec: of the gradients.
    """

    codec: DeepGradientCompression

    def specs(self, items: int) -> tuple[tf.TensorSpec, ...]:
        vector = tf.TensorSpec([items], tf.float32)
        return (vector, vector, tf.TensorSpec([], tf.int64))

    def code(self, vector: tf.Tensor, kept: Kept, *, scale: Any, seed: tf.Tensor) -> Remembered:
        codec, (waiting, velocity, pushes), items = self.codec, kept, vector.shape[0]
        gradient = vector / scale
        if codec.clip_norm is not None:
            gradient = tf.clip_by_norm(gradient, codec.clip_norm)
        velocity = codec.momentum * velocity + gradient
        waiting = waiting + velocity
        data = largest_pairs(waiting * scale, codec.chosen(items, pushes=pushes))
        arrived = codec.decode(data, items) / scale
        velocity = tf.where(tf.equal(arrived, 0), velocity, 0)
        return Remembered(data, (waiting - arrived, velocity, pushes + 1))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
