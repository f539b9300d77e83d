"""Read a job's variables on one server through its data port (`direct`), without writing."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.errors import ProtocolError
from tfps.recovery.chief.job_record import JobRecord
from tfps.recovery.reading.read_message import (
    HEADER_FIELDS,
    MAX_READ_REPLY_BYTES,
    READER,
    ReadReply,
    ReadRequest,
    split_payload,
)
from tfps.recovery.reading.server_reader import RecordChanged
from tfps.transport.direct import (
    Connection,
    ConnectionLost,
    Encryption,
    Endpoint,
    FrameLimits,
    Hello,
    connect,
)

Array = np.ndarray[Any, Any]

LIMITS = FrameLimits(header_fields=HEADER_FIELDS, max_ids=0, max_payload_bytes=MAX_READ_REPLY_BYTES)
MIN_TIMEOUT_S = 3.0  # the least time that a server is given: a busy one needs it
NO_IDS = np.empty(0, np.int64)


class DataPortReader:
    """Reads one server over a connection of tfps's own, which may be encrypted.

    It does not use TensorFlow's port, which may be closed to this machine.

    Args:
        endpoint: the address of the server's data port.
        job: the name of the job.
        number: the number of the job.
        secret: the servers' secret.
        encryption: the encryption that the servers use.
    """

    def __init__(
        self, endpoint: Endpoint, *, job: str, number: int, secret: bytes, encryption: Encryption
    ) -> None:
        self._endpoint, self._secret, self._encryption = endpoint, secret, encryption
        self._hello = Hello(job=number, worker=0, incarnation=0, role=READER, plan=job)
        self._connection: Connection | None = None

    def record(self, *, patience_s: float) -> JobRecord | None:
        """See `ServerReader.record`.

        Raises:
            tf.errors.UnavailableError: the server does not reply; or, caused by a
                `HandshakeError`, it has another secret or certificate, or no such job.
        """
        record = self._request(ReadRequest(), patience_s).record
        return JobRecord.from_json(record) if record else None

    def read(
        self, record: JobRecord, resources: Sequence[str], *, patience_s: float
    ) -> tuple[Array, list[Array]]:
        """See `ServerReader.read`."""
        reply = self._request(ReadRequest(resources=tuple(resources)), patience_s)
        if not reply.cells or record != JobRecord.from_json(reply.record):
            raise RecordChanged
        return np.array(reply.cells, np.int64), list(reply.values)

    def renew(self) -> None:
        """See `ServerReader.renew`."""
        self.close()

    def close(self) -> None:
        """See `ServerReader.close`; the next call connects again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(self, request: ReadRequest, patience_s: float) -> ReadReply:
        until_s = time.monotonic() + max(patience_s, MIN_TIMEOUT_S)
        try:
            connection = self._get_connection(until_s)
            text = np.frombuffer(request.to_text(), np.uint8)
            with _close_at(connection, until_s):
                connection.send(np.array([text.size], np.int64), NO_IDS, text)
                header, _, payload = connection.receive(LIMITS)
        except (ConnectionLost, ProtocolError) as error:
            self.close()
            raise self._unavailable_error(error) from error
        reply = ReadReply.from_parts(*split_payload(header.tolist(), payload))
        if reply.problem:
            raise self._unavailable_error(reply.problem)
        return reply

    def _get_connection(self, until_s: float) -> Connection:
        if self._connection is None or self._connection.has_ended():
            self._connection = connect(
                self._endpoint,
                self._hello,
                secret=self._secret,
                encryption=self._encryption,
                timeout_s=until_s - time.monotonic(),
            )
        return self._connection

    def _unavailable_error(self, reason: Exception | str) -> tf.errors.UnavailableError:
        return tf.errors.UnavailableError(
            None,
            None,
            f"The parameter server at {self._endpoint.address} is lost or does not respond: "
            f"{reason}",
        )


@contextlib.contextmanager
def _close_at(connection: Connection, until_s: float) -> Iterator[None]:
    """Close a connection at a given time, to limit how long a reply takes."""
    timer = threading.Timer(max(0.0, until_s - time.monotonic()), connection.close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
