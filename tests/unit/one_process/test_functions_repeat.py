"""Under `Synchronous` all servers go back to a checkpoint, and functions run once more."""

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
from tests.unit.one_process.lost_servers import NoProcesses, lose
from tfps.bridge import closure_error
from tfps.errors import CheckpointError
from tfps.recovery.server_loss import ServerLoss
from tfps.strategy.recovering import Recovering
from tfps.testing import OneProcess
from tfps.training import round_points

FUNCTIONS = 12
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
        self.compile(keras.optimizers.Adam(0.1))
        self.built = True
        self.optimizer.build(self.trainable_variables)


class Loop:
    """Functions that each call the optimizer twice, with gradients that their numbers tell.

    Args:
        strategy: of one process with one worker, so that all numbers are known.
        folder: of the checkpoints.
        every_steps: of `tfps.Recovery`.
    """

    def __init__(
        self, strategy: tfps.ParameterServerStrategy, folder: Path, *, every_steps: int | None
    ) -> None:
        self.strategy = strategy
        with strategy.scope():
            self.model = Model()
            self.seen = keras.metrics.Sum()
        self.manager = tfps.CheckpointManager(self.model, folder)
        recovery = tfps.Recovery(checkpoints=self.manager, every_steps=every_steps)
        strategy._recovering = Recovering(strategy, recovery, guard=strategy._guard)
        strategy._recovering.attend(strategy.coordinator)
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

    def save(self) -> None:
        self.manager.save(background=False)

    def numbers(self) -> dict[str, Any]:
        """All that can be known of it, exactly."""
        model, stats = self.model, self.strategy.stats()
        variables = [*model.variables, *model.optimizer.variables]
        return {
            "variables": [np.asarray(variable.numpy()).tolist() for variable in variables],
            "metric": float(self.seen.result()),
            "versions": stats.versions,
            "staleness": stats.gradient_staleness_updates,
            "updates lost": stats.updates_lost,
        }

    def lose(self, servers: Sequence[int]) -> list[ServerLoss]:
        return lose(self.strategy, servers)


@pytest.fixture
def strategy(monkeypatch: pytest.MonkeyPatch) -> Iterator[tfps.ParameterServerStrategy]:
    monkeypatch.setattr("tfps.strategy.recovering.ServerReturn", NoProcesses)
    with OneProcess(workers=1, ps=2) as cluster:
        strategy = tfps.ParameterServerStrategy(
            cluster.cluster_resolver, placement="round_robin", consistency=tfps.Synchronous()
        )
        yield strategy
        strategy.close()


@pytest.fixture
def expected(strategy: tfps.ParameterServerStrategy, tmp_path: Path) -> dict[str, Any]:
    with OneProcess(workers=1, ps=2) as cluster:
        other = tfps.ParameterServerStrategy(
            cluster.cluster_resolver, placement="round_robin", consistency=tfps.Synchronous()
        )
        loop = Loop(other, tmp_path / "undisturbed", every_steps=None)
        loop.run(FUNCTIONS)
        numbers = loop.numbers()
        other.close()
    return numbers


def test_nobody_can_tell(
    strategy: tfps.ParameterServerStrategy, expected: dict[str, Any], tmp_path: Path
) -> None:
    """A loss of either server, and of both; what was delivered stays, and metrics count once."""
    loop = Loop(strategy, tmp_path / "found", every_steps=None)
    loop.save()
    early = loop.schedule(3)
    strategy.coordinator.join()
    losses = loop.lose([1])
    assert str(losses[0]) == "ps 1 (all servers back at update 0 of 6: 3 functions are repeated)"
    loop.run(2)
    loop.save()
    losses += loop.lose([0])  # nothing moved
    loop.schedule(FUNCTIONS - 5)
    strategy.coordinator.join()
    losses += loop.lose([0, 1])
    strategy.coordinator.join()
    assert loop.numbers() == expected
    assert [loss.repeated_steps for loss in losses] == [3, 0, 7, 7]
    assert strategy.stats().functions_repeated == 10
    assert strategy.coordinator.fetch(early) == [0, 10, 20]


@pytest.mark.slow
@pytest.mark.parametrize("servers", [[0], [1], [0, 1]], ids=str)
def test_what_was_under_way_runs_after_a_loss(
    servers: list[int],
    strategy: tfps.ParameterServerStrategy,
    expected: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server is lost between two calls of a function; others wait in the queue."""
    loop = Loop(strategy, tmp_path / "found", every_steps=None)
    losses: list[ServerLoss] = []

    def run_again(error: Exception) -> bool:
        if DIES in str(error):
            losses.extend(loop.lose(servers))
        return DIES in str(error)

    monkeypatch.setattr(closure_error, "tells_of_an_unread_request", run_again)
    # In one process a function that fails cancels all that can be cancelled.
    cancellation = type(strategy.coordinator._cluster.closure_queue._cancellation_mgr)
    monkeypatch.setattr(cancellation, "get_cancelable_function", lambda _, function: function)
    loop.run(2)
    loop.save()
    calls = iter([False, False, True])
    loop.dies = lambda: next(calls, False)
    loop.run(FUNCTIONS - 2)
    found = loop.numbers()
    # Functions are not in their order, and a step of Adam tells; counts are exact.
    for key in expected.keys() - {"variables"}:
        assert found[key] == expected[key], key
    assert int(loop.model.runs.numpy()) == FUNCTIONS
    assert [loss.repeated_steps for loss in losses] == [2] * len(servers)


@pytest.mark.slow
def test_a_checkpoint_is_saved_before_the_first_and_after_so_many(
    strategy: tfps.ParameterServerStrategy, expected: dict[str, Any], tmp_path: Path
) -> None:
    loop = Loop(strategy, tmp_path / "found", every_steps=4)
    loop.run(FUNCTIONS - 1)
    loop.manager.wait()
    assert [manifest.number for manifest in loop.manager.checkpoints] == [1, 2, 3]
    (loss,) = loop.lose([1])
    loop.run(1)
    assert loss.repeated_steps == 3
    assert loop.numbers() == expected


@pytest.mark.slow
def test_what_else_changes_variables_is_kept_first(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    """After a function has failed there is no exact point but the next checkpoint."""
    loop = Loop(strategy, tmp_path / "found", every_steps=100)
    loop.run(1)
    loop.dies = lambda: True
    with pytest.raises(tf.errors.OpError, match=DIES):
        loop.run(1)
    loop.dies = lambda: False
    with pytest.raises(CheckpointError, match="of which none has failed"):
        loop.lose([1])


def _push(loop: Loop) -> None:
    path = loop.model.first.path
    values, version = loop.strategy.pull([path])
    loop.strategy.push({path: values[path]}, version)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("learning_rate", lambda loop: setattr(loop.model.optimizer, "learning_rate", 0.05)),
        ("strategy.push", _push),
    ],
)
def test_what_the_script_writes_is_not_repeated(
    name: str, write: Any, strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    loop = Loop(strategy, tmp_path / "found", every_steps=100)
    loop.run(1)
    write(loop)
    with pytest.raises(CheckpointError, match=f"has written .*{name}.* between scheduled fun"):
        loop.lose([1])
    loop.save()
    assert [loss.repeated_steps for loss in loop.lose([1])] == [0]


@pytest.mark.slow
def test_who_saves_nothing_is_told_once(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    round_points._warn.cache_clear()
    loop = Loop(strategy, tmp_path / "found", every_steps=None)
    with caplog.at_level(logging.WARNING):
        loop.run(2)
        loop.run(2)
    assert caplog.text.count("no checkpoint has what they begin from") == 1
    with pytest.raises(CheckpointError, match="no checkpoint of what was trained"):
        loop.lose([1])


@pytest.mark.slow
def test_iterators_do_not_go_back_and_that_is_said(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop(strategy, tmp_path / "found", every_steps=100)
    coordinator = strategy.coordinator
    data = coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.range(100))
    iterator, sums = iter(data), tf.function(lambda iterator: loop._step(next(iterator)))
    for _ in range(3):
        coordinator.schedule(sums, args=(iterator,))
    loop.run(1)
    with caplog.at_level(logging.WARNING):
        loop.lose([0])
    coordinator.join()
    assert "3 of the 4 functions that are repeated take batches from iterators" in caplog.text
    assert float(loop.seen.result()) == 0 + 1 + 2 + 0  # what they have told stays
    assert coordinator.fetch(coordinator.schedule(sums, args=(iterator,))) == 60
