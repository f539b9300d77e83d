"""Read a job's variables on one server through TensorFlow's port, without writing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.named_resource import open_mutex
from tfps.consistency.server_ledger import LEDGER, MUTEX, under_mutex
from tfps.recovery.chief.job_record import RECORD, JobRecord
from tfps.runtime.coordinator.connections import ControlChannel

Array = np.ndarray[Any, Any]
ReadFunction = Callable[..., list[Array]]


class RecordChanged(Exception):
    """Raised if variables have moved, or another chief has begun, since the record was read."""


class ChannelReader:
    """Reads one server over a control channel to TensorFlow's port.

    It reads a variable where the record says that it lies, and reads the record with it under the
    server's mutex, so that all values are of one moment. They travel after the mutex is released:
    training waits no longer than for a snapshot.

    Args:
        channel: the control channel to the server.
        container: the job's resource container.
    """

    def __init__(self, channel: ControlChannel, *, container: str) -> None:
        self._channel, self._container = channel, container
        self._text = b""
        self._read_record = channel.make_function(self._trace_record_read, arguments=0)
        self._read_functions: dict[tuple[str, ...], ReadFunction] = {}

    def record(self, *, patience_s: float) -> JobRecord | None:
        """Return the record that the job's chief has written; None if there is no such job.

        Raises:
            tf.errors.UnavailableError: the server does not reply.
        """
        text = bytes(self._read_record(patience_s=patience_s)[0])
        if text != self._text:
            self._read_functions.clear()
            self._text = text
        return JobRecord.from_json(text.decode()) if text else None

    def read(
        self, record: JobRecord, resources: Sequence[str], *, patience_s: float
    ) -> tuple[Array, list[Array]]:
        """Return the ledger and the values of variables, all of one moment.

        Args:
            record: the newest record that `record` has returned.
            resources: the variables' resource names, from its views.
            patience_s: the seconds that the server may take.

        Raises:
            RecordChanged: the server has another record now.
            tf.errors.UnavailableError: the server does not reply, or a variable does not exist.
        """
        chosen = tuple(resources)
        if chosen not in self._read_functions:
            self._read_functions[chosen] = self._channel.make_function(
                lambda: self._trace_read(record, chosen), arguments=0
            )
        text, cells, *values = self._read_functions[chosen](patience_s=patience_s)
        if bytes(text) != self._text:
            raise RecordChanged
        return cells, values

    def renew(self) -> None:
        """Connect again to a server that may have been restarted."""
        self._channel.renew()

    def _trace_record_read(self) -> list[tf.Tensor]:
        record = self._handle(RECORD, tf.string, [])
        exists = tf.raw_ops.VarIsInitializedOp(resource=record)
        return [
            tf.cond(
                exists,
                lambda: tf.raw_ops.ReadVariableOp(resource=record, dtype=tf.string),
                lambda: tf.constant(b""),
            )
        ]

    def _trace_read(self, record: JobRecord, resources: tuple[str, ...]) -> list[tf.Tensor]:
        views = [record.views[resource] for resource in resources]
        slabs: dict[str, tf.Tensor] = {}
        with under_mutex(open_mutex(self._container, MUTEX)):
            text = self._read_variable(RECORD, tf.string, [])
            cells = self._read_variable(LEDGER, tf.int64, None)
            for name, view in {view.slab: view for view in views}.items():
                slabs[name] = self._read_variable(name, tf.as_dtype(view.dtype), None)
        values = []
        for resource, view in zip(resources, views, strict=True):
            value = slabs[view.slab]
            if view.slab != resource:
                items = int(np.prod(view.shape, dtype=np.int64))
                value = tf.reshape(tf.slice(value, [view.offset_items], [items]), view.shape)
            values.append(value)
        return [text, cells, *values]

    def _read_variable(self, name: str, dtype: tf.DType, shape: Any) -> tf.Tensor:
        return tf.raw_ops.ReadVariableOp(resource=self._handle(name, dtype, shape), dtype=dtype)

    def _handle(self, name: str, dtype: tf.DType, shape: Any) -> tf.Tensor:
        return private.create_variable_handle(
            shape=tf.TensorShape(shape), dtype=dtype, shared_name=name, container=self._container
        )

    def close(self) -> None:
        """Close the channel; a server that is gone has closed it already."""
        with contextlib.suppress(tf.errors.OpError):
            self._channel.close()
