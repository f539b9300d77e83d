"""A scheduled function that is run again from its begin counts each optimizer call once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.one_process.lost_servers import lose
from tests.unit.one_process.requests import Requests
from tfps.bridge.closures import closure_error
from tfps.optimizers import SparseUpdates
from tfps.runtime.worker.function_step import FunctionStep
from tfps.strategy.strategy_recovery import StrategyRecovery
from tfps.transport.message import Kind

CALLS = 4
DIES = "the worker dies here"

Make = Callable[..., tfps.ParameterServerStrategy]


class Model(keras.Model):
    """Two weights that grow by one with each call of its optimizer, and a count of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (
            self.add_weight(shape=(), initializer="zeros", name=name) for name in ("a", "b")
        )
        self.runs = self.add_weight(
            shape=(), initializer="zeros", dtype="int64", trainable=False, name="runs"
        )
        self.compile(keras.optimizers.SGD(-1.0))
        self.built = True
        self.optimizer.build(self.trainable_variables)


def _die() -> None:
    raise RuntimeError(DIES)


class Loop:
    """A function with several optimizer calls, on two weights that lie on two servers.

    It also counts how often it is run, in a variable that it assigns itself.

    Args:
        strategy: of one process.
        in_loop: its calls stand in a loop; else one after the other.
    """

    def __init__(self, strategy: tfps.ParameterServerStrategy, *, in_loop: bool) -> None:
        self.strategy, self.coordinator = strategy, strategy.coordinator
        with strategy.scope():
            self.model = Model()
        self.weights, self.runs = self.model.trainable_variables, self.model.runs
        self.optimizer = self.model.optimizer
        self.dies_after: int | None = None
        self.dies: Callable[[], None] = _die
        self.step = tf.function(self._loop if in_loop else self._in_turn)

    def _loop(self) -> None:
        for _ in tf.range(CALLS):
            self._call()
        self._end()

    def _in_turn(self) -> None:
        for _ in range(CALLS):
            self._call()
        self._end()

    def _call(self) -> None:
        one = self._one()
        self.optimizer.apply([one, one], self.weights)

    def _end(self) -> None:
        self.runs.assign_add(tf.cast(self._one(), tf.int64))

    def _one(self) -> tf.Tensor:
        """Return a gradient after the call before; the worker may die there."""
        one = tf.numpy_function(self._attempt, [self.weights[0].value], tf.float32)
        return tf.ensure_shape(one, [])

    def _attempt(self, _: Any) -> np.float32:
        if self.dies_after == 0:
            self.dies_after = None
            self.dies()
        elif self.dies_after is not None:
            self.dies_after -= 1
        return np.float32(1.0)

    def run(self, *, dies_after: int | None) -> None:
        """Run the function once; again, if its worker dies after some calls."""
        self.dies_after = dies_after
        self.coordinator.schedule(self.step)
        self.coordinator.join()
        assert self.dies_after is None

    def counts(self) -> list[float]:
        """The counts of the weights, the optimizer, the ledgers, and the function itself."""
        return [
            *(float(weight.numpy()) for weight in self.weights),
            int(self.optimizer.iterations.numpy()),
            *self.strategy.stats().versions,
            int(self.runs.numpy()),
        ]

    def duplicates(self) -> list[int]:
        """Pushes that came again, by server."""
        requests = Requests(self.strategy, has=Kind.PUSH)
        return [requests.counted("DUPLICATES", server=server) for server in range(2)]


@pytest.fixture
def make(make_strategy: Make, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a strategy whose functions run again as those of a worker that has died."""

    def make(*arguments: Any, **options: Any) -> tfps.ParameterServerStrategy:
        strategy = make_strategy(*arguments, **options)
        # In one process a function that fails cancels all that can be cancelled.
        cancellation = type(strategy.coordinator._cluster.closure_queue._cancellation_mgr)
        monkeypatch.setattr(cancellation, "get_cancelable_function", lambda _, function: function)
        monkeypatch.setattr(
            closure_error, "is_unparsed_request_error", lambda error: DIES in str(error)
        )
        return strategy

    return make


# What one run adds to weights, iterations, versions and its own count; and its messages.
CASES = {
    "asynchronous": (tfps.Asynchronous(), False, [4, 4, 4, 4, 4, 1], [0, 1, 2, 3, 4]),
    "in a loop": (tfps.Asynchronous(), True, [4, 4, 4, 4, 4, 1], [0, 1, 2, 3, 4]),
    "bounded": (tfps.BoundedStaleness(1), True, [4, 4, 4, 4, 4, 1], [0, 1, 2, 3, 4]),
    "synchronous": (tfps.Synchronous(), True, [4, 4, 4, 4, 4, 1], [0, 1, 2, 3, 4]),
    # Differences are divided by the two workers; one message for three calls, one for the rest.
    "local": (tfps.LocalSteps(3), True, [2, 2, 4, 2, 2, 1], [0, 0, 0, 1, 1]),
    "local in rounds": (
        tfps.LocalSteps(3, synchronous_periods=True),
        True,
        [4, 4, 4, 2, 2, 1],
        [0, 0, 0, 1, 1],
    ),
}


@pytest.mark.repeats
@pytest.mark.quick("in a loop")
@pytest.mark.parametrize(("mode", "in_loop", "counts", "repeated"), CASES.values(), ids=CASES)
def test_each_call_counts_once(
    make: Make, mode: Any, in_loop: bool, counts: list[float], repeated: list[int]
) -> None:
    loop = Loop(make(mode, placement="round_robin"), in_loop=in_loop)
    runs, again = 0, 0
    for dies_after, messages in [(None, 0), *enumerate(repeated)]:
        loop.run(dies_after=dies_after)
        runs, again = runs + 1, again + messages
        assert loop.counts() == [runs * count for count in counts], dies_after
        assert loop.duplicates() == [again, again], dies_after


@pytest.mark.rare
@pytest.mark.quick("bounded")
@pytest.mark.parametrize(
    ("mode", "servers"),
    [
        pytest.param(tfps.BoundedStaleness(1), [1], id="bounded"),
        pytest.param(tfps.BoundedStaleness(1), [0, 1], id="bounded-all"),
        pytest.param(tfps.Synchronous(), [0, 1], id="synchronous"),
        pytest.param(tfps.Synchronous(), [1], id="synchronous-one"),
    ],
)
def test_what_servers_refuse_runs_again(make: Make, mode: Any, servers: list[int]) -> None:
    """A worker is evicted in the middle of a function, which is whole on no server, or on one."""
    loop = Loop(make(mode, placement="round_robin"), in_loop=True)
    runtime = loop.strategy.runtime

    def let_out() -> None:
        for worker in range(runtime.workers):
            for server in servers:
                runtime.servers[server].evict(
                    worker, runtime.members.latest_incarnation(worker) or 0
                )

    loop.dies = let_out
    for runs, dies_after in enumerate([0, 2], start=1):
        loop.run(dies_after=dies_after)
        assert loop.counts() == [runs * count for count in (4, 4, 4, 4, 4, 1)]


@pytest.mark.repeats
def test_rows_of_tables_count_once(make: Make) -> None:
    strategy = make()
    with strategy.scope():
        table = keras.layers.Embedding(300_000, 2, embeddings_initializer="zeros")
        table.build()
        optimizer = SparseUpdates(keras.optimizers.SGD(-1.0))
        optimizer.build([table.embeddings])
    died: list[bool] = []

    def attempt(_: Any) -> np.float32:
        if not died:
            died.append(True)
            raise RuntimeError(DIES)
        return np.float32(1.0)

    @tf.function
    def step() -> None:
        for number in range(2):
            with tf.GradientTape() as tape:
                found = table(tf.constant([5, 7, 5]))
                loss = tf.reduce_sum(found)
                if number:
                    loss *= tf.ensure_shape(tf.numpy_function(attempt, [found], tf.float32), [])
            gradient = tape.gradient(loss, table.embeddings.value)
            optimizer.apply_gradients([(gradient, table.embeddings)])

    strategy.coordinator.schedule(step)
    strategy.coordinator.join()
    assert died
    found = table(tf.constant([5, 6, 7])).numpy()
    assert found.tolist() == [[4, 4], [0, 0], [2, 2]]


@pytest.mark.rare
def test_a_server_that_lived_applies_nothing_again(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Updates that the returned one lacks are lost: it takes the applied ones from the other."""
    strategy = make(placement="round_robin")
    loop = Loop(strategy, in_loop=False)
    fault_tolerance = tfps.FaultTolerance(checkpoints=tmp_path)
    strategy.run_state.recovery = StrategyRecovery(strategy, fault_tolerance)
    manager = tfps.CheckpointManager(loop.model, tmp_path)
    loop.run(dies_after=None)
    manager.save(background=False)

    def dies(error: Exception) -> bool:
        if DIES in str(error):
            lose(strategy, [1])
        return DIES in str(error)

    monkeypatch.setattr(closure_error, "is_unparsed_request_error", dies)
    loop.run(dies_after=3)
    lacking = 3
    servers = [weight.value.device for weight in loop.weights]
    values = dict(zip(servers, loop.counts()[:2], strict=True))
    first, second = strategy.runtime.topology.servers
    assert values == {first: 2 * CALLS, second: 2 * CALLS - lacking}
    assert strategy.stats().versions == (2 * CALLS, 2 * CALLS)
    assert strategy.stats().updates_lost == lacking


@pytest.mark.repeats
def test_a_mistake_of_the_users_is_raised_at_once(make: Make, tmp_path: Path) -> None:
    """It is taken neither for a lost server that comes back nor for an evicted worker."""
    strategy = make(tfps.BoundedStaleness(1), placement="round_robin")
    loop = Loop(strategy, in_loop=False)
    fault_tolerance = tfps.FaultTolerance(checkpoints=tmp_path)
    strategy.run_state.recovery = StrategyRecovery(strategy, fault_tolerance)
    strategy.run_state.recovery.watch_closures(strategy.coordinator)
    tfps.CheckpointManager(loop.model, tmp_path)
    runs = []

    def attempt() -> np.float32:
        runs.append("once")
        return np.float32(np.nan)

    @tf.function
    def step() -> None:
        one = tf.ensure_shape(tf.numpy_function(attempt, [], tf.float32), [])
        one = tf.debugging.check_numerics(one, "not a number")  # the mistake
        loop.optimizer.apply([one, one], loop.weights)

    strategy.coordinator.schedule(step)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not a number"):
        strategy.coordinator.join()
    assert runs == ["once"]
    assert strategy.stats().versions == (0, 0)


METRIC_MODES = {
    "asynchronous": tfps.Asynchronous(),
    "synchronous": tfps.Synchronous(),
    "bounded": tfps.BoundedStaleness(1),
    "local": tfps.LocalSteps(2),
}


@pytest.mark.repeats
@pytest.mark.quick("asynchronous, evaluates")
@pytest.mark.parametrize(
    ("mode", "trains"),
    [
        pytest.param(mode, trains, id=f"{name}, {what}")
        for name, mode in METRIC_MODES.items()
        for what, trains in [("trains", True), ("evaluates", False)]
    ],
)
def test_what_lies_on_the_chief_counts_once(
    make: Make, monkeypatch: pytest.MonkeyPatch, mode: Any, trains: bool
) -> None:
    """A worker dies as the last thing that its function does, and its function runs again."""
    loop, died = Loop(make(mode, placement="round_robin"), in_loop=False), list[bool]()
    with loop.strategy.scope():
        mean = keras.metrics.Mean(name="mean")
    plain = keras.Variable(0, dtype="int64", trainable=False)  # outside of the scope
    original = FunctionStep.write_back

    def attempt() -> np.float32:
        if len(died) % 2 == 0:
            died.append(True)
            raise RuntimeError(DIES)
        died.append(False)
        return np.float32(1.0)

    def write_back(step: FunctionStep) -> None:
        original(step)
        operations = tf.compat.v1.get_default_graph().get_operations()
        with tf.control_dependencies([o for o in operations if o.type.startswith("Assign")]):
            tf.numpy_function(attempt, [], tf.float32)

    monkeypatch.setattr(FunctionStep, "write_back", write_back)

    @tf.function
    def step() -> None:
        mean.update_state([1.0, 3.0])
        plain.assign_add(1)
        if trains:
            loop.optimizer.apply([tf.constant(1.0)] * 2, loop.weights)

    for runs in (1, 2, 3):
        loop.coordinator.schedule(step)
        loop.coordinator.join()
        assert died == [True, False] * runs
        assert [float(v.numpy()) for v in mean.variables] == [4.0 * runs, 2.0 * runs]
        assert int(plain.numpy()) == runs
