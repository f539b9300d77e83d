"""The interface of codecs, which encode a vector on one side and decode it on the other."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from tfps.compression.late_tensorflow import tf
from tfps.errors import ConfigError

ITEM_BYTES = 4  # codecs encode float32 vectors


@runtime_checkable
class Codec(Protocol):
    """Encodes and decodes flat vectors, in a graph; implement it for a codec of your own.

    Pass it as ``compression`` of a `tfps.ParameterServerStrategy`. A vector concatenates all
    gradients of one server that have this codec, each padded with zeros to a multiple of 64 bytes.
    The number of encoded bytes depends only on the number of items. A class whose
    ``is_unbiased`` is True promises that vectors arrive unchanged on average. The error of any
    other codec stays on the worker and is added to the next gradient
    (`tfps.compression.memory.ErrorFeedback`), unless its ``memory`` is another one.

    Example:

    >>> class Half:
    ...     def encode(self, vector, *, seed):
    ...         return tf.reshape(tf.bitcast(tf.cast(vector, tf.float16), tf.uint8), [-1])
    ...     def decode(self, data, items):
    ...         halves = tf.bitcast(tf.reshape(data, [items, 2]), tf.float16)
    ...         return tf.cast(halves, tf.float32)
    ...     def size_bytes(self, items):
    ...         return 2 * items
    >>> codec_problem(Half(), items=8) is None
    True
    """

    def encode(self, vector: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        """Encode a vector.

        Args:
            vector: a float32 vector of statically known length.
            seed: an int64 vector of two items for `tf.random.stateless_uniform`; the same when a
                step is repeated.

        Returns:
            A uint8 vector of ``size_bytes(items)`` bytes.
        """

    def decode(self, data: tf.Tensor, items: int) -> tf.Tensor:
        """Decode a vector that `encode` has encoded.

        Args:
            data: a uint8 vector of ``size_bytes(items)`` bytes.
            items: the length of the original vector.

        Returns:
            A float32 vector of ``items`` items.
        """

    def size_bytes(self, items: int) -> int:
        """Return the number of bytes of an encoded vector.

        Args:
            items: the length of the original vector.
        """


def is_codec(value: Any) -> bool:
    """Return whether a value is a codec, and not the class of one."""
    return isinstance(value, Codec) and not isinstance(value, type)


def codec_problem(codec: Codec, items: int) -> str | None:
    """Return why a codec's shapes or dtypes are wrong, or None; traces it in a temporary graph.

    Args:
        codec: the codec, which may be a user's.
        items: the length of the vector to try.
    """
    size = codec.size_bytes(items)
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        return f"received {size!r} from size_bytes({items}), expected the number of bytes as an int"
    with tf.Graph().as_default():
        vector = tf.zeros([items], tf.float32)
        data = tf.convert_to_tensor(codec.encode(vector, seed=tf.zeros([2], tf.int64)))
        if data.dtype != tf.uint8 or data.shape != [size]:
            return (
                f"received {_spec_text(data)} from encode() of {items} items, expected a uint8 "
                f"vector of {size} bytes, as size_bytes({items}) returns; the graph must know the "
                "shape"
            )
        back = tf.convert_to_tensor(codec.decode(tf.zeros([size], tf.uint8), items))
        if back.dtype != tf.float32 or back.shape != [items]:
            return (
                f"received {_spec_text(back)} from decode(), expected a float32 vector of {items} "
                "items"
            )
    return None


def check_codec(codec: Codec, items: int) -> None:
    """Raise a `ConfigError` if a codec's shapes or dtypes are wrong."""
    if problem := codec_problem(codec, items):
        raise ConfigError(f"compression: {codec!r}: {problem}")


def _spec_text(tensor: tf.Tensor) -> str:
    return f"a {tensor.dtype.name} tensor of shape {tensor.shape}"
