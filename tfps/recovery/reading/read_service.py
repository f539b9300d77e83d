"""Serve `tfps.attach` on a parameter server's data port (`direct`)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfps.errors import ProtocolError
from tfps.recovery.reading.channel_reader import ChannelReader
from tfps.recovery.reading.read_message import (
    HEADER_FIELDS,
    MAX_REQUEST_BYTES,
    ReadReply,
    ReadRequest,
    split_payload,
)
from tfps.recovery.reading.server_reader import RecordChanged
from tfps.runtime.coordinator.control_plane import CALL_TIMEOUT_S, ControlPlane
from tfps.runtime.coordinator.runtime import compute_job_id, get_container_name
from tfps.transport.direct import Connection, ConnectionLost, FrameLimits, Hello

logger = logging.getLogger(__name__)

LIMITS = FrameLimits(header_fields=HEADER_FIELDS, max_ids=0, max_payload_bytes=MAX_REQUEST_BYTES)
NO_IDS = np.empty(0, np.int64)
NO_BYTES = np.empty(0, np.uint8)


class ReadService:
    """Serves readers of any job of this server, which have proved that they know its secret.

    It reads as `tfps.attach` does through TensorFlow's port, but within the server's process: a
    reader sends only names, never code.

    Args:
        target: returns the target of this process's `tf.distribute.Server`.
        device: this server's device.
    """

    def __init__(self, *, target: Callable[[], str], device: str) -> None:
        self._target, self._device = target, device

    def __call__(self, connection: Connection, hello: Hello) -> None:
        """Serve one reader until it disconnects; runs in the connection's own thread."""
        if compute_job_id(hello.plan) != hello.job:
            logger.warning("%s asks for a job other than that of its handshake", connection.peer)
            connection.close()
            return
        channel = ControlPlane(address=self._address, device=self._device)
        reader = ChannelReader(channel, container=get_container_name(hello.plan))
        try:
            while True:
                header, _, payload = connection.receive(LIMITS)
                text, _ = split_payload(header.tolist(), payload)
                said, arrays = self._read(reader, ReadRequest.from_text(text)).to_parts()
                connection.release_buffers()
                length = np.array([len(said)], np.int64)
                connection.send(length, NO_IDS, np.frombuffer(said, np.uint8), *arrays)
        except ConnectionLost:
            pass  # the reader has disconnected
        except ProtocolError as error:
            logger.warning("refused %s: %s", connection.peer, error)
        finally:
            connection.close()
            with contextlib.suppress(tf.errors.OpError):  # this server is ending
                reader.close()

    def _address(self) -> str:
        return self._target().removeprefix("grpc://")

    @staticmethod
    def _read(reader: ChannelReader, request: ReadRequest) -> ReadReply:
        try:
            record = reader.record(patience_s=CALL_TIMEOUT_S)
            if record is None:
                return ReadReply()
            text = record.to_json()
            if not set(request.resources) <= record.views.keys():
                return ReadReply(record=text)
            cells, values = reader.read(record, request.resources, patience_s=CALL_TIMEOUT_S)
        except RecordChanged:
            return ReadReply(problem="its variables are being moved")
        except tf.errors.OpError as error:
            return ReadReply(problem=error.message)
        return ReadReply(record=text, cells=tuple(cells.tolist()), values=tuple(values))
