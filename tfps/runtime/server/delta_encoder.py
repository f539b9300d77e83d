"""Sends parameters as differences to the values that each worker holds."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfps.bridge.free_memory import read_free_memory_bytes
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.compression.codec import ITEM_BYTES
from tfps.compression.delta import is_delta
from tfps.consistency.ledger import Status
from tfps.errors import ConfigError
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.coding import CodedVector
from tfps.runtime.message.wire import CallWire
from tfps.transport.message import Reply, Request
from tfps.units import format_bytes

_INCARNATION, _VERSION = range(2)  # of a worker, and of its values
_NO_WORKER = -1


class EncodedReply(NamedTuple):
    """The coded values of a reply.

    Attributes:
        data: bytes, by the names of coded vectors.
        fields: fields of the reply's header. If the server does not know the worker's values, they
            tell the worker to join anew.
    """

    data: Mapping[str, tf.Tensor] = {}
    fields: Mapping[Reply, tf.Tensor] = {}


class DeltaEncoder:
    """Keeps the exact values that each worker holds, and sends the differences to them.

    It keeps nothing if no values travel as differences.

    A worker gets full values when it enters. Each push names the incarnation and the version of the
    reply before. If the server has noted others, the worker is evicted and joins anew.

    Args:
        wires: the message formats of the optimizer calls.
        runtime: the runtime of the job.
        server: the server whose values travel.

    Attributes:
        rows: the variables with the values of all workers, a row each, by (optimizer call, coded
            vector).
    """

    def __init__(self, wires: Sequence[CallWire], *, runtime: Runtime, server: Server) -> None:
        self._wires, self._ledger = wires, server.ledger
        workers = runtime.max_workers
        vectors = [each for wire in wires for each in iter_delta_vectors(wire)]
        needed_bytes = workers * sum(ITEM_BYTES * each.items for each in vectors)
        if vectors:
            refuse_without_memory(needed_bytes, workers=workers, server=server)

        create = functools.partial(runtime.create_bookkeeping, device=server.device)
        self.rows = {
            (number, each.name): create(
                functools.partial(tf.zeros, [workers, each.items]), name=f"sent/{each.digest}"
            )
            for number, wire in enumerate(wires)
            for each in iter_delta_vectors(wire)
        }
        if self.rows:
            no_worker = np.full([workers, 2], _NO_WORKER, np.int64)
            self._known = create(no_worker, name=f"sent/server_{server.index}")

    def record_full_values(
        self, header: Sequence[tf.Tensor], version: tf.Tensor, *, counts: tf.Tensor
    ) -> None:
        """Trace recording that a worker gets full values, under the server's mutex.

        Args:
            header: the header of its request.
            version: the version of the values.
            counts: whether the worker takes part.
        """
        if not self.rows:
            return
        worker, incarnation = header[Request.WORKER], header[Request.INCARNATION]
        is_newest = incarnation >= self._read_known(worker)[_INCARNATION]

        def begin() -> tf.Tensor:
            for number, wire in enumerate(self._wires):
                natives = {native.shared_name: native for native in wire.values.natives}
                for each in iter_delta_vectors(wire):
                    names = each.layout.names
                    tensors = {name: natives[name].read_value() for name in names}
                    _write_row(self.rows[number, each.name], worker, each.build_vector(tensors))
            _write_row(self._known, worker, tf.stack([incarnation, version]))
            return tf.constant(0)

        tf.cond(tf.logical_and(counts, is_newest), begin, lambda: tf.constant(0))

    def encode(
        self,
        number: int,
        header: Sequence[tf.Tensor],
        vectors: Mapping[str, tf.Tensor],
        *,
        version: tf.Tensor,
        reply: tf.Tensor,
        seed: tf.Tensor,
    ) -> EncodedReply:
        """Trace encoding a reply's values as differences; called outside of the mutex.

        Args:
            number: the index of the optimizer call.
            header: the header of the push.
            vectors: the newest values, by the names of coded vectors.
            version: the version of the values.
            reply: the header of the reply so far.
            seed: the seed of codecs that draw random numbers.
        """
        if not self.rows:
            return EncodedReply()
        worker, data, held = header[Request.WORKER], {}, {}
        for each in iter_delta_vectors(self._wires[number]):
            before = _read_row(self.rows[number, each.name], worker)
            data[each.name] = each.codec.encode(vectors[each.name] - before, seed=seed)
            held[each.name] = before + each.decode(data[each.name])
        expected = [header[Request.INCARNATION], header[Request.BASE_VERSION]]

        def keep() -> tf.Tensor:
            for name, value in held.items():
                _write_row(self.rows[number, name], worker, value)
            _write_row(self._known, worker, tf.stack([header[Request.INCARNATION], version]))
            return reply[Reply.STATUS]

        with tf.control_dependencies([*held.values(), version]), self._ledger.locked():
            is_known = tf.reduce_all(self._read_known(worker) == tf.stack(expected))
            unknown = tf.maximum(reply[Reply.STATUS], int(Status.EVICTED))
            return EncodedReply(data, {Reply.STATUS: tf.cond(is_known, keep, lambda: unknown)})

    def _read_known(self, worker: tf.Tensor) -> tf.Tensor:
        return _read_row(self._known, worker)


def refuse_without_memory(needed_bytes: int, *, workers: int, server: Server) -> None:
    """Raise a `ConfigError` if a server has no memory for the values of workers.

    Args:
        needed_bytes: the size of these values.
        workers: the number of workers.
        server: the server that would keep them.
    """
    free_bytes = read_free_memory_bytes(server.device)
    if free_bytes is not None and needed_bytes > free_bytes:
        raise ConfigError(
            f"compression: received Delta(...) for pull, which needs {format_bytes(needed_bytes)} "
            f"on ps {server.index} for the parameters of {workers} workers; expected at most "
            f"{format_bytes(free_bytes)}, the free memory. Use more servers, fewer workers, or a "
            "codec that keeps no parameters, such as tfps.compression.Quantize(8)"
        )


def iter_delta_vectors(wire: CallWire) -> Iterator[CodedVector]:
    """Return an iterator over the coded vectors of a call that are sent as differences."""
    return (each for each in wire.coded_values if is_delta(each.codec))


def _read_row(variable: ServerVariable, worker: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.ResourceGather(resource=variable.handle, indices=worker, dtype=variable.dtype)


def _write_row(variable: ServerVariable, worker: tf.Tensor, value: tf.Tensor) -> None:
    tf.raw_ops.ResourceScatterUpdate(
        resource=variable.handle, indices=worker[None], updates=value[None]
    )
