"""What a server does with scheduled functions that train, with threads in the place of workers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfps.consistency.gate import BoundedGate
from tfps.consistency.ledger import MAX_STAGES, Status
from tfps.consistency.modes import BoundedStaleness, Mode, Synchronous
from tfps.consistency.round_gate import RoundGate
from tfps.consistency.server_ledger import ServerLedger
from tfps.runtime.custom_bounded import BoundedServer
from tfps.runtime.custom_round import RoundServer
from tfps.runtime.custom_server import Caller, CustomServer
from tfps.runtime.program import Program, Stage
from tfps.runtime.server import Server
from tfps.runtime.server_function import server_function
from tfps.runtime.storage import Storage
from tfps.runtime.units import Units
from tfps.runtime.wire import gradient_name
from tfps.transport.message import Kind, Reply
from tfps.transport.packing import pack, unpack

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"
SLOTS = 2
PATIENCE_S = 30.0
_numbers = itertools.count()


class Descent:
    """Subtracts gradients."""

    def __init__(self, variable: Any) -> None:
        self._trainable_variables = [variable]

    def apply(self, gradients: Mapping[str, tf.Tensor], **_: Any) -> None:
        for variable in self._trainable_variables:
            native = variable._value
            native.assign_sub(gradients[native.shared_name], read_value=False)


class FakeRuntime(Storage):
    """Variables in this process, and nothing to install."""

    job_id, workers = 7, SLOTS

    def __init__(self, mode: Mode) -> None:
        super().__init__(container=f"custom{next(_numbers)}", number_of_servers=1)
        self.mode, self.units = mode, Units()
        self.data_plane = SimpleNamespace(install=lambda *_, **__: None)

    def forget_with(self, *_: Any) -> None:
        """Nothing was installed."""

    def index_of(self, device: str) -> int:
        return 0


def _server(mode: Mode, runtime: FakeRuntime) -> Server:
    server = Server.__new__(Server)
    server.index, server.device = 0, DEVICE
    server.ledger = ServerLedger(device=DEVICE, container=runtime.container, slots=SLOTS)
    server.rounds = None
    if mode.backup_workers is not None:
        server.rounds = RoundGate(server.ledger, required=SLOTS - mode.backup_workers)
    if mode.bound_steps is not None:
        server.gate = BoundedGate(server.ledger, bound_steps=mode.bound_steps)
    server.membership = server.rounds or server.gate
    return server


class Job:
    """One server, and for each of some variables a function that trains it alone.

    Args:
        mode: of the job.
        variables: how many.
    """

    def __init__(self, mode: Mode, *, variables: int = 1) -> None:
        self.mode, self.runtime = mode, FakeRuntime(mode)
        self.server = _server(mode, self.runtime)
        self.pool = ThreadPoolExecutor(8)
        kind = RoundServer if mode.backup_workers is not None else BoundedServer
        self.natives = [
            self.runtime.create_variable(np.zeros(1, "float32"), device=DEVICE, name="w")
            for _ in range(variables)
        ]
        self.functions: list[CustomServer] = []
        for native in self.natives:
            variable = SimpleNamespace(_value=native, shape=(1,), trainable=True)
            program = Program(
                name="custom",
                step=lambda _: None,
                batch_spec=None,
                trains=True,
                variables=[variable],
                stages=[Stage(Descent(variable), (variable,))],
            )
            self.functions.append(
                kind(
                    program,
                    runtime=self.runtime,  # type: ignore[arg-type]
                    server=self.server,
                    update_of=lambda optimizer: optimizer,
                    handed=(),
                    uses_replies=True,
                )
            )
        self._evict = self._control(self.server._trace_evict, 2)
        self._expect = (
            self._control(self.server._trace_expect, SLOTS) if self.server.rounds else None
        )

    @staticmethod
    def _control(trace: Callable[..., Any], arguments: int) -> Callable[..., None]:
        signature = [tf.TensorSpec([], tf.int64)] * arguments
        concrete = server_function(trace, device=DEVICE, signature=signature)
        return lambda *values: concrete(*(tf.constant(v, tf.int64) for v in values))

    def evict(self, slot: int, incarnation: int) -> None:
        self._evict(slot, incarnation)

    def expect(self) -> None:
        assert self._expect is not None
        self._expect(1, 1)

    def ask(
        self, kind: Kind, slot: int, incarnation: int, **options: Any
    ) -> tuple[int, int, float]:
        """Status, version and value that a request is answered with."""
        function = self.functions[options.pop("function", 0)]
        gradient = options.pop("gradient", None)
        payload, names = tf.zeros([0], tf.uint8), function.wires[0].gradients.variables
        if gradient is not None:
            value = {gradient_name(variable): tf.constant([gradient]) for variable in names}
            payload = pack(function.wires[0].request, value)
        caller = Caller(tf.constant(slot, tf.int64), tf.constant(incarnation, tf.int64))
        call = function.call(kind, payload, caller=caller, **options)
        header, _, answer = call.function(*call.request)
        (weight,) = unpack(function.parameter_layout, answer).values()
        return int(header[Reply.STATUS]), int(header[Reply.VERSION]), float(weight[0])

    def later(self, *arguments: Any, **options: Any) -> Future[tuple[int, int, float]]:
        return self.pool.submit(self.ask, *arguments, **options)

    def close(self) -> None:
        for slot in range(SLOTS):
            self.evict(slot, 1 << 40)
        self.pool.shutdown()


@pytest.fixture
def job(request: pytest.FixtureRequest) -> Iterator[Job]:
    made = Job(request.param, variables=2)
    yield made
    made.close()


def _waits(future: Future[Any]) -> bool:
    return not threading.Event().wait(0.2) and not future.done()


ENTER = Kind.ENTER_ROUND
SYNCHRONOUS = pytest.mark.parametrize("job", [Synchronous()], indirect=True)


@SYNCHRONOUS
def test_a_round_is_one_mean(job: Job) -> None:
    assert job.ask(ENTER, 0, 1) == (Status.OK, 0, 0.0)
    assert job.ask(ENTER, 1, 2) == (Status.OK, 0, 0.0)
    first = job.later(Kind.PUSH, 0, 1, gradient=1.0, version=0)
    assert _waits(first)
    assert job.ask(Kind.PUSH, 1, 2, gradient=5.0, version=0) == (Status.OK, MAX_STAGES, -3.0)
    assert first.result(PATIENCE_S) == (Status.OK, MAX_STAGES, -3.0)
    assert job.ask(ENTER, 0, 1) == (Status.OK, MAX_STAGES, -3.0)


@SYNCHRONOUS
def test_who_leaves_is_not_waited_for(job: Job) -> None:
    job.ask(ENTER, 0, 1)
    job.ask(ENTER, 1, 2)
    first = job.later(Kind.PUSH, 0, 1, gradient=1.0, version=0)
    assert _waits(first)
    job.evict(1, 2)
    assert first.result(PATIENCE_S) == (Status.OK, MAX_STAGES, -1.0)
    assert job.ask(Kind.PUSH, 1, 2, gradient=5.0, version=0)[0] == Status.EVICTED
    assert job.ask(ENTER, 1, 2)[0] == Status.EVICTED
    assert job.ask(ENTER, 1, 3) == (Status.OK, MAX_STAGES, -1.0)
    assert job.server.ledger._cells.numpy()[job.server.books.DROPPED] == 1


@SYNCHRONOUS
def test_who_is_expected_is_waited_for(job: Job) -> None:
    job.expect()
    first = job.later(ENTER, 0, 1)
    assert _waits(first)
    job.ask(ENTER, 1, 2)
    assert first.result(PATIENCE_S)[0] == Status.OK


@SYNCHRONOUS
def test_two_optimizers_in_a_round(job: Job) -> None:
    for turn in range(3):
        at = turn * MAX_STAGES
        assert job.ask(ENTER, 0, 1) == (Status.OK, at, -1.0 * turn)
        assert job.ask(ENTER, 1, 2, function=1) == (Status.OK, at, -2.0 * turn)
        first = job.later(Kind.PUSH, 0, 1, gradient=1.0, version=at)
        assert _waits(first)
        second = job.later(Kind.PUSH, 1, 2, gradient=2.0, version=at, function=1)
        upcoming = at + MAX_STAGES
        assert first.result(PATIENCE_S) == (Status.OK, upcoming, -1.0 * (turn + 1))
        assert second.result(PATIENCE_S) == (Status.OK, upcoming, -2.0 * (turn + 1))
    assert job.server.ledger._cells.numpy()[job.server.books.VERSION] == 6


@pytest.mark.parametrize("job", [Synchronous(backup_workers=1)], indirect=True)
def test_who_is_late_goes_on_with_fresh_parameters(job: Job) -> None:
    job.ask(ENTER, 0, 1)
    job.ask(ENTER, 1, 2)
    assert job.ask(Kind.PUSH, 0, 1, gradient=1.0, version=0) == (Status.OK, MAX_STAGES, -1.0)
    late = job.ask(Kind.PUSH, 1, 2, gradient=1.0, version=0)
    assert late == (Status.LATE, MAX_STAGES, -1.0)
    await_round = job.ask(Kind.AWAIT_ROUND, 1, 2, version=1)
    assert await_round == (Status.OK, MAX_STAGES, -1.0)


@pytest.mark.parametrize("job", [BoundedStaleness(1)], indirect=True)
def test_a_bound_holds_up_the_fast(job: Job) -> None:
    job.ask(Kind.PULL, 0, 1)
    job.ask(Kind.PULL, 1, 2)
    assert job.ask(Kind.PUSH, 0, 1, gradient=1.0, version=0) == (Status.OK, 1, -1.0)
    fast = job.later(Kind.PUSH, 0, 1, gradient=1.0, version=1)
    assert _waits(fast)
    assert job.ask(Kind.PUSH, 1, 2, gradient=1.0, version=0) == (Status.OK, 3, -3.0)
    assert fast.result(PATIENCE_S) == (Status.OK, 3, -3.0)
    again = job.later(Kind.PUSH, 0, 1, gradient=1.0, version=3)
    assert _waits(again)
    job.evict(1, 2)
    assert again.result(PATIENCE_S) == (Status.OK, 4, -4.0)
    assert job.ask(Kind.PUSH, 1, 2, gradient=1.0, version=4)[0] == Status.EVICTED
    assert job.ask(Kind.PULL, 1, 3) == (Status.OK, 4, -4.0)
