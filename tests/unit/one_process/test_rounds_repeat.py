"""Under `Synchronous` all servers go back to a checkpoint, and the numbers do not show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.one_process.lost_servers import lose, recover, saver
from tests.unit.one_process.unit_steps import counters, schedule
from tfps.errors import CheckpointError
from tfps.recovery.servers.server_loss import ServerLoss
from tfps.runtime.coordinator.server import Server
from tfps.training.run.ticket_run import TicketRun

EXAMPLES, BATCH, EPOCHS = 24, 2, 2
STEPS = EXAMPLES // BATCH
X = np.random.default_rng(0).normal(size=(EXAMPLES, 4)).astype("float32")
Y = X.sum(1, keepdims=True)

Make = Callable[..., tfps.ParameterServerStrategy]
Numbers = dict[str, Any]
MakeJob = Callable[..., "Job"]


def batches() -> Iterator[Any]:
    for begin in range(0, EXAMPLES, BATCH):
        yield X[begin : begin + BATCH], Y[begin : begin + BATCH]


def fed() -> tf.data.Dataset:
    """A dataset that the chief has to iterate itself."""
    spec = (tf.TensorSpec([BATCH, 4]), tf.TensorSpec([BATCH, 1]))
    return tf.data.Dataset.from_generator(batches, output_signature=spec)


def iterated() -> tf.data.Dataset:
    """A dataset that each worker iterates."""
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(EXAMPLES, seed=3).batch(BATCH)


def in_shards() -> tfps.ShardedDataset:
    return tfps.ShardedDataset(
        lambda: tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH), number=2
    )


INPUTS: dict[str, Callable[[], Any]] = {
    "arrays": lambda: X,
    "fed by the chief": fed,
    "a dataset on workers": iterated,
    "shards": in_shards,
}


class LoseServers(keras.callbacks.Callback):
    """Loses servers at some steps of the training; hooks see the weights that they had before."""

    def __init__(
        self, strategy: tfps.ParameterServerStrategy, at: dict[int, Sequence[int]]
    ) -> None:
        super().__init__()
        self.strategy, self.at = strategy, at
        self.steps: list[int] = []
        self.losses: list[ServerLoss] = []
        self.since_checkpoints: list[list[int]] = []  # steps, at each loss; the newest one first

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps.append(batch)
        servers = self.at.get(len(self.steps))
        if servers is not None:
            before = self.model.get_weights()
            since = self.steps_since_checkpoints()
            losses = lose(self.strategy, servers)
            self.since_checkpoints += [since] * len(losses)
            self.losses += losses
            self.check(before)

    def steps_since_checkpoints(self) -> list[int]:
        """Once the newest one is written: until then it is no place to go back to."""
        recovery: Any = self.strategy.run_state.recovery
        if recovery is None or recovery.points is None or recovery.points.run is None:
            return []
        assert recovery.manager is not None
        recovery.manager.wait()
        run, cell = recovery.points.run, self.strategy.runtime.ticket_server.layout.COMPLETED
        reached = run.cells[cell] + run.known_completed - run.completed
        return [int(reached) - point.ledgers[0][cell] for point in reversed(run.points)]

    def check(self, before: Sequence[Any]) -> None:
        for was, found in zip(before, self.model.get_weights(), strict=True):
            np.testing.assert_array_equal(was, found)


class Job:
    """A model with dropout and Adam, which can begin anew; it is traced once.

    Args:
        strategy: of one process, that recovers.
        rate: of dropout.
        by_rows: it has a table of which only rows are updated.
    """

    def __init__(
        self, strategy: tfps.ParameterServerStrategy, *, rate: float, by_rows: bool
    ) -> None:
        self.strategy = strategy
        keras.utils.set_random_seed(5)
        layers = [keras.layers.Dense(8), keras.layers.Dropout(rate), keras.layers.Dense(1)]
        optimizer: Any = keras.optimizers.Adam(0.01)
        if by_rows:
            bins = keras.layers.Discretization(bin_boundaries=np.linspace(-2, 2, 30).tolist())
            layers = [bins, keras.layers.Embedding(40, 3), keras.layers.Flatten(), *layers]
            optimizer = tfps.optimizers.SparseUpdates(optimizer)
        with strategy.scope():
            self.model = keras.Sequential([keras.Input((4,)), *layers])
            self.model.compile(optimizer, "mse", metrics=["mae"])
            self.model.optimizer.build(self.model.trainable_variables)
        self.variables = [*self.model.variables, *self.model.optimizer.variables]
        self.initial = self.values()

    def values(self) -> list[Any]:
        return [np.array(variable.numpy()) for variable in self.variables]

    def train(self, x: Any, *, at: dict[int, Sequence[int]], **options: Any) -> Numbers:
        """Train from the begin; return all numbers of the training, exactly."""
        for variable, value in zip(self.variables, self.initial, strict=True):
            variable.assign(value)
        keras.utils.set_random_seed(5)
        data = {"x": x, "y": Y, "batch_size": BATCH} if x is X else {"x": x}
        hook, before = LoseServers(self.strategy, at), self.strategy.stats()
        callbacks = [hook, *options.pop("callbacks", [])]
        options = {"epochs": EPOCHS, "verbose": 0, "callbacks": callbacks, **options}
        history = self.model.fit(**data, **options)
        stats = self.strategy.stats()
        return {
            "weights": self.values(),
            "history": history.history,
            "steps": hook.steps,
            "versions": [
                now - was for now, was in zip(stats.versions, before.versions, strict=True)
            ],
            "worker steps": sum(stats.worker_steps) - sum(before.worker_steps),
            "examples": stats.examples_seen - before.examples_seen,
            "updates lost": stats.updates_lost,
            "losses": hook.losses,
            "since checkpoints": hook.since_checkpoints,
        }


def assert_same(found: Numbers, expected: Numbers) -> None:
    for was, now in zip(expected["weights"], found["weights"], strict=True):
        np.testing.assert_array_equal(now, was)
    for key in expected.keys() - {"weights", "losses", "since checkpoints"}:
        assert found[key] == expected[key], key
    assert found["updates lost"] == 0


def assert_repeated(found: Numbers, *, checkpoint: int) -> None:
    """Steps since a checkpoint; the worker may be ahead of the hook that loses a server."""
    repeated = [loss.repeated_steps for loss in found["losses"]]
    assert repeated == [since[checkpoint] for since in found["since checkpoints"]]
    assert any(repeated)
    assert all(0 <= steps < STEPS for steps in repeated)


@pytest.fixture
def make_job(make_strategy: Make, tmp_path: Path) -> MakeJob:
    def make(*, every_steps: int | None = 3, rate: float = 0.4, by_rows: bool = False) -> Job:
        strategy = make_strategy(tfps.Synchronous(), placement="round_robin")
        recover(strategy, tmp_path, every_steps=every_steps)
        return Job(strategy, rate=rate, by_rows=by_rows)

    return make


@pytest.mark.slow
@pytest.mark.parametrize("x", INPUTS.values(), ids=INPUTS)
def test_nobody_can_tell(make_job: MakeJob, x: Callable[[], Any]) -> None:
    """A loss of either server, and of both, in the midst of epochs: all numbers are the same."""
    # Of shards it is chance which worker begins with a ticket, and so which seeds go with a batch.
    job = make_job(rate=0.0 if x is in_shards else 0.4)
    expected = job.train(x(), at={})
    found = job.train(x(), at={5: [1], 8: [0, 1], STEPS + 2: [0]})
    assert_same(found, expected)
    assert len(found["losses"]) == 4
    assert_repeated(found, checkpoint=0)


@pytest.mark.repeats
def test_rows_of_a_table_are_summed_again(make_job: MakeJob) -> None:
    job = make_job(by_rows=True)
    expected = job.train(X, at={})
    found = job.train(X, at={5: [1], 8: [0, 1]})
    assert_same(found, expected)
    assert_repeated(found, checkpoint=0)


@pytest.mark.repeats
def test_where_nothing_moved_nothing_is_repeated(make_job: MakeJob) -> None:
    """Between epochs and in a validation pass a checkpoint has all that there is."""

    class AtRest(keras.callbacks.Callback):
        losses: ClassVar[list[ServerLoss]] = []

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.losses.extend(lose(self.model.distribute_strategy, [epoch % 2]))

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            self.losses.extend(lose(self.model.distribute_strategy, [1]))

    options = {"validation_data": (X[:4], Y[:4]), "validation_batch_size": 2}
    job = make_job(every_steps=None)
    expected = job.train(X, at={}, **options)
    found = job.train(X, at={}, callbacks=[AtRest()], **options)
    assert_same(found, expected)
    assert [loss.updates_lost for loss in AtRest.losses] == [0] * 6


class Writes(keras.callbacks.Callback):
    """Changes the learning rate."""

    def __init__(self, *, in_the_middle: bool) -> None:
        super().__init__()
        self.in_the_middle = in_the_middle

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate = 0.01 / (epoch + 1)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.in_the_middle and batch == 4:
            self.model.optimizer.learning_rate = 0.001


@pytest.mark.repeats
def test_what_a_callback_assigns_between_epochs_stays(make_job: MakeJob) -> None:
    job, writes = make_job(), [Writes(in_the_middle=False)]
    expected = job.train(X, at={}, callbacks=writes)
    assert_same(job.train(X, at={STEPS + 2: [1]}, callbacks=writes), expected)


@pytest.mark.rare
def test_what_it_assigns_in_an_epoch_cannot_be_repeated(make_job: MakeJob) -> None:
    job = make_job(every_steps=None)
    with raises(CheckpointError, "learning_rate"):
        job.train(X, at={6: [1]}, callbacks=[Writes(in_the_middle=True)])


@pytest.mark.rare
def test_train_on_batch_cannot_be_repeated(make_strategy: Make, tmp_path: Path) -> None:
    strategy = make_strategy(tfps.Synchronous(), placement="round_robin")
    recover(strategy, tmp_path, every_steps=None)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(X, Y, batch_size=8, verbose=0)
    assert [loss.updates_lost for loss in lose(strategy, [1])] == [0]
    model.train_on_batch(X, Y)
    with raises(
        CheckpointError, "checkpoint", received="train_on_batch", remedy="Start the job again"
    ):
        lose(strategy, [1])


@pytest.mark.rare
def test_local_rounds_cannot_be_repeated(make_strategy: Make, tmp_path: Path) -> None:
    mode = tfps.LocalSteps(2, synchronous_periods=True)
    strategy = make_strategy(mode, placement="round_robin")
    recover(strategy, tmp_path, every_steps=None)
    model = counters(strategy)
    saver(strategy, model, tmp_path).save(background=False)
    schedule(strategy, model, steps=4)
    with raises(CheckpointError, "LocalSteps", remedy="newest checkpoint"):
        lose(strategy, [1])


@pytest.mark.rare
def test_the_checkpoint_before_is_used(make_job: MakeJob, caplog: pytest.LogCaptureFixture) -> None:
    """Where the newest one is damaged, and that is said."""

    class Damage(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 6:
                manager = self.model.distribute_strategy.run_state.recovery.manager
                manager.wait()
                newest = manager.directory_of(manager.latest.number)
                next(newest.glob("ps-*.data*")).write_bytes(b"")

    job = make_job()
    expected = job.train(X, at={}, epochs=1)
    found = job.train(X, at={8: [0]}, epochs=1, callbacks=[Damage()])
    assert_same(found, expected)
    assert len(found["losses"]) == 1
    assert_repeated(found, checkpoint=1)
    assert "is used instead" in caplog.text


@pytest.mark.repeats
def test_totals_are_those_of_the_epoch_at_hand(
    make_strategy: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds without a repetition too: the epoch before has left its totals with the chief."""
    strategy = make_strategy(placement="round_robin")
    recover(strategy, tmp_path, every_steps=3)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=[label])
    hook = LoseServers(strategy, {STEPS + 5: [0]})
    monkeypatch.setattr(hook, "check", lambda before: None)  # rows lack updates
    history = model.fit(X, Y, batch_size=BATCH, epochs=2, verbose=0, callbacks=[hook]).history
    assert hook.losses
    np.testing.assert_allclose(history["label"], [Y.mean()] * 2, rtol=1e-5)


@pytest.mark.repeats
@pytest.mark.parametrize(
    "moment", [(TicketRun, "run_to"), (Server, "open_tickets")], ids=["known", "made"]
)
@pytest.mark.parametrize("mode", [tfps.Asynchronous(), tfps.Synchronous()], ids=repr)
def test_an_epoch_that_is_about_to_begin_has_no_totals(
    make_strategy: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: Any,
    moment: tuple[type, str],
) -> None:
    """A server is lost when they were set to zero, and no ticket was handed out."""
    strategy = make_strategy(mode, placement="round_robin")
    recover(strategy, tmp_path, every_steps=3)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=[SumOfLabels()])
    begins, lost = getattr(*moment), list[ServerLoss]()

    def begin(of: Any, *arguments: Any) -> Any:
        if strategy.run_state.last_run is not None and not lost:
            lost.extend(lose(strategy, [0]))
        return begins(of, *arguments)

    monkeypatch.setattr(*moment, begin)
    history = model.fit(X, Y, batch_size=BATCH, epochs=2, verbose=0).history
    assert len(lost) == 1
    np.testing.assert_allclose(history["labels"], [Y.sum()] * 2, rtol=1e-5)


class SumOfLabels(keras.metrics.Sum):
    """A metric of the data alone that counts how much of them it has seen."""

    def __init__(self) -> None:
        super().__init__(name="labels")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        super().update_state(y_true)


def label(y_true: Any, y_pred: Any) -> Any:
    """A metric of the data alone."""
    return y_true[:, 0]
