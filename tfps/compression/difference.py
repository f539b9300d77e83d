"""What has changed since a worker was answered last, as another codec's bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tfps.compression.codec import Codec, is_codec
from tfps.compression.late_tensorflow import tf
from tfps.errors import ConfigError


@dataclass(frozen=True)
class Difference:
    """Parameters travel as differences to what the worker holds, and a codec makes these smaller.

    For ``down`` of `Both`, where the parameters themselves would need most of their bits: what an
    update changes is small, and mostly in a few places. A server keeps what it has made each worker
    hold, so what a codec leaves out of one reply is part of the next difference, and nothing is
    lost: biased codecs go as well. It costs each server the parameters that it codes once more for
    each worker, in float32, and each worker once.

    Source: Tang et al., "DoubleSqueeze: Parallel Stochastic Gradient Descent with Double-Pass
    Error-Compensated Compression", ICML 2019.

    Args:
        codec: of the differences. Both sides decode them, so one of your own must decode the same
            bytes to the same numbers, bit by bit, on every machine.

    Raises:
        ConfigError: no codec, or another `Difference`.

    Example:

    >>> from tfps.compression.top_k import TopK
    >>> Difference(TopK(0.01)).size_bytes(10_000)
    800
    """

    codec: Codec

    is_unbiased: ClassVar[bool] = True  # workers keep nothing of what is left out
    is_difference: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_codec(self.codec) or is_difference(self.codec):
            raise ConfigError(
                f"codec: received {self.codec!r}, expected a codec of values, such as "
                "tfps.compression.TopK(0.01)",
                source="Difference",
            )

    def encode(self, vector: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        """The bytes of a difference."""
        return self.codec.encode(vector, seed=seed)

    def decode(self, data: tf.Tensor, items: int) -> tf.Tensor:
        return self.codec.decode(data, items)

    def size_bytes(self, items: int) -> int:
        return self.codec.size_bytes(items)


def is_difference(codec: Codec) -> bool:
    """Whether a codec's bytes are to be added to what the other side holds."""
    return bool(getattr(codec, "is_difference", False))
