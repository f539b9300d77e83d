"""Stores the parts of gradients that codecs leave out, for later pushes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.worker_local_variable import WorkerLocalTensor
from tfps.compression.memory import memory_of
from tfps.consistency.ledger import Status
from tfps.runtime.message.coding import CodedVector
from tfps.runtime.message.duration import begin_timing, measure_microseconds
from tfps.runtime.message.request_header import NO_FIELDS, Fields
from tfps.runtime.server.half import ServerHalf
from tfps.runtime.worker.worker_index import capture_life
from tfps.transport.message import Request


class Residuals:
    """The memory that codecs keep on a worker, for a program's optimizer calls.

    It stays on the worker from one closure to the next. Programs that push the same gradients share
    it. A worker that is new, or was lost, begins with zeros.

    Args:
        servers: the program's functions on each server.
    """

    def __init__(self, servers: Sequence[ServerHalf]) -> None:
        self._servers, self._runtime = servers, servers[0].runtime
        self._kept: dict[str, tuple[WorkerLocalTensor, ...]] = {}
        self._lives: dict[str, WorkerLocalTensor] = {}  # the worker's life in which they began
        for server in servers:
            for coded in (each for wire in server.wires for each in wire.coded):
                name = f"residual_{coded.digest}"
                kept = tuple(
                    self._create_on_worker(f"{name}_{number}", spec.shape, spec.dtype)
                    for number, spec in enumerate(memory_of(coded.codec).specs(coded.items))
                )
                if kept:
                    self._kept[coded.digest] = kept
                    self._lives[coded.digest] = self._create_on_worker(f"{name}_life", [], tf.int64)

    def _create_on_worker(self, name: str, shape: Any, dtype: tf.DType) -> WorkerLocalTensor:
        self._runtime.residuals.register_name(name)
        return WorkerLocalTensor(name, container=self._runtime.container, shape=shape, dtype=dtype)

    @classmethod
    def get_for_graph(cls, servers: Sequence[ServerHalf]) -> Residuals:
        """Return the residuals of the traced function; all its pushes share one object."""
        for each in private.get_kept_with_graph(private.current_graph()):
            if isinstance(each, cls) and each._servers is servers:
                return each
        residuals = cls(servers)
        private.keep_with_graph(residuals)
        return residuals

    def prepare(self) -> None:
        """Set the residuals of a new or lost worker to zeros; traced before the first push."""
        if not self._kept:
            return
        life = capture_life(self._runtime)
        for digest, tensors in self._kept.items():
            _reset_in_new_life(tensors, self._lives[digest], life=life)

    def for_gradients(self, coded: CodedVector) -> tuple[WorkerLocalTensor, ...]:
        """Return the residuals of some gradients; none if their codec keeps nothing."""
        return self._kept.get(coded.digest, ())


def _reset_in_new_life(
    kept: Sequence[WorkerLocalTensor], began: WorkerLocalTensor, *, life: tf.Tensor
) -> None:
    """Trace setting residuals to zeros, unless this was done in the worker's current life."""
    is_known = tf.cond(began.has_value, lambda: began.read_value() == life, lambda: False)

    def begin() -> tf.Tensor:
        for each in kept:
            each.load(tf.zeros(each.shape, each.dtype))
        began.load(life)
        return tf.constant(0)

    tf.cond(is_known, lambda: tf.constant(0), begin)


class PushEncoder:
    """Encodes the gradients of one push, and keeps what is left out when servers have accepted it.

    A gradient that is not finite is sent alone, so that it arrives as such, and does not change the
    residuals.

    Args:
        residuals: the residuals of the program.
        seed: int64 [2], the same for a repeated push.
        scale: the scale of the loss; residuals are not scaled.
    """

    def __init__(self, residuals: Residuals, *, seed: tf.Tensor, scale: Any = None) -> None:
        self._residuals, self._seed, self._scale = residuals, seed, scale
        # By server: the variables, and their new values.
        self._left: dict[int, list[tuple[WorkerLocalTensor, tf.Tensor]]] = {}
        self._began: list[tf.Tensor] = []  # a time stamp for each vector, before it is encoded
        self._coded: list[tf.Tensor] = []

    def encode(self, server: int, coded: CodedVector, vector: tf.Tensor) -> tf.Tensor:
        """Encode a vector of gradients for a server."""
        begin, [vector] = begin_timing([vector])
        data = self._encode(server, coded, vector)
        self._began.append(begin)
        self._coded.append(data)
        return data

    @property
    def codec_fields(self) -> Fields:
        """The duration of encoding, from the first vector on: header fields of the push."""
        if not self._coded:
            return NO_FIELDS
        begin = tf.reduce_min(self._began)
        return {Request.ENCODE_MICROSECONDS: measure_microseconds(begin, until=self._coded)}

    def _encode(self, server: int, coded: CodedVector, vector: tf.Tensor) -> tf.Tensor:
        codec, seed = coded.codec, self._seed + tf.constant([server, 0], tf.int64)
        variables = self._residuals.for_gradients(coded)
        if not variables:
            return codec.encode(vector, seed=seed)
        scale = 1.0 if self._scale is None else tf.cast(self._scale, tf.float32)
        before = tuple(variable.read_value() for variable in variables)

        def remember() -> tuple[tf.Tensor, ...]:
            encoded = memory_of(codec).code(vector, before, scale=scale, seed=seed)
            return (encoded.data, *map(_replace_infinite, encoded.kept))

        data, *after = tf.cond(
            tf.reduce_all(tf.math.is_finite(vector)),
            remember,
            lambda: (codec.encode(vector, seed=seed), *before),
        )
        data = tf.ensure_shape(data, [coded.size_bytes])
        self._left.setdefault(server, []).extend(zip(variables, after, strict=True))
        return data

    def commit_residuals(self, statuses: Sequence[tf.Tensor]) -> None:
        """Update the residuals by the statuses in the servers' replies.

        They stay as they were if a server has applied the push before. If a server refuses the
        push, residuals that are real numbers become zero.
        """
        for server, parts in self._left.items():
            status = statuses[server]
            for residual, after in parts:
                refused = tf.zeros_like(after) if after.dtype.is_floating else after
                is_duplicate = tf.equal(status, int(Status.DUPLICATE))
                otherwise = tf.where(is_duplicate, residual.read_value(), refused)
                residual.load(tf.where(tf.equal(status, int(Status.OK)), after, otherwise))


def _replace_infinite(kept: tf.Tensor) -> tf.Tensor:
    """Replace infinite numbers by zeros."""
    return tf.where(tf.math.is_finite(kept), kept, 0.0) if kept.dtype.is_floating else kept
