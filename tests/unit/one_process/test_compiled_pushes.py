"""A push that is one kernel replies and stores the same as one that runs by operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.unit.one_process.jobs import DEADLINE_S, waits
from tests.unit.one_process.requests import Requests, ServerReply
from tests.unit.one_process.service_loops import ServiceLoops
from tests.unit.one_process.unit_steps import BATCH, fit
from tfps.consistency.ledger import Status
from tfps.optimizers import server_update
from tfps.transport.message import Kind

STEPS = 3
CARRIERS = ["calls", "service loops"]
# The smallest update that is compiled, and the largest that is masked: XLA takes nothing of a push,
# its update, or all.
LIMITS = {"operations": (1 << 40, 0), "conditional": (0, 0), "kernel": (0, 1 << 40)}
COUNTED = (
    "VERSION",
    "NEXT",
    "COMPLETED",
    "EXAMPLES",
    "EXCHANGES",
    "DUPLICATES",
    "DROPPED",
    "BYTES_RECEIVED",
    "BYTES_SENT",
)


class Pushes:
    """A model with slots that has trained, and pushes to it by hand.

    Args:
        strategy: of one process.
    """

    def __init__(self, strategy: tfps.ParameterServerStrategy) -> None:
        with strategy.scope():
            self.model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(3)])
            self.model.compile(keras.optimizers.Adam(0.1), "mse")
            self.model.set_weights([np.ones([1, 3]), np.zeros([3])])
        self.history = fit(self.model, steps=STEPS).history
        self.requests = Requests(strategy, has=Kind.JOIN)
        self.runtime = strategy.runtime
        self.first = self.requests.open_tickets(3)
        self.worker = self.requests.incarnation(0)
        self.clock = self.join(0)

    def join(self, worker: int) -> int:
        """Let a worker enter; return its clock."""
        return self.requests.ask(Kind.JOIN, worker=worker, incarnation=self.worker).clock

    def push(self, ticket: int, *, worker: int = 0, **options: Any) -> ServerReply:
        options = {"incarnation": self.worker, "gradient": 1.0, "step_examples": BATCH, **options}
        return self.requests.ask(Kind.PUSH, worker=worker, ticket=self.first + ticket, **options)

    def state(self) -> list[np.ndarray]:
        """Weights, slots and iterations."""
        return [v.numpy() for v in (*self.model.weights, *self.model.optimizer.variables)]

    def refused(self) -> list[ServerReply]:
        """The replies to pushes that change no bit, after one of the first ticket."""
        replies = [self.push(0), self.push(1, incarnation=self.worker - 1)]
        if not isinstance(self.requests.carrier, ServiceLoops):  # which serve one program each
            replies += [self.push(1, plan=12345), self.push(1, protocol=12345)]
        return replies

    def counts(self) -> list[int]:
        """The counts of the server, but for durations."""
        cells, layout = self.runtime.servers[0].cells(), self.runtime.servers[0].layout
        staleness = cells[layout.histograms : layout.duration(0, 0)].tolist()
        return [*(self.requests.counted(name) for name in COUNTED), *staleness]


@pytest.fixture
def make_pushes(
    make_strategy: Callable[..., tfps.ParameterServerStrategy], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Pushes]]:
    loops: list[ServiceLoops] = []

    def make(kind: str, mode: Any = None, *, carrier: str = "calls") -> Pushes:
        compiled, masked = LIMITS[kind]
        monkeypatch.setattr(server_update, "MIN_COMPILED_ITEMS", compiled)
        monkeypatch.setattr(server_update, "MAX_MASKED_ITEMS", masked)
        strategy = make_strategy(mode)
        pushes = Pushes(strategy)
        if carrier == "service loops":
            loops.append(ServiceLoops(strategy))
            pushes.requests.carrier = loops[-1]
        return pushes

    yield make
    for each in loops:
        each.close()


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("mode", "kinds"),
    [
        (tfps.Asynchronous(), ("conditional", "kernel")),
        (tfps.BoundedStaleness(2), ("kernel",)),  # what waits stays outside
    ],
)
def test_all_kinds_of_pushes_do_the_same(
    make_pushes: Callable[..., Pushes], mode: Any, kinds: tuple[str, ...]
) -> None:
    operations = make_pushes("operations", mode)
    expected, expected_state = _replies(operations)
    for kind in kinds:
        pushes = make_pushes(kind, mode)
        replies, state = _replies(pushes)
        assert replies == expected
        np.testing.assert_allclose(pushes.history["loss"], operations.history["loss"], rtol=1e-6)
        for value, other in zip(state, expected_state, strict=True):
            np.testing.assert_allclose(value, other, rtol=0, atol=1e-6)


def _replies(pushes: Pushes) -> tuple[list[Any], list[np.ndarray]]:
    """Push two tickets; return the replies, relative to the first ticket, counts and state."""
    before, first = np.array(pushes.counts()), pushes.first
    closing = {"acked_ticket": first, "closed_steps": 1, "examples": BATCH}
    replies = [pushes.push(0), *pushes.refused(), pushes.push(1, **closing)]
    found = [
        (a.status, a.version, a.ticket - first if a.ticket >= 0 else -1, a.staleness)
        for a in replies
    ]
    return [*found, *(np.array(pushes.counts()) - before).tolist()], pushes.state()


@pytest.mark.slow
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_refused_push_leaves_every_bit(make_pushes: Callable[..., Pushes], carrier: str) -> None:
    pushes = make_pushes("kernel", carrier=carrier)
    before = pushes.state()
    assert pushes.push(0).status is Status.OK
    after = pushes.state()
    assert not all(np.array_equal(*each) for each in zip(before, after, strict=True))
    statuses = [reply.status for reply in pushes.refused()]
    assert statuses[:2] == [Status.DUPLICATE, Status.EVICTED]
    assert statuses[2:] == ([Status.REPLAN] * 2 if carrier == "calls" else [])
    pushes.requests.evict(0, pushes.worker)
    assert pushes.push(1).status is Status.EVICTED
    assert [v.tobytes() for v in pushes.state()] == [v.tobytes() for v in after]


@pytest.mark.repeats
@pytest.mark.parametrize(("kind", "conditions"), [("conditional", 1), ("kernel", 0)])
def test_a_kernel_has_no_condition_around_it(
    make_pushes: Callable[..., Pushes], kind: str, conditions: int
) -> None:
    assert make_pushes(kind).requests.operations(Kind.PUSH)["If"] == conditions


@pytest.mark.repeats
@pytest.mark.parametrize("carrier", CARRIERS)
def test_who_is_too_fast_waits_for_the_kernel_of_the_slow(
    make_pushes: Callable[..., Pushes], carrier: str
) -> None:
    pushes = make_pushes("kernel", tfps.BoundedStaleness(1), carrier=carrier)
    assert pushes.join(1) == pushes.clock
    assert pushes.push(0, clock=pushes.clock).status is Status.OK
    with ThreadPoolExecutor(1) as pool:
        fast = pool.submit(pushes.push, 2, clock=pushes.clock + 1)
        assert waits(fast)
        slow = pushes.push(1, worker=1, clock=pushes.clock)
        reply = fast.result(DEADLINE_S)
    assert (reply.status, slow.status) == (Status.OK, Status.OK)
    # The reply to the worker that has waited brings what the slow one has changed meanwhile.
    assert reply.version == slow.version
