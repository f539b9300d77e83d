"""One exchange of a pull or a push with all servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from tfps.consistency.ledger import Status
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.message.payload import Body
from tfps.runtime.message.request_header import NO_FIELDS, Fields
from tfps.runtime.server.function_half import FunctionHalf
from tfps.runtime.worker.exchange import build_requests, exchange_timed, get_field_by_server
from tfps.runtime.worker.exchange_times import ExchangeTimes
from tfps.runtime.worker.worker_index import capture_caller_fields
from tfps.strategy.primitives.reached_versions import refuse_unreached
from tfps.transport.carrier import Message, ServerCall
from tfps.transport.message import Kind, Reply


class PrimitiveExchange:
    """One exchange of a pull or a push with all servers.

    Args:
        runtime: the job.
        on_worker: whether a scheduled function makes it; its pushes report durations of exchanges.
    """

    def __init__(self, runtime: Runtime, *, on_worker: bool) -> None:
        self._carrier = runtime.data_plane.carrier
        self._times = ExchangeTimes(runtime) if on_worker else None

    def pull(self, calls: Mapping[int, ServerCall]) -> tuple[dict[int, Message], tf.Tensor]:
        """Return the replies of all servers, and their versions."""
        replies, duration = exchange_timed(self._carrier, calls)
        noted = [] if self._times is None else [self._times.record_pull(duration)]
        with tf.control_dependencies(noted):  # a push that names the version reports it
            return replies, tf.stack(get_field_by_server(replies, Reply.VERSION))

    def push(
        self,
        servers: Sequence[FunctionHalf],
        bodies: Mapping[int, Body],
        version: tf.Tensor,
        *,
        commit_residuals: Callable[[Sequence[tf.Tensor]], None] = lambda _: None,
        coding: Fields = NO_FIELDS,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the new version, and the largest staleness that any server has found.

        Args:
            servers: the server functions of the push.
            bodies: the bodies of the requests, by server.
            version: the version that the gradients were computed from.
            commit_residuals: called with the statuses of the servers' replies.
            coding: the header fields about codecs.

        Raises:
            tf.errors.InvalidArgumentError: when it runs, a server has not reached the version.
        """
        with tf.control_dependencies([version]):
            time_fields = {} if self._times is None else self._times.read_fields()
        calls = build_requests(
            servers,
            Kind.PUSH,
            bodies,
            versions=[version[p] for p in range(len(servers))],
            fields={**capture_caller_fields(servers), **time_fields, **coding},
        )
        replies, duration = exchange_timed(self._carrier, calls)
        commit_residuals(get_field_by_server(replies, Reply.STATUS))
        noted = [] if self._times is None else [self._times.record_push(duration)]
        is_refused = tf.equal(
            tf.stack(get_field_by_server(replies, Reply.STATUS)), int(Status.AHEAD)
        )
        reached = tf.stack(get_field_by_server(replies, Reply.VERSION))
        refused = refuse_unreached(
            version,
            reached,
            where=is_refused,
            changed="the servers behind the version have not applied the push",
        )
        with tf.control_dependencies([*noted, refused]):
            return tf.identity(reached), tf.reduce_max(
                get_field_by_server(replies, Reply.STALENESS)
            )
