"""What a server does with scheduled functions that train, with threads in the place of workers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tfps.bridge.server_function import server_function
from tfps.consistency.gate import BoundedGate
from tfps.consistency.ledger import MAX_STAGES, Status
from tfps.consistency.mode import Mode
from tfps.consistency.modes import BoundedStaleness
from tfps.consistency.round_gate import RoundGate
from tfps.consistency.server_ledger import ServerLedger
from tfps.consistency.synchronous import Synchronous
from tfps.runtime.coordinator.server import Server
from tfps.runtime.coordinator.storage import Storage
from tfps.runtime.coordinator.units import Units
from tfps.runtime.message.request_header import Caller, request_header
from tfps.runtime.message.wire import gradient_name
from tfps.runtime.program.local_training import keep_to
from tfps.runtime.program.program import Program
from tfps.runtime.program.schedule import Stage
from tfps.runtime.server.function_half import FunctionHalf
from tfps.transport.carrier import Message
from tfps.transport.message import Kind, Reply
from tfps.transport.packing import pack, unpack

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"
SLOTS = 2
PATIENCE_S = 30.0
_numbers = itertools.count()


class Answer(NamedTuple):
    """To a request: the version is a position where there are rounds."""

    status: Status
    version: int
    weight: float


class Descent:
    """Subtracts gradients."""

    name = "descent"

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
        super().__init__(container=f"custom{next(_numbers)}", servers=(DEVICE,))
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
    """

    def __init__(self, mode: Mode) -> None:
        self.mode, self.runtime = mode, FakeRuntime(mode)
        self.server = _server(mode, self.runtime)
        self.pool = ThreadPoolExecutor(8)
        self.natives = [
            self.runtime.create_variable(np.zeros(1, "float32"), device=DEVICE, name="w")
            for _ in range(2 if mode == Synchronous() else 1)
        ]
        self.functions: list[FunctionHalf] = []
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
            program = keep_to(program, mode)
            self.functions.append(
                FunctionHalf(
                    program,
                    runtime=self.runtime,  # type: ignore[arg-type]
                    server=self.server,
                    update_of=lambda optimizer: optimizer,
                    updates=(),
                    uses_replies=True,
                )
            )
        self._newest = itertools.count(1)
        self.incarnations, self.clocks = [0] * SLOTS, [0] * SLOTS
        self._evict = self._control(self.server._trace_evict, 2)
        self._expect = (
            self._control(self.server._trace_expect, SLOTS) if self.server.rounds else None
        )

    @staticmethod
    def _control(trace: Callable[..., Any], arguments: int) -> Callable[..., Any]:
        signature = [tf.TensorSpec([], tf.int64)] * arguments
        concrete = server_function(trace, device=DEVICE, signature=signature)
        return lambda *values: concrete(*(tf.constant(v, tf.int64) for v in values))

    def leave(self, slot: int) -> None:
        """Let a worker out, as the coordinator does."""
        self._evict(slot, self.incarnations[slot])

    def expect(self) -> None:
        assert self._expect is not None
        self._expect(1, 1)

    def begin(self, slot: int) -> Answer:
        """Pull as a new incarnation."""
        self.incarnations[slot] = next(self._newest)
        return self.pull(slot)

    def pull(self, slot: int, function: int = 0) -> Answer:
        has_rounds = self.mode.backup_workers is not None
        return self.ask(Kind.ENTER_ROUND if has_rounds else Kind.PULL, slot, function=function)

    def push(self, slot: int, gradient: float, version: int, function: int = 0) -> Answer:
        called = self.functions[function]
        names = called.wires[0].gradients.variables
        value = {gradient_name(variable): tf.constant([gradient]) for variable in names}
        payload = pack(called.wires[0].request, value)
        return self.ask(Kind.PUSH, slot, function=function, payload=payload, version=version)

    def ask(self, kind: Kind, slot: int, *, function: int = 0, **options: Any) -> Answer:
        called = self.functions[function]
        payload = options.pop("payload", tf.zeros([0], tf.uint8))
        incarnation = tf.constant(self.incarnations[slot], tf.int64)
        clock = tf.constant(self.clocks[slot], tf.int64)
        caller = Caller(tf.constant(slot, tf.int64), incarnation, clock)
        header = request_header(
            kind, job_id=called.job_id, plan_id=called.plan_id, caller=caller, **options
        )
        call = called.call(kind, Message.of(header, payload))
        header, _, answer = call.function(*call.request)
        self.clocks[slot] += 1
        if kind is Kind.PULL:
            self.clocks[slot] = int(header[Reply.CLOCK])
        (weight,) = unpack(called.parameter_layout, answer).values()
        return Answer(
            Status(int(header[Reply.STATUS])), int(header[Reply.VERSION]), float(weight[0])
        )

    def later(self, *arguments: Any, **options: Any) -> Future[Answer]:
        """The answer to a push, which may have to wait."""
        return self.pool.submit(self.push, *arguments, **options)

    def count(self, cell: int) -> int:
        """What the server's books say."""
        return int(self.server.ledger._cells.numpy()[cell])

    def rest(self) -> None:
        for slot in range(SLOTS):
            self.leave(slot)


@pytest.fixture(scope="module")
def jobs() -> Iterator[Callable[[Mode], Job]]:
    """A job for each mode; tracing one takes seconds."""
    made: dict[Mode, Job] = {}

    def get(mode: Mode) -> Job:
        if mode not in made:
            made[mode] = Job(mode)
        return made[mode]

    yield get
    for job in made.values():
        job.rest()
        job.pool.shutdown()


@pytest.fixture
def job(jobs: Callable[[Mode], Job], request: pytest.FixtureRequest) -> Iterator[Job]:
    job = jobs(request.param)
    yield job
    job.rest()


def _waits(future: Future[Any]) -> bool:
    return not threading.Event().wait(0.2) and not future.done()


SYNCHRONOUS = pytest.mark.parametrize("job", [Synchronous()], indirect=True)


@SYNCHRONOUS
def test_a_round_is_one_mean(job: Job) -> None:
    status, at, weight = job.begin(0)
    assert status is Status.OK
    assert job.begin(1) == (Status.OK, at, weight)
    first = job.later(0, 1.0, at)
    assert _waits(first)
    answer = job.push(1, 5.0, at)
    assert answer == (Status.OK, at + MAX_STAGES, weight - 3)
    assert first.result(PATIENCE_S) == answer
    assert job.pull(0) == answer


@SYNCHRONOUS
def test_who_leaves_is_not_waited_for(job: Job) -> None:
    _, at, weight = job.begin(0)
    job.begin(1)
    dropped = job.count(job.server.books.DROPPED)
    first = job.later(0, 1.0, at)
    assert _waits(first)
    job.leave(1)
    answer = first.result(PATIENCE_S)
    assert answer == (Status.OK, at + MAX_STAGES, weight - 1)
    assert job.push(1, 5.0, at).status is Status.EVICTED
    assert job.pull(1).status is Status.EVICTED
    assert job.begin(1) == answer
    assert job.count(job.server.books.DROPPED) == dropped + 1


@SYNCHRONOUS
def test_who_is_expected_is_waited_for(job: Job) -> None:
    job.expect()
    first = job.pool.submit(job.begin, 0)
    assert _waits(first)
    answer = job.begin(1)
    assert first.result(PATIENCE_S) == answer


@SYNCHRONOUS
def test_two_optimizers_in_a_round(job: Job) -> None:
    _, at, weight = job.begin(0)
    job.begin(1)
    other, updates = job.pull(1, function=1).weight, job.count(job.server.books.VERSION)
    for _ in range(3):
        first = job.later(0, 1.0, at)
        assert _waits(first)
        second = job.later(1, 2.0, at, function=1)
        at, weight, other = at + MAX_STAGES, weight - 1, other - 2
        assert first.result(PATIENCE_S) == (Status.OK, at, weight)
        assert second.result(PATIENCE_S) == (Status.OK, at, other)
    assert job.count(job.server.books.VERSION) == updates + 6


@pytest.mark.parametrize("job", [Synchronous(backup_workers=1)], indirect=True)
def test_who_is_late_goes_on_with_fresh_parameters(job: Job) -> None:
    _, at, weight = job.begin(0)
    job.begin(1)
    upcoming = at + MAX_STAGES
    assert job.push(0, 1.0, at) == (Status.OK, upcoming, weight - 1)
    assert job.push(1, 1.0, at) == (Status.LATE, upcoming, weight - 1)
    answer = job.ask(Kind.AWAIT_ROUND, 1, version=upcoming // MAX_STAGES)
    assert answer == (Status.OK, upcoming, weight - 1)
    assert job.push(1, 1.0, upcoming).status is Status.OK


@pytest.mark.parametrize("job", [BoundedStaleness(1)], indirect=True)
def test_a_bound_holds_up_the_fast(job: Job) -> None:
    job.begin(0)
    job.begin(1)
    assert job.push(0, 1.0, 0) == (Status.OK, 1, -1.0)
    fast = job.later(0, 1.0, 1)
    assert _waits(fast)
    assert job.push(1, 1.0, 0) == (Status.OK, 3, -3.0)
    assert fast.result(PATIENCE_S) == (Status.OK, 3, -3.0)
    again = job.later(0, 1.0, 3)
    assert _waits(again)
    job.leave(1)
    assert again.result(PATIENCE_S) == (Status.OK, 4, -4.0)
    assert job.push(1, 1.0, 4).status is Status.EVICTED
    assert job.begin(1) == (Status.OK, 4, -4.0)
