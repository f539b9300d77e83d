"""A server function that sends back what it gets: an exchange without a server's work.

An exchange is measured where steps take place: in one function on the worker, a loop in which each
request is the reply before it. What the chief adds, one call per loop, does not show.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.usage import EpochClock
from tfps.bridge.functions.server_function import trace_server_function
from tfps.runtime.coordinator.server_contents import ServedPlan
from tfps.transport.carrier import Carrier, GrpcCarrier, Message, ServerCall
from tfps.transport.direct_carrier import DirectCarrier
from tfps.transport.links import Peers
from tfps.transport.message import PROTOCOL, REPLY_FIELDS, REQUEST_FIELDS, Kind, Request
from tfps.transport.service import Entry, Service

WORKER = "/job:worker/replica:0/task:0/device:CPU:0"


class Echo:
    """A function on the first parameter server of a strategy's runtime, reached by a transport."""

    def __init__(self, runtime: Any) -> None:
        self._runtime, self._server = runtime, runtime.servers[0]
        # One for each loop: a worker keeps connections by plan, not by how they were made.
        self._plan_ids: list[int] = []
        self._next_plan_id = itertools.count(1)
        self._function = trace_server_function(
            lambda _header, *parts: [tf.zeros([REPLY_FIELDS], tf.int64), *parts],
            device=self._server.device,
            signature=Message.signature(REQUEST_FIELDS),
        )

    def loop(self, name: str, size_bytes: int) -> Callable[[int, EpochClock], None]:
        """Return a function that makes a number of exchanges by a transport and times them."""
        plan_id = next(self._next_plan_id)
        self._plan_ids.append(plan_id)
        header = self._header(plan_id)
        carrier = self._carrier(name)
        if isinstance(carrier, DirectCarrier):
            entry = Entry(Kind.PULL, 0, size_bytes, size_bytes)
            service = Service(self._runtime.job_id, plan_id, 1, (entry,))
            self._runtime.install(self._server, ServedPlan(service, (self._function,)))

        def exchange(payload: tf.Tensor) -> tf.Tensor:
            request = Message(tf.constant(header), tf.zeros([0], tf.int64), payload)
            call = ServerCall(self._server.device, self._function, request, size_bytes)
            return carrier.exchange({0: call})[0].payload

        @tf.function(autograph=False)
        def exchanges(count: tf.Tensor) -> tf.Tensor:
            _, payload = tf.while_loop(
                lambda done, _: done < count,
                lambda done, payload: (done + 1, exchange(payload)),
                (tf.constant(0), tf.zeros([size_bytes], tf.uint8)),
                shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
                parallel_iterations=1,
            )
            return tf.size(payload)

        def run(count: int, clock: EpochClock) -> None:
            with tf.device(WORKER):
                clock.begin()
                received = int(exchanges(tf.constant(count)))
                clock.end(count)
            if received != size_bytes:
                raise RuntimeError(f"received {received} bytes, expected {size_bytes}")

        return run

    def forget(self) -> None:
        """Let the server free what it has for all loops."""
        self._runtime.free_plans([(self._server.index, plan_id) for plan_id in self._plan_ids])
        self._plan_ids.clear()

    def _carrier(self, name: str) -> Carrier:
        if name == "grpc":
            return GrpcCarrier()
        endpoint = self._runtime.data_plane.endpoints[self._server.index]
        if name != "unix":
            endpoint = dataclasses.replace(endpoint, unix_name="")  # as from another machine
        # The tasks have the job's secret from their environment.
        return DirectCarrier(Peers({self._server.index: endpoint}, secret="").to_json())

    def _header(self, plan_id: int) -> np.ndarray[Any, Any]:
        fields = {
            Request.PROTOCOL: PROTOCOL,
            Request.JOB: self._runtime.job_id,
            Request.PLAN: plan_id,
            Request.KIND: Kind.PULL,
        }
        return np.array([fields.get(field, 0) for field in Request], np.int64)
