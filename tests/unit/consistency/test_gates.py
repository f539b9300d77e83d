"""The gates on ledgers that are resources, traced into functions as a server runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import tensorflow as tf

from tfps.bridge.functions.server_function import trace_server_function
from tfps.consistency.gate import BoundedGate
from tfps.consistency.server_ledger import ServerLedger
from tfps.runtime.coordinator.server_contents import ServerContents

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"
SLOW, FAST = 0, 1
INTEGER = tf.TensorSpec([], tf.int64)


@pytest.fixture
def server_ledger(request: pytest.FixtureRequest) -> Iterator[ServerLedger]:
    contents = ServerContents(device=DEVICE, container=f"test_{request.node.name}")
    yield ServerLedger(contents, workers=2)
    contents.free(contents.records)


def served(server_ledger: ServerLedger, gate: BoundedGate) -> tuple[Callable[..., int], ...]:
    """Functions: enter(worker) returns the clock, push(worker, clock) whether it waits."""

    def enter(worker: tf.Tensor) -> list[tf.Tensor]:
        with server_ledger.locked():
            server_ledger.write(server_ledger.layout.active(worker), tf.constant(1, tf.int64))
            gate.enter(worker, tf.constant(True))
            clock = server_ledger.open().read(server_ledger.layout.clock(worker))
        return [clock]

    def push(worker: tf.Tensor, clock: tf.Tensor) -> list[tf.Tensor]:
        with server_ledger.locked():
            waits = gate.end_step(worker, counts=tf.constant(True), clock=clock)
        return [tf.cast(waits, tf.int64)]

    def wait(worker: tf.Tensor) -> list[tf.Tensor]:
        return list(gate.wait(worker, lambda: [tf.identity(worker)]))

    def traced(function: Callable[..., list[tf.Tensor]], arguments: int) -> Callable[..., int]:
        concrete = trace_server_function(function, device=DEVICE, signature=[INTEGER] * arguments)
        return lambda *values: int(concrete(*(tf.constant(v, tf.int64) for v in values))[0])

    return traced(enter, 1), traced(push, 2), traced(wait, 1)


def largest_gap(server_ledger: ServerLedger) -> int:
    return int(server_ledger.cells()[server_ledger.layout.LARGEST_GAP])


def test_who_waits_goes_on_when_the_slowest_has_pushed(server_ledger: ServerLedger) -> None:
    gate = BoundedGate(server_ledger, bound_steps=1)
    enter, push, wait = served(server_ledger, gate)
    assert (enter(SLOW), enter(FAST)) == (0, 0)
    assert [push(FAST, clock) for clock in (1, 2)] == [0, 1]
    assert push(SLOW, 1) == 0
    assert wait(FAST) == FAST
    assert largest_gap(server_ledger) == 1
    # A worker that comes again begins beside the slowest, and counts on from where it says.
    assert enter(SLOW) == 2
    assert push(SLOW, 8) == 1
