"""What the chief of one turn of `tfps bench transport` does.

An exchange is measured where steps take place: in one function on the worker, a loop in which each
request is the reply before it. What the chief adds, one call per loop, does not show.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bench.still_model import still_fit
from tfps.bench.transport.results import CARRIERS
from tfps.bench.usage import EpochClock, Sample
from tfps.bench.workload import MODELS
from tfps.bridge.server_function import server_function
from tfps.runtime.coordinator.server_contents import ServedPlan
from tfps.transport.carrier import Carrier, GrpcCarrier, Message, ServerCall
from tfps.transport.direct_carrier import DirectCarrier
from tfps.transport.links import Peers
from tfps.transport.message import PROTOCOL, REPLY_FIELDS, REQUEST_FIELDS, Kind, Request
from tfps.transport.service import Entry, Service

WORKER = "/job:worker/replica:0/task:0/device:CPU:0"
TRIAL_EXCHANGES = 4
TRIAL_STEPS = 500
# The first traces and connects, the next gives a rate, the last a better one.
WARM_UPS = 3


@dataclass(frozen=True)
class TransportOrder:
    """What a chief process is to measure.

    Args:
        carriers: keys of `CARRIERS`; all of one cluster.
        sizes_bytes: of the payload, up and down.
        ledger: measure whole steps that compute nothing, too.
        rounds: of each case; carriers take turns within them.
        measured_s: how long one measurement should take.
        groups: the cluster's process numbers by role.
    """

    carriers: Sequence[str]
    sizes_bytes: Sequence[int]
    ledger: bool
    rounds: int
    measured_s: float
    groups: Mapping[str, Sequence[int]]

    def clock(self) -> EpochClock:
        """Watch all tasks, and each role by itself."""
        every = [number for numbers in self.groups.values() for number in numbers]
        return EpochClock(every, self.groups)


def measure(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Exchange as ordered; answers one entry per case and round."""
    import tfps

    order = TransportOrder(**fields)
    strategy = tfps.ParameterServerStrategy(transport="direct")
    echo = Echo(strategy.runtime)
    found: list[dict[str, Any]] = []
    for size_bytes in order.sizes_bytes:
        runs = {name: echo.loop(name, size_bytes) for name in order.carriers}
        for name, samples in _take_turns(runs, order, trial=TRIAL_EXCHANGES).items():
            found += [_entry("echo", name, size_bytes, sample) for sample in samples]
        echo.forget(order.carriers, size_bytes)
    if order.ledger:
        fits = {row: still_fit(strategy, updates=row == "adam") for row in ("ledger", "adam")}
        for row, samples in _take_turns(fits, order, trial=TRIAL_STEPS).items():
            found += [_entry(row, "unix", MODELS["mlp"].size_bytes, sample) for sample in samples]
    return found


def _entry(row: str, carrier: str, size_bytes: int, sample: Sample) -> dict[str, Any]:
    return {"row": row, "carrier": carrier, "size_bytes": size_bytes, "sample": asdict(sample)}


def _take_turns(
    runs: Mapping[str, Callable[[int, EpochClock], None]], order: TransportOrder, *, trial: int
) -> dict[str, list[Sample]]:
    counts = {}
    for name, run in runs.items():
        clock = order.clock()
        counts[name] = trial
        for _ in range(WARM_UPS):
            run(counts[name], clock)
            wanted = clock.samples[-1].steps_per_s * order.measured_s
            counts[name] = max(trial, math.ceil(wanted))
    clocks = {name: order.clock() for name in runs}
    for _ in range(order.rounds):
        for name, run in runs.items():
            run(counts[name], clocks[name])
    return {name: clock.samples for name, clock in clocks.items()}


class Echo:
    """A server function that sends back what it gets, reached by any carrier.

    Args:
        runtime: of a strategy with one parameter server or more; the first is used.
    """

    def __init__(self, runtime: Any) -> None:
        self._runtime, self._server = runtime, runtime.servers[0]
        self._function = server_function(
            lambda _header, *parts: [tf.zeros([REPLY_FIELDS], tf.int64), *parts],
            device=self._server.device,
            signature=Message.signature(REQUEST_FIELDS),
        )

    def loop(self, name: str, size_bytes: int) -> Callable[[int, EpochClock], None]:
        """What makes so many exchanges and lets a clock see them.

        Args:
            name: of the carrier.
            size_bytes: of the payload, up and down.
        """
        plan_id = _plan_id(name, size_bytes)
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

    def forget(self, names: Sequence[str], size_bytes: int) -> None:
        """Let the server free what it has for a size."""
        plans = [(self._server.index, _plan_id(name, size_bytes)) for name in names]
        self._runtime.forget(plans)

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


def _plan_id(name: str, size_bytes: int) -> int:
    """Its own for each carrier: a worker keeps connections by plan, not by how they were made."""
    return size_bytes * 4 + list(CARRIERS).index(name)
