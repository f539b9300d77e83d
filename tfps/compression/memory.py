"""Encode gradients with residuals that a worker keeps from one push to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from tfps.compression.codec import Codec
from tfps.compression.late_tensorflow import tf

MemoryState: TypeAlias = "tuple[tf.Tensor, ...]"


class EncodedGradient(NamedTuple):
    """Holds an encoded gradient, and the worker's state after a server has applied it."""

    data: tf.Tensor  # the encoded gradient, uint8
    kept: MemoryState


@runtime_checkable
class Memory(Protocol):
    """Encodes the gradients of one codec, with a state that the worker keeps.

    It begins with zeros. If a server refuses a gradient, because it came too late or was too stale,
    all floats of the state become zeros again. Give a codec of your own a property ``memory`` if it
    keeps anything else than its error.
    """

    def specs(self, items: int) -> tuple[tf.TensorSpec, ...]:
        """Return the shapes and dtypes of the state for a vector; the residual comes first."""

    def code(
        self, vector: tf.Tensor, kept: MemoryState, *, scale: Any, seed: tf.Tensor
    ) -> EncodedGradient:
        """Encode a gradient whose numbers are finite; returns its bytes and the new state.

        Args:
            vector: float32, multiplied by ``scale``; so are the encoded numbers.
            kept: the state, as ``specs`` says, for a loss that is not scaled.
            scale: the scale of the loss.
            seed: see `Codec.encode`.
        """


@dataclass(frozen=True)
class NoMemory:
    """The empty state of a codec without bias.

    Args:
        codec: the codec of the gradients.
    """

    codec: Codec

    def specs(self, items: int) -> tuple[tf.TensorSpec, ...]:
        return ()

    def code(
        self, vector: tf.Tensor, kept: MemoryState, *, scale: Any, seed: tf.Tensor
    ) -> EncodedGradient:
        return EncodedGradient(self.codec.encode(vector, seed=seed), ())


@dataclass(frozen=True)
class ErrorFeedback:
    """Adds the error of one encoded gradient to the next one.

    Source: Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression
    Schemes", ICML 2019.

    Args:
        codec: the codec of the gradients.
    """

    codec: Codec

    def specs(self, items: int) -> tuple[tf.TensorSpec, ...]:
        return (tf.TensorSpec([items], tf.float32),)

    def code(
        self, vector: tf.Tensor, kept: MemoryState, *, scale: Any, seed: tf.Tensor
    ) -> EncodedGradient:
        whole = vector + kept[0] * scale
        data = self.codec.encode(whole, seed=seed)
        return EncodedGradient(data, ((whole - self.codec.decode(data, vector.shape[0])) / scale,))


def memory_of(codec: Codec) -> Memory:
    """Return the state that workers keep for a codec: its own ``memory``, else chosen by its bias.

    Example:

    >>> from tfps.compression.cast import Cast
    >>> memory_of(Cast())
    NoMemory(codec=Cast(dtype='bfloat16'))
    """
    own = getattr(codec, "memory", None)
    if isinstance(own, Memory):
        return own
    return NoMemory(codec) if getattr(codec, "is_unbiased", False) else ErrorFeedback(codec)


def keeps_state(codec: Codec) -> bool:
    """Return whether workers keep a state for a codec."""
    return not isinstance(memory_of(codec), NoMemory)
