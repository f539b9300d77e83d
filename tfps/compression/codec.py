"""What makes a vector smaller on one side of a message, and whole again on the other."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from tfps.compression.late_tensorflow import tf
from tfps.errors import ConfigError

ITEM_BYTES = 4  # of the vectors that codecs are given, which are float32


@runtime_checkable
class Codec(Protocol):
    """Codes flat vectors, in a graph.

    A vector holds all gradients of one server that the codec is for, one after the other, each
    filled up with zeros to a multiple of 64 bytes. The number of bytes depends on the number of
    items alone. A class that says ``is_unbiased = True`` promises that what arrives is, on average,
    what was sent; what any other codec leaves out stays on the worker, and is added to the next
    gradient (`tfps.compression.memory.ErrorFeedback`), unless its ``memory`` is another one.
    """

    def encode(self, vector: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        """The bytes of a vector.

        Args:
            vector: float32, of known length.
            seed: int64 [2], for `tf.random.stateless_uniform`: the same for a step that is taken
                again.

        Returns:
            A uint8 vector of ``size_bytes`` of its length.
        """

    def decode(self, data: tf.Tensor, items: int) -> tf.Tensor:
        """The float32 vector of so many items that ``encode`` made the bytes of, about."""

    def size_bytes(self, items: int) -> int:
        """How many bytes a vector of so many items takes."""


def is_codec(value: Any) -> bool:
    """Whether a value is a codec, and not the class of one."""
    return isinstance(value, Codec) and not isinstance(value, type)


def codec_problem(codec: Codec, items: int) -> str | None:
    """Code a vector in a graph that is thrown away; says what does not fit, None if all does.

    Args:
        codec: which may be a user's.
        items: of the vector.
    """
    size = codec.size_bytes(items)
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        return f"size_bytes({items}) gave {size!r}, expected the number of bytes as an int"
    with tf.Graph().as_default():
        vector = tf.zeros([items], tf.float32)
        data = tf.convert_to_tensor(codec.encode(vector, seed=tf.zeros([2], tf.int64)))
        if data.dtype != tf.uint8 or data.shape != [size]:
            return (
                f"encode made {_in_words(data)} of {items} items, expected a uint8 vector of the "
                f"{size} bytes that size_bytes({items}) says; the shape must be known in the graph"
            )
        back = tf.convert_to_tensor(codec.decode(tf.zeros([size], tf.uint8), items))
        if back.dtype != tf.float32 or back.shape != [items]:
            return f"decode made {_in_words(back)}, expected a float32 vector of {items} items"
    return None


def check_codec(codec: Codec, items: int) -> None:
    """Raise a `ConfigError` where a codec's bytes are not as many as it says."""
    if problem := codec_problem(codec, items):
        raise ConfigError(f"compression: {codec!r}: {problem}")


def _in_words(tensor: tf.Tensor) -> str:
    return f"a {tensor.dtype.name} tensor of shape {tensor.shape}"
