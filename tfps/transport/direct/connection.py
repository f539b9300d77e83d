"""A connection between a worker and a server that transfers whole messages or raises an error."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tfps.placement.slab import ALIGNMENT_BYTES
from tfps.transport.chunk import chunk_bytes_from_environment
from tfps.transport.direct.buffers import AlignedBuffers
from tfps.transport.direct.frame import ITEM_BYTES, PREFIX, Frame, FrameLimits
from tfps.transport.direct.link_rate import link_rate_of_this_process
from tfps.transport.direct.stream import make_stream

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# The size of the prefix is a multiple of 64 bytes, so that the header after it is aligned.
PREFIX_BEGIN = ALIGNMENT_BYTES - PREFIX.size
NO_IDS = np.empty(0, np.int64)
NO_BYTES = np.empty(0, np.uint8)
PADDING = bytes(ALIGNMENT_BYTES)


class ConnectionLost(ConnectionError):
    """The peer closed, reset or left the connection, or this side closed it."""


class ReceivedMessage(NamedTuple):
    """A received message; its arrays are reused when no reference to them or a view is left."""

    header: Int64s
    ids: Int64s
    payload: Bytes


class Connection:
    """Sends and receives messages over a connected socket, which it owns.

    Messages have no timeout, since a reply may wait for other workers for long. The connection ends
    when TCP's keep-alive finds the host lost, or when any thread calls `close`. After an error,
    except for a bad argument, the stream may be in the middle of a message, so the connection is
    closed.

    Each direction transfers one message at a time. One thread may send while another receives; over
    TLS the sender waits until the message has arrived.

    Args:
        sock: a connected socket without a timeout.
        peer: a name of the peer for error messages.
        chunk_bytes: the most bytes per system call; None reads the environment.

    Example:

    >>> left, right = (Connection(sock, peer="ps 0") for sock in socket.socketpair())
    >>> left.send(np.array([1, 2]), np.array([], np.int64), np.array([5, 6, 7], np.uint8))
    >>> limits = FrameLimits(header_fields=2, max_ids=0, max_payload_bytes=100)
    >>> right.receive(limits).payload
    array([5, 6, 7], dtype=uint8)
    >>> left.close()
    >>> right.receive(limits)
    Traceback (most recent call last):
    tfps.transport.direct.connection.ConnectionLost: lost the connection to ps 0: the peer closed it
    >>> right.close()
    """

    def __init__(self, sock: socket.socket, *, peer: str, chunk_bytes: int | None = None) -> None:
        self.peer = peer
        self._socket = sock
        self._stream = make_stream(sock, chunk_bytes=chunk_bytes or chunk_bytes_from_environment())
        self._buffers = AlignedBuffers()
        self._sending = threading.RLock()
        self._receiving = threading.RLock() if self._stream.duplex else self._sending
        # The sizes of whole messages, before encryption.
        self.sent_bytes = self.received_bytes = 0
        self._link = link_rate_of_this_process()
        self._closed = False
        self._poll = select.poll()  # `select` refuses descriptors above 1024
        self._poll.register(sock, select.POLLIN)

    def send(
        self, header: Int64s, ids: Int64s, payload: Bytes, *segments: npt.NDArray[Any]
    ) -> None:
        """Send one message without copying its arrays.

        Args:
            header: an int64 vector.
            ids: an int64 vector, may be empty.
            payload: a uint8 vector, may be empty.
            segments: arrays of any dtype and shape to send before ``payload``, as part of the
                payload; each is padded to a multiple of 64 bytes, an empty one to 64.

        Raises:
            ValueError: an array has another dtype or rank, or is not contiguous; nothing was sent.
            ConnectionLost: the connection ended before the system had accepted all bytes.
        """
        for name, array, dtype in (
            ("header", header, np.int64),
            ("ids", ids, np.int64),
            ("payload", payload, np.uint8),
        ):
            if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
                raise ValueError(
                    f"{name}: received {array.dtype} of shape {array.shape} with strides"
                    f" {array.strides}, expected a contiguous {np.dtype(dtype)} vector"
                )
        padded, padded_bytes = _pad_segments(segments)
        prefix = Frame(len(header), len(ids), padded_bytes + len(payload)).pack()
        size_bytes = len(prefix) + header.nbytes + ids.nbytes + padded_bytes + payload.nbytes
        try:
            with self._sending:
                self.sent_bytes += size_bytes  # before the peer can have received it
                if self._link is not None:
                    self._link.wait_for_transfer(size_bytes)
                self._stream.send((prefix, header, ids, *padded, payload), size_bytes)
        except OSError as error:
            raise self._lost_error(error) from error
        except BaseException:
            self.close()
            raise

    def receive(self, limits: FrameLimits) -> ReceivedMessage:
        """Wait for one message.

        Raises:
            FrameError: received no message, or one above the limits; the connection is closed.
            ConnectionLost: the connection ended before the message was complete.
        """
        try:
            with self._receiving:
                return self._receive(limits)
        except OSError as error:
            raise self._lost_error(error) from error
        except BaseException:
            self.close()
            raise

    def _receive(self, limits: FrameLimits) -> ReceivedMessage:
        head = self._buffers.take(ALIGNMENT_BYTES + ITEM_BYTES * limits.header_fields)
        view = head.data[PREFIX_BEGIN:]
        received = self._stream.receive_some(view)
        while received < PREFIX.size:
            received += self._stream.receive_some(view[received:])
        frame = Frame.parse(view[: PREFIX.size], limits)
        if received < len(view):
            self._stream.receive_all(view[received:])
        ids, payload = NO_IDS, NO_BYTES
        if frame.ids:
            data = self._buffers.take(ITEM_BYTES * frame.ids)
            self._stream.receive_all(data.data)
            ids = data.view(np.int64)
        if frame.payload_bytes:
            payload = self._buffers.take(frame.payload_bytes)
            self._stream.receive_all(payload.data)
        self.received_bytes += len(view) + ids.nbytes + payload.nbytes
        return ReceivedMessage(head[ALIGNMENT_BYTES:].view(np.int64), ids, payload)

    def release_buffers(self) -> None:
        """Free the receive buffers before an idle time; called by the receiving thread."""
        self._buffers.clear()

    def has_ended(self) -> bool:
        """Return whether the peer has ended the connection while it was idle.

        Data to read on an idle connection is the end of the stream, or an error of the peer.
        """
        return self._closed or bool(self._poll.poll(0))

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Close the connection and end blocked calls; any thread may call it, also repeatedly."""
        self._closed = True
        # The peer may be gone. Not the method of a TLS socket, after which the reading thread would
        # read the unencrypted stream.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        # Only after running calls have returned: the number of a closed descriptor may be given to
        # another file while a thread is about to use it.
        with self._sending, self._receiving:
            self._socket.close()

    def _lost_error(self, error: OSError) -> ConnectionLost:
        reason = "this task closed it" if self._closed else str(error)
        self.close()
        return ConnectionLost(f"lost the connection to {self.peer}: {reason}")


def _pad_segments(segments: Sequence[npt.NDArray[Any]]) -> tuple[list[Any], int]:
    """Return the arrays with padding to multiples of 64 bytes between them, and the total size."""
    parts: list[Any] = []
    size_bytes = 0
    for array in segments:
        if not array.flags.c_contiguous:
            raise ValueError(
                f"segments: received {array.dtype} of shape {array.shape} with strides"
                f" {array.strides}, expected contiguous arrays"
            )
        padding_bytes = -array.nbytes % ALIGNMENT_BYTES if array.nbytes else ALIGNMENT_BYTES
        parts.append(array)
        if padding_bytes:
            parts.append(PADDING[:padding_bytes])
        size_bytes += array.nbytes + padding_bytes
    return parts, size_bytes
