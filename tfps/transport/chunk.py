"""The sizes of the chunks of large messages, and of the largest message over `grpc`. Pure."""

from __future__ import annotations

import os

from tfps.errors import ConfigError

# System calls of Linux, and files of protocol buffers, are limited to 2 GiB. For parts of this size
# the overhead of calls is small.
CHUNK_BYTES = 256 * 2**20
CHUNK_BYTES_VARIABLE = "TFPS_CHUNK_BYTES"
# For a payload that cannot be divided, with room for the rest of its message.
MAX_MESSAGE_BYTES = 2**31 - 2**20


def chunk_bytes_from_environment() -> int:
    """Return the size of a chunk: ``TFPS_CHUNK_BYTES``, for networks with lower limits, or 256 MiB.

    Raises:
        ConfigError: the variable is set to something else than a whole number above 0.
    """
    text = os.environ.get(CHUNK_BYTES_VARIABLE, "").strip()
    if not text:
        return CHUNK_BYTES
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(
            f"received {text!r}, expected a whole number of bytes above 0; unset it for "
            f"the default, {CHUNK_BYTES}",
            source=CHUNK_BYTES_VARIABLE,
        )
    return int(text)


def max_payload_bytes_from_environment() -> int:
    """Return the largest payload that is sent whole: ``TFPS_CHUNK_BYTES`` or the limit of RPCs.

    Raises:
        ConfigError: the variable is set to something else than a whole number above 0.
    """
    is_set = os.environ.get(CHUNK_BYTES_VARIABLE, "").strip()
    return chunk_bytes_from_environment() if is_set else MAX_MESSAGE_BYTES
