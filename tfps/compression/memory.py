"""What a worker keeps of gradients, from one push to the next, because of a codec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from tfps.compression.codec import Codec
from tfps.compression.late_tensorflow import tf

Kept: TypeAlias = "tuple[tf.Tensor, ...]"


class Remembered(NamedTuple):
    """A gradient on its way, and what its worker goes on with when a server has taken it."""

    data: tf.Tensor  # a codec's bytes
    kept: Kept


@runtime_checkable
class Memory(Protocol):
    """What stays on the worker beside the gradients that one codec makes smaller.

    It begins with zeros. Where a server refuses a gradient, because it came too late or was too
    stale, all real numbers of it become zeros again. A codec that keeps something else than what it
    leaves out has a property ``memory``.
    """

    def specs(self, items: int) -> tuple[tf.TensorSpec, ...]:
        """What is kept beside a vector of so many items; first what is still to be sent."""

    def code(self, vector: tf.Tensor, kept: Kept, *, scale: Any, seed: tf.Tensor) -> Remembered:
        """Code a gradient whose numbers are finite.

        Args:
            vector: float32, multiplied by ``scale``; so are the numbers that are sent.
            kept: as ``specs`` says, of a loss that is not scaled.
            scale: of the loss.
            seed: as `Codec.encode` takes it.
        """


@dataclass(frozen=True)
class NoMemory:
    """Of a codec whose numbers arrive, on average, as they were.

    Args:
        codec: of the gradients.
    """

    codec: Codec

    def specs(self, items: int) -> tuple[tf.TensorSpec, ...]:
        return ()

    def code(self, vector: tf.Tensor, kept: Kept, *, scale: Any, seed: tf.Tensor) -> Remembered:
        return Remembered(self.codec.encode(vector, seed=seed), ())


@dataclass(frozen=True)
class ErrorFeedback:
    """What is left out of a gradient is added to the next one.

    Source: Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression
    Schemes", ICML 2019.

    Args:
        codec: of the gradients.
    """

    codec: Codec

    def specs(self, items: int) -> tuple[tf.TensorSpec, ...]:
        return (tf.TensorSpec([items], tf.float32),)

    def code(self, vector: tf.Tensor, kept: Kept, *, scale: Any, seed: tf.Tensor) -> Remembered:
        whole = vector + kept[0] * scale
        data = self.codec.encode(whole, seed=seed)
        return Remembered(data, ((whole - self.codec.decode(data, vector.shape[0])) / scale,))


def memory_of(codec: Codec) -> Memory:
    """What a worker keeps because of a codec: what the codec says, or what it leaves out.

    Example:

    >>> from tfps.compression.cast import Cast
    >>> memory_of(Cast())
    NoMemory(codec=Cast(dtype='bfloat16'))
    """
    own = getattr(codec, "memory", None)
    if isinstance(own, Memory):
        return own
    return NoMemory(codec) if getattr(codec, "is_unbiased", False) else ErrorFeedback(codec)


def keeps_something(codec: Codec) -> bool:
    """Whether a codec makes workers keep anything."""
    return not isinstance(memory_of(codec), NoMemory)
