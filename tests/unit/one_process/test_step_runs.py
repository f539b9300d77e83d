"""Waiting closures of one function run together, and do what they do one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.one_process.forced_runs import FORCED, ForcedRuns
from tests.unit.one_process.requests import Requests
from tfps.bridge.closures import closure_error
from tfps.bridge.closures.run_plan import ONE_BY_ONE
from tfps.testing import InProcessCluster
from tfps.transport.message import Kind

STEPS, FAILS_AT = 100, 57
DIES = "the worker loses a message here"


@pytest.fixture
def strategy() -> Iterator[tfps.ParameterServerStrategy]:
    """A strategy with one worker, which runs closures in their order."""
    with InProcessCluster(workers=1, ps=2) as cluster:
        yield tfps.ParameterServerStrategy(cluster.cluster_resolver)


class Loop:
    """A weight that grows by the numbers of the input, their sum as a metric, and noise.

    Args:
        strategy: of one process.
        numbers: how many numbers the input has.
    """

    def __init__(self, strategy: tfps.ParameterServerStrategy, *, numbers: int = 1000) -> None:
        self.coordinator, self.numbers = strategy.coordinator, numbers
        with strategy.scope():
            self.weight = keras.Variable(np.zeros([3], "float32"), name="weight")
            self.optimizer = keras.optimizers.Adam(0.1)
            self.optimizer.build([self.weight])
            self.sum = keras.metrics.Sum(name="sum")
            self.seeds = keras.random.SeedGenerator(7)
        self.step = tf.function(self._step)
        self.hook: Callable[[int], int] | None = None
        self.iterator = self.iterate()

    def iterate(self) -> Any:
        data = self.coordinator.create_per_worker_dataset(
            lambda: tf.data.Dataset.range(self.numbers)
        )
        return iter(data)

    def _step(self, iterator: Any) -> Any:
        number = next(iterator)
        if self.hook is not None:
            number = tf.ensure_shape(tf.numpy_function(self.hook, [number], tf.int64), [])
        noise = keras.random.normal([3], seed=self.seeds)
        self.optimizer.apply([noise + tf.cast(number, tf.float32)], [self.weight])
        self.sum.update_state(number)
        tf.debugging.assert_less(number, tf.constant(1000, tf.int64), "too large")  # the line
        return {"number": number, "none": None, "sum": self.sum.result(), "noise": (noise,)}

    def state(self) -> list[Any]:
        """Everything that steps change, exactly."""
        variables = [self.weight, *self.optimizer.variables, *self.sum.variables, self.seeds.state]
        return [variable.numpy().tolist() for variable in variables]


def test_values_and_state_are_those_of_single_closures(
    strategy: tfps.ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, states = [], []
    loops = [Loop(strategy), Loop(strategy)]
    for loop, limits in zip(loops, (ONE_BY_ONE, FORCED), strict=True):
        runs = ForcedRuns(strategy, monkeypatch, limits=limits)
        values = runs.schedule(loop.step, STEPS, loop.iterator)
        loop.coordinator.join()
        assert loop.coordinator.done()
        results.append(loop.coordinator.fetch(values))
        states.append(loop.state())
        assert isinstance(values[-1].get()["noise"][0], tf.Tensor)
        expected = [(32, 32)] * 3 + [(4, 4)] if limits is FORCED else []
        assert runs.sizes == expected
    assert [each["number"] for each in results[1]] == list(range(STEPS))
    assert [each["sum"] for each in results[1]] == np.cumsum(np.arange(STEPS)).tolist()
    assert repr(results[1]) == repr(results[0])  # the types, too
    assert states[1] == states[0]
    assert int(loops[1].optimizer.iterations.numpy()) == STEPS


@pytest.mark.rare
def test_only_held_values_are_kept(
    strategy: tfps.ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other values do not stay; the metric counts all the same."""
    loop, runs = Loop(strategy), ForcedRuns(strategy, monkeypatch)
    value = runs.schedule(loop.step, 10, loop.iterator)[4]
    loop.coordinator.join()
    assert value.fetch()["number"] == 4
    assert float(loop.sum.result()) == 45.0
    assert runs.sizes == [(10, 10)]


@pytest.mark.rare
def test_a_run_ends_in_time(
    strategy: tfps.ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closures that have not begun are the front of the queue again."""
    loop = Loop(strategy)
    runs = ForcedRuns(strategy, monkeypatch, limits=replace(FORCED, longest_s=0.0))
    monkeypatch.setattr("tfps.bridge.closures.step_run.count_steps", lambda *_, **__: 8)
    values = runs.schedule(loop.step, 20, loop.iterator)
    assert [value.fetch()["number"] for value in values] == list(range(20))
    assert runs.sizes == [(8, 1)] * 13 + [(steps, 1) for steps in range(7, 1, -1)]
    assert int(loop.optimizer.iterations.numpy()) == 20


def _outcomes(values: list[Any]) -> list[str]:
    """The type of each value's error, or its number."""
    found = []
    for value in values:
        try:
            found.append(str(value.fetch()["number"]))
        except tf.errors.OpError as error:
            found.append(type(error).__name__)
    return found


@pytest.mark.rare
def test_the_input_ends(
    strategy: tfps.ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, runs = Loop(strategy, numbers=FAILS_AT), ForcedRuns(strategy, monkeypatch)
    values = runs.schedule(loop.step, STEPS, loop.iterator)
    with pytest.raises(tf.errors.OutOfRangeError):
        loop.coordinator.join()
    cancelled = ["CancelledError"] * (STEPS - FAILS_AT - 1)
    assert _outcomes(values) == [*map(str, range(FAILS_AT)), "OutOfRangeError", *cancelled]
    assert int(loop.optimizer.iterations.numpy()) == FAILS_AT
    assert float(loop.sum.result()) == sum(range(FAILS_AT))
    values = runs.schedule(loop.step, 9, loop.iterate())
    assert [each["number"] for each in loop.coordinator.fetch(values)] == list(range(9))
    # Between the two, a worker may have taken closures that were just about to be cancelled.
    assert [size for size in runs.sizes if size[1]] == [(32, 32), (32, FAILS_AT - 32), (9, 9)]


def test_an_assertion_of_the_user_fails(
    strategy: tfps.ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, runs = Loop(strategy), ForcedRuns(strategy, monkeypatch)
    loop.hook = lambda number: number + 1000 * (number == FAILS_AT)
    values = runs.schedule(loop.step, STEPS, loop.iterator)
    with pytest.raises(tf.errors.InvalidArgumentError, match="too large") as caught:
        loop.coordinator.join()
    assert "# the line" in str(caught.value)
    cancelled = ["CancelledError"] * (STEPS - FAILS_AT - 1)
    assert _outcomes(values) == [*map(str, range(FAILS_AT)), "InvalidArgumentError", *cancelled]
    # As with single closures: the push was answered before the assertion failed.
    assert int(loop.optimizer.iterations.numpy()) == FAILS_AT + 1
    assert float(loop.sum.result()) == sum(range(FAILS_AT))
    assert runs.sizes[:2] == [(32, 32), (32, FAILS_AT - 32)]


def test_a_lost_message_repeats_one_step(
    strategy: tfps.ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker still has what the finished steps have returned, and goes on behind them."""
    loop, runs = Loop(strategy), ForcedRuns(strategy, monkeypatch)
    cancellation = type(runs.queue.cancellation_manager)
    monkeypatch.setattr(cancellation, "get_cancelable_function", lambda _, function: function)
    monkeypatch.setattr(
        closure_error, "is_unparsed_request_error", lambda error: DIES in str(error)
    )
    loses = [FAILS_AT, FAILS_AT + 3]

    def lose(number: int) -> int:
        if number in loses:
            loses.remove(number)
            raise RuntimeError(DIES)
        return number

    loop.hook = lose
    values = runs.schedule(loop.step, STEPS, loop.iterator)
    loop.coordinator.join()
    # The batches of the two steps are lost, as with single closures.
    numbers = [n for n in range(STEPS + 2) if n not in (FAILS_AT, FAILS_AT + 3)]
    assert [each["number"] for each in loop.coordinator.fetch(values)] == numbers
    assert int(loop.optimizer.iterations.numpy()) == STEPS
    assert float(loop.sum.result()) == sum(numbers)
    assert sum(done for _, done in runs.sizes) == STEPS


@pytest.mark.rare
def test_a_lost_run_comes_back_one_by_one(
    strategy: tfps.ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push that was applied is not applied again; a metric counts each closure once."""
    loop, runs = Loop(strategy), ForcedRuns(strategy, monkeypatch)
    removed = tf.errors.InvalidArgumentError(None, None, closure_error.NOT_A_MEMBER)
    cancellation, losses = type(runs.queue.cancellation_manager), [removed]

    def get_function(_: Any, function: Any) -> Any:
        def call(*args: Any) -> Any:
            result = function(*args)
            if losses and function.name.startswith(b"__inference__trace"):
                raise losses.pop()  # the last message to the chief is lost
            return result

        return call

    monkeypatch.setattr(cancellation, "get_cancelable_function", get_function)
    values = runs.schedule(loop.step, STEPS, loop.iterator)
    loop.coordinator.join()
    assert not losses
    numbers = [each["number"] for each in loop.coordinator.fetch(values)]
    assert numbers == list(range(32, STEPS + 32))  # other batches
    assert int(loop.optimizer.iterations.numpy()) == STEPS
    assert strategy.stats().versions == (STEPS, STEPS)
    requests = Requests(strategy, has=Kind.PUSH)
    assert [requests.counted("DUPLICATES", server=server) for server in range(2)] == [32, 32]
    assert float(loop.sum.result()) == sum(numbers)
    assert runs.sizes == [(32, 32), (32, 32), (4, 4)]
