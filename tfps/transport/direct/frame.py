"""Encode and decode a message's prefix, which holds the sizes of its parts. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from tfps.errors import ProtocolError
from tfps.transport.message import PROTOCOL

MAGIC = b"tfps"
# Little-endian: magic, protocol, header fields, ids, payload bytes. The int64 header follows it,
# then the int64 ids, then the payload.
PREFIX = struct.Struct("<4sHHQQ")
ITEM_BYTES = 8  # of a header field and of an id


class FrameError(ProtocolError):
    """Bytes that are no message of this protocol, or a message above its limits."""


@dataclass(frozen=True)
class FrameLimits:
    """The limits of a receiver, which never allocates more than these.

    Args:
        header_fields: the exact length of the int64 header.
        max_ids: the largest number of int64 ids.
        max_payload_bytes: the largest size of the payload.
    """

    header_fields: int
    max_ids: int
    max_payload_bytes: int


class Frame(NamedTuple):
    """The sizes of a message's header, ids and payload, which its prefix contains.

    Example:

    >>> limits = FrameLimits(header_fields=4, max_ids=10, max_payload_bytes=1000)
    >>> Frame.parse(Frame(4, 2, 256).pack(), limits)
    Frame(header_fields=4, ids=2, payload_bytes=256)
    """

    header_fields: int  # 8 bytes each
    ids: int  # the number of ids, 8 bytes each
    payload_bytes: int

    def pack(self) -> bytes:
        """Encode the sizes as the prefix of the message."""
        return PREFIX.pack(MAGIC, PROTOCOL, *self)

    @classmethod
    def parse(cls, prefix: bytes | bytearray | memoryview, limits: FrameLimits) -> Frame:
        """Decode the sizes from a prefix.

        Args:
            prefix: exactly `PREFIX.size` bytes.
            limits: the limits of the receiver.

        Raises:
            FrameError: another length, magic, protocol or header, or sizes above the limits.
        """
        if len(prefix) != PREFIX.size:
            raise FrameError(f"prefix: received {len(prefix)} bytes, expected {PREFIX.size}")
        magic, protocol, fields, ids, payload_bytes = PREFIX.unpack(prefix)
        if magic != MAGIC:
            raise FrameError(
                f"magic: received {magic!r}, expected {MAGIC!r}; connect only tasks of tfps"
            )
        if protocol != PROTOCOL:
            raise FrameError(
                f"protocol: received {protocol}, expected {PROTOCOL}; run the same version of tfps"
                " on all tasks"
            )
        if fields != limits.header_fields:
            raise FrameError(f"header: received {fields} fields, expected {limits.header_fields}")
        if ids > limits.max_ids:
            raise FrameError(f"ids: received {ids}, expected at most {limits.max_ids}")
        if payload_bytes > limits.max_payload_bytes:
            raise FrameError(
                f"payload: received {payload_bytes} bytes, expected at most"
                f" {limits.max_payload_bytes}"
            )
        return cls(fields, ids, payload_bytes)
