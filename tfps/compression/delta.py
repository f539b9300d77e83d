"""A codec that sends the changes of parameters since the last reply to a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tfps.compression.codec import Codec, is_codec
from tfps.compression.late_tensorflow import tf
from tfps.errors import ConfigError


@dataclass(frozen=True)
class Delta:
    """Sends parameters as differences from the worker's copy, compressed by another codec.

    Use it for ``pull`` of `PushPull`: parameters need most of their bits, but the change of an
    update is small, and mostly in a few places. A server keeps a copy of each worker's parameters,
    so the error of one reply is part of the next difference and nothing is lost: biased codecs work
    as well. It costs each server one float32 copy of these parameters for each worker, and each
    worker one copy.

    Source: Tang et al., "DoubleSqueeze: Parallel Stochastic Gradient Descent with Double-Pass
    Error-Compensated Compression", ICML 2019.

    Args:
        codec: the codec of the differences. Both sides decode them, so a codec of your own must
            decode the same bytes to the same numbers, bit by bit, on every machine.

    Raises:
        ConfigError: ``codec`` is not a codec, or another `Delta`.

    Example:

    >>> from tfps.compression.top_k import TopK
    >>> Delta(TopK(0.01)).size_bytes(10_000)
    800
    """

    codec: Codec

    is_unbiased: ClassVar[bool] = True  # workers keep no residual
    is_delta: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_codec(self.codec) or is_delta(self.codec):
            raise ConfigError(
                f"codec: received {self.codec!r}, expected a codec of values, such as "
                "tfps.compression.TopK(0.01)",
                source="Delta",
            )

    def encode(self, vector: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        """Encode the difference between the parameters and the worker's copy of them.

        Args:
            vector: the difference, a float32 vector of statically known length.
            seed: an int64 vector of two items, passed on to ``codec``.

        Returns:
            A uint8 vector of ``size_bytes(items)`` bytes.
        """
        return self.codec.encode(vector, seed=seed)

    def decode(self, data: tf.Tensor, items: int) -> tf.Tensor:
        return self.codec.decode(data, items)

    def size_bytes(self, items: int) -> int:
        return self.codec.size_bytes(items)


def is_delta(codec: Codec) -> bool:
    """Return whether a codec's values are added to the other side's copy."""
    return bool(getattr(codec, "is_delta", False))
