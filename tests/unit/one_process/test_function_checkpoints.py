"""Under `Synchronous` checkpoints are saved between functions; a lost server ends the job."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.one_process.lost_servers import lose
from tfps.errors import CheckpointError
from tfps.recovery.servers.server_loss import ServerLoss
from tfps.strategy.strategy_recovery import StrategyRecovery
from tfps.testing import InProcessCluster
from tfps.training.run import round_points

DIES = "a server dies here"


class Model(keras.Model):
    """Two weights on two servers, and a count of the functions that have trained them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (
            self.add_weight(shape=(3,), initializer="ones", name=name) for name in ("a", "b")
        )
        self.runs = self.add_weight(
            shape=(), initializer="zeros", dtype="int64", trainable=False, name="runs"
        )
        self.compile(keras.optimizers.Adam(0.1), "mse")
        self.built = True
        self.optimizer.build(self.trainable_variables)

    def call(self, inputs: Any) -> Any:
        return inputs * self.first + self.second


class Loop:
    """Functions that each call the optimizer twice, which may fail in between.

    Args:
        strategy: of one process with one worker, so that all numbers are known.
        folder: of the checkpoints.
        every_steps: of `tfps.FaultTolerance`.
    """

    def __init__(
        self, strategy: tfps.ParameterServerStrategy, folder: Path, *, every_steps: int | None
    ) -> None:
        self.strategy = strategy
        fault_tolerance = tfps.FaultTolerance(checkpoints=folder, every_steps=every_steps)
        strategy.run_state.recovery = StrategyRecovery(strategy, fault_tolerance)
        strategy.run_state.recovery.watch_closures(strategy.coordinator)
        with strategy.scope():
            self.model = Model()
            self.seen = keras.metrics.Sum()
        self.manager = tfps.CheckpointManager(self.model, folder)
        self.step = tf.function(self._step)
        self.next = 0
        self.dies: Any = lambda: False

    def _step(self, number: tf.Tensor) -> tf.Tensor:
        for call in range(2):
            base = tf.numpy_function(self._attempt, [number, call], tf.float32)
            gradients = [
                tf.ensure_shape(base, []) * v.value for v in self.model.trainable_variables
            ]
            self.model.optimizer.apply(gradients, self.model.trainable_variables)
        self.model.runs.assign_add(1)
        self.seen.update_state(number)
        return 10 * number

    def _attempt(self, number: int, call: int) -> np.float32:
        if call and self.dies():
            raise RuntimeError(DIES)
        return np.float32(np.sin(number + call))

    def schedule(self, functions: int) -> list[Any]:
        numbers = range(self.next, self.next + functions)
        self.next += functions
        return [
            self.strategy.coordinator.schedule(self.step, args=(tf.constant(number),))
            for number in numbers
        ]

    def run(self, functions: int) -> None:
        self.schedule(functions)
        self.strategy.coordinator.join()

    def fit(self) -> None:
        examples = np.ones((4, 3), "float32")
        self.model.fit(examples, examples, batch_size=2, verbose=0)

    def save(self) -> None:
        self.manager.save(background=False)

    def numbers(self) -> list[Any]:
        """All variables on the servers."""
        variables = [*self.model.variables, *self.model.optimizer.variables]
        return [np.asarray(variable.numpy()).tolist() for variable in variables]

    def lose(self, servers: Sequence[int]) -> list[ServerLoss]:
        return lose(self.strategy, servers)


@pytest.fixture
def strategy() -> Iterator[tfps.ParameterServerStrategy]:
    with InProcessCluster(workers=1, ps=2) as cluster:
        strategy = tfps.ParameterServerStrategy(
            cluster.cluster_resolver, placement="round_robin", consistency=tfps.Synchronous()
        )
        yield strategy
        strategy.close()


@pytest.mark.repeats
def test_saved_before_the_first_function_and_after_so_many(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    loop = Loop(strategy, tmp_path / "found", every_steps=4)
    loop.run(11)
    loop.manager.wait()
    assert [manifest.number for manifest in loop.manager.checkpoints] == [1, 2, 3]
    with raises(CheckpointError, "found", received=3, remedy="restore_latest"):
        loop.lose([1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "servers",
    [pytest.param([0], marks=pytest.mark.repeats), [1]],
    ids=["hands out tickets", "another"],
)
def test_a_loss_right_after_a_checkpoint_costs_nothing(
    servers: list[int], strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    loop = Loop(strategy, tmp_path / "found", every_steps=None)
    loop.run(3)
    loop.save()
    before = loop.numbers()
    losses = loop.lose(servers)
    assert loop.numbers() == before
    assert [(loss.checkpoint, loss.updates_lost) for loss in losses] == [(1, 0)] * len(servers)
    results = loop.schedule(2)
    strategy.coordinator.join()
    assert strategy.coordinator.fetch(results) == [30, 40]
    assert int(loop.model.runs.numpy()) == 5
    with raises(CheckpointError, "found", received=1, remedy="restore_latest"):
        loop.lose(servers)


@pytest.mark.rare
def test_without_a_checkpoint_that_is_said_once_and_at_the_loss(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    round_points.warn_once.cache_clear()
    loop = Loop(strategy, tmp_path / "found", every_steps=None)
    with caplog.at_level(logging.WARNING):
        loop.run(2)
        loop.run(2)
    assert caplog.text.count("no checkpoint has what the functions begin from") == 1
    with raises(CheckpointError, "found", remedy="start the job"):
        loop.lose([1])


@pytest.mark.rare
def test_what_functions_only_assign_is_not_lost_in_silence(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    """No update is counted for it."""
    loop = Loop(strategy, tmp_path / "found", every_steps=None)
    count = tf.function(lambda: loop.model.runs.assign_add(1))
    loop.save()
    strategy.coordinator.schedule(count)
    strategy.coordinator.join()
    with raises(CheckpointError, "found", received=1, remedy="restore_latest"):
        loop.lose([1])


@pytest.mark.rare
def test_functions_that_change_nothing_need_no_checkpoint(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    loop = Loop(strategy, tmp_path / "found", every_steps=None)
    total = tf.function(lambda: tf.reduce_sum(loop.model.first.value))
    loop.save()
    value = strategy.coordinator.schedule(total)
    strategy.coordinator.join()
    assert [loss.updates_lost for loss in loop.lose([0])] == [0]
    assert strategy.coordinator.fetch(value) == 3.0


@pytest.mark.rare
def test_a_function_that_has_failed_is_not_repeated_either(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    loop = Loop(strategy, tmp_path / "found", every_steps=100)
    loop.run(1)
    loop.dies = lambda: True
    with raises(tf.errors.OpError, DIES):
        loop.run(1)
    with raises(CheckpointError, "found", received=1, remedy="restore_latest"):
        loop.lose([1])


def _push(loop: Loop) -> None:
    path = loop.model.first.path
    values, version = loop.strategy.pull([path])
    loop.strategy.push({path: values[path]}, version)


@pytest.mark.rare
@pytest.mark.parametrize(
    "write",
    [lambda loop: setattr(loop.model.optimizer, "learning_rate", 0.05), _push],
    ids=["learning_rate", "strategy.push"],
)
def test_what_the_script_writes_needs_a_checkpoint(
    write: Any, strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    loop = Loop(strategy, tmp_path / "found", every_steps=None)
    loop.run(1)
    write(loop)
    loop.save()
    assert [loss.updates_lost for loss in loop.lose([1])] == [0]
    write(loop)
    with raises(CheckpointError, "variables", received=1):
        loop.lose([1])


@pytest.mark.repeats
def test_functions_after_fit_begin_from_its_last_checkpoint(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    """It is not saved once more; `fit` saves what functions have changed before it begins."""
    loop = Loop(strategy, tmp_path / "found", every_steps=100)
    loop.run(1)
    loop.fit()
    saved = [manifest.number for manifest in loop.manager.checkpoints]
    assert [loss.updates_lost for loss in loop.lose([0])] == [0]
    loop.run(1)
    loop.manager.wait()
    assert [manifest.number for manifest in loop.manager.checkpoints] == saved
    with raises(CheckpointError, "found", received=saved[-1], remedy="restore_latest"):
        loop.lose([1])


@pytest.mark.slow
def test_a_second_manager_of_the_folder_goes_on_from_the_first(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    loop = Loop(strategy, tmp_path / "found", every_steps=None)
    loop.run(1)
    loop.save()
    tfps.CheckpointManager(loop.model, tmp_path / "elsewhere")
    tfps.CheckpointManager(loop.model, tmp_path / "found")
    assert [(loss.checkpoint, loss.updates_lost) for loss in loop.lose([1])] == [(1, 0)]
