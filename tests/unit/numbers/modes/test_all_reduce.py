"""Workers that add up gradients among themselves give the numbers of one process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.errors import CheckpointError, UnsupportedError
from tfps.optimizers import ByTable
from tfps.partitioners import FixedShardsPartitioner as FixedShards
from tfps.placement import AllReduce, ByPath
from tfps.runtime.program.schedule import MirroredTraining
from tfps.testing import InProcessCluster
from tfps.training.run.mirrored_home import bring_home, check_copies, make_lost_error

pytestmark = pytest.mark.timeout(240)

BATCH, ROWS = 4, 1 << 15
Make = Callable[[], Any]


def _decaying() -> Any:
    return keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.8))


def _of_two() -> Any:
    first, second = keras.optimizers.SGD(0.1, momentum=0.9), keras.optimizers.Adam(0.01)
    return keras.optimizers.MultiOptimizer(lambda v: first if "kernel" in v.path else second)


def _by_table() -> Any:
    return ByTable({"table": "adagrad"}, keras.optimizers.Adam(0.01))


DENSE: dict[str, Make] = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": _decaying,
    "two": _of_two,
}
TABLES: dict[str, Make] = {"adam": _decaying, "by table": _by_table}


def _examples(batches: int) -> tuple[np.ndarray, np.ndarray]:
    """Return examples with ids; the last batch has one example less."""
    rng = np.random.default_rng(3)
    count = batches * BATCH - 1
    ids = rng.integers(0, ROWS, size=(count, 3))
    return ids, rng.normal(size=(count, 1)).astype("float32")


def _model(optimizer: Any, *, has_table: bool) -> keras.Model:
    keras.utils.set_random_seed(1)
    ids = keras.Input((3,), dtype="int32")
    if has_table:
        x = keras.layers.Flatten()(keras.layers.Embedding(ROWS, 8, name="table")(ids))
    else:
        x = keras.layers.Rescaling(1.0 / ROWS)(ids)
    hidden = keras.layers.Dense(5, activation="tanh")(x)
    model = keras.Model(ids, keras.layers.Dense(1)(hidden))
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


def _fit(model: keras.Model, batches: int, *, batch_size: int) -> Any:
    x, y = _examples(batches)
    return model.fit(x, y, batch_size=batch_size, epochs=2, shuffle=False, verbose=0).history


def _state(model: keras.Model) -> list[np.ndarray]:
    found = [*model.weights, *model.optimizer.variables]
    return [np.asarray(v.numpy(), np.float64) for v in found]


def _on_tables_and_workers(cluster: InProcessCluster) -> tfps.ParameterServerStrategy:
    return tfps.ParameterServerStrategy(
        cluster.cluster_resolver,
        consistency=tfps.Synchronous(),
        placement=ByPath({"table": "least_loaded"}, otherwise=AllReduce()),
    )


@pytest.mark.quick("2-7-table-by table")
@pytest.mark.parametrize(
    ("workers", "batches", "kind", "name"),
    [
        (2, 7, "table", "by table"),
        pytest.param(1, 3, "dense", "adam", marks=pytest.mark.slow),
        pytest.param(2, 5, "dense", "adam", marks=pytest.mark.slow),
        pytest.param(2, 5, "dense", "two", marks=pytest.mark.slow),
        (3, 7, "dense", "sgd"),
        pytest.param(3, 4, "table", "adam", marks=pytest.mark.slow),
    ],
)
def test_numbers_are_those_of_one_process(
    cluster: Callable[..., InProcessCluster], workers: int, batches: int, kind: str, name: str
) -> None:
    """The last round has one worker with a batch, or two: the others add zeros."""
    has_table = kind == "table"
    make = (TABLES if has_table else DENSE)[name]
    with tf.device("CPU:0"):
        reference = _model(make(), has_table=has_table)
        expected = _fit(reference, batches, batch_size=workers * BATCH)
    strategy = _on_tables_and_workers(cluster(workers=workers, ps=2))
    with strategy.scope():
        model = _model(make(), has_table=has_table)
    logs = _fit(model, batches, batch_size=BATCH)
    rounds = 2 * -(-batches // workers)
    assert strategy.stats().updates_applied == rounds
    for value, other in zip(_state(model), _state(reference), strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(logs["mae"][-1], expected["mae"][-1], rtol=1e-1)
    mirrored = [view.variable for view in strategy.plan.views if view.is_mirrored]
    assert len(mirrored) == 4
    assert not any("table" in path for path in mirrored)
    stats = strategy.stats()
    assert stats.rounds_repeated == 0
    assert (stats.reduce_seconds.p50 or 0) > 0
    dense_bytes = 4 * sum(int(np.prod(w.shape)) for w in model.weights if w.path in mirrored)
    # Each worker sends (workers - 1) / workers of the gradients, and of the sums.
    assert stats.bytes_reduced == 2 * (dense_bytes * (workers - 1) // workers) * 2 * batches
    strategy.close()


def _normalizing(optimizer: Any) -> keras.Model:
    keras.utils.set_random_seed(2)
    layers = [
        keras.layers.Rescaling(1.0 / ROWS),
        keras.layers.Dense(6, use_bias=False),  # its gradient would be noise
        keras.layers.BatchNormalization(momentum=0.8),
        keras.layers.Dropout(0.3, seed=4),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input((3,)), *layers])
    model.compile(optimizer, "mse")
    return model


def _fit_two_epochs(
    cluster: InProcessCluster, folder: Path, optimizer: Any, **options: Any
) -> tuple[list[np.ndarray], dict[str, Any], list[np.ndarray]]:
    """Train with a rate that a callback sets, stop early; return state, logs and restored state."""
    strategy = tfps.ParameterServerStrategy(
        cluster.cluster_resolver, consistency=tfps.Synchronous(), **options
    )
    with strategy.scope():
        model = _normalizing(optimizer)
    x, y = _examples(6)
    rates = keras.callbacks.LearningRateScheduler(lambda epoch: 0.02 / (1 + epoch))
    best = keras.callbacks.EarlyStopping(
        "val_loss", patience=5, restore_best_weights=True, start_from_epoch=0
    )
    logs = model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=3,
        shuffle=False,
        verbose=0,
        validation_data=(x[:9], y[:9]),
        callbacks=[rates, best],
    ).history
    found = _state(model)
    model.save(folder / "model.keras")
    strategy.close()
    with tf.device("CPU:0"):
        return found, logs, _state(keras.saving.load_model(folder / "model.keras"))


CLIPPED: dict[str, Make] = {
    "adam": lambda: keras.optimizers.Adam(0.05),
    "global_clipnorm": lambda: keras.optimizers.SGD(0.5, momentum=0.9, global_clipnorm=0.3),
    "clipnorm": lambda: keras.optimizers.SGD(0.5, momentum=0.9, clipnorm=0.2),
    "clipvalue": lambda: keras.optimizers.SGD(0.5, momentum=0.9, clipvalue=0.1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CLIPPED)
def test_state_and_callbacks_are_those_of_servers(
    cluster: Callable[..., InProcessCluster], tmp_path: Path, name: str
) -> None:
    """Also dropout, validation, the best weights, and a file with the slots.

    Each worker clips its own gradients.
    """
    pair, make = cluster(workers=2, ps=2), CLIPPED[name]
    found, logs, loaded = _fit_two_epochs(pair, tmp_path, make(), placement=AllReduce())
    expected, other_logs, _ = _fit_two_epochs(pair, tmp_path, make())
    for value, other, saved in zip(found, expected, loaded, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(value, saved)
    for key, values in logs.items():
        np.testing.assert_allclose(values, other_logs[key], rtol=1e-4)


def _only_for_first(context: tf.distribute.InputContext) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensor_slices(_examples(5)).batch(BATCH)
    return dataset.take(0 if context.input_pipeline_id else 5)


def test_single_batches_and_functions_train_the_home(
    cluster: Callable[..., InProcessCluster],
) -> None:
    """`fit` takes over what they have trained, and they what `fit` has."""

    def train(model: keras.Model, run: Callable[[Any], None]) -> list[Any]:
        x, y = _examples(4)

        @tf.function
        def step() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x[:BATCH], training=True) - y[:BATCH]) ** 2)
            weights = model.trainable_variables
            model.optimizer.apply(tape.gradient(loss, weights), weights)

        found: list[Any] = []
        for _ in range(2):
            found.append(_fit(model, 4, batch_size=BATCH)["loss"])
            found.append(model.train_on_batch(x[:BATCH], y[:BATCH], return_dict=True)["loss"])
            run(step)
            found.append(model.predict(x, batch_size=BATCH, verbose=0))
            found.append(model.evaluate(x, y, batch_size=BATCH, verbose=0))
        return [np.asarray(each) for each in (*found, *_state(model))]

    with tf.device("CPU:0"):
        expected = train(_model(_decaying(), has_table=False), lambda step: step())
    strategy = _on_tables_and_workers(cluster(workers=1, ps=2))
    coordinator = tfps.ClusterCoordinator(strategy)

    def run(step: Any) -> None:
        coordinator.schedule(step)
        coordinator.join()

    with strategy.scope():
        model = _model(_decaying(), has_table=False)
    for value, other in zip(train(model, run), expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-5)
    strategy.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["function", "shards"])
def test_one_worker_has_no_batch(cluster: Callable[..., InProcessCluster], kind: str) -> None:
    """Its share is empty, and it adds zeros to each round of the other."""
    with tf.device("CPU:0"):
        reference = _model(_decaying(), has_table=True)
        _fit(reference, 5, batch_size=BATCH)
    strategy = _on_tables_and_workers(cluster(workers=2, ps=2))
    with strategy.scope():
        model = _model(_decaying(), has_table=True)
    data = tfps.ShardedDataset(_only_for_first, number=2) if kind == "shards" else _only_for_first
    model.fit(data, epochs=2, verbose=0)
    assert strategy.stats().updates_applied == 10
    for value, other in zip(_state(model), _state(reference), strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-6)
    strategy.close()


def _train_on(model: keras.Model, folder: Path, *, kind: str, batch_size: int) -> list[np.ndarray]:
    """Restore what the kind of file has, train, save; return the state of the model."""
    path = folder / "model.keras"
    if kind == "keras" and path.exists():
        model = keras.saving.load_model(path)
    manager = tfps.CheckpointManager(model, folder) if kind == "manager" else None
    if manager is not None:
        manager.restore_latest()
    _fit(model, 4, batch_size=batch_size)
    if manager is None:
        model.save(path)
    else:
        manager.save(background=False)
    return _state(model)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["manager", "keras"])
def test_checkpoints_go_from_one_kind_of_job_to_another(
    cluster: Callable[..., InProcessCluster], tmp_path: Path, kind: str
) -> None:
    """Each job goes on with weights and slots of the one before, as if there were one job."""
    pair = cluster(workers=2, ps=2)
    with tf.device("CPU:0"):
        reference = _model(_decaying(), has_table=True)
    for place in ("all-reduce", "servers", "one process", "all-reduce"):
        with tf.device("CPU:0"):
            _fit(reference, 4, batch_size=2 * BATCH)
        if place == "one process":
            with tf.device("CPU:0"):
                model = _model(_decaying(), has_table=True)
                state = _train_on(model, tmp_path, kind=kind, batch_size=2 * BATCH)
        else:
            strategy = (
                _on_tables_and_workers(pair)
                if place == "all-reduce"
                else tfps.ParameterServerStrategy(
                    pair.cluster_resolver, consistency=tfps.Synchronous()
                )
            )
            with strategy.scope():
                model = _model(_decaying(), has_table=True)
                state = _train_on(model, tmp_path, kind=kind, batch_size=BATCH)
            strategy.close()
        for value, other in zip(state, _state(reference), strict=True):
            np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-6, err_msg=place)


class Unacceptable(keras.layers.Layer):
    """A weight that counts updates of SGD at rate -1; a negative input is an error."""

    def build(self, input_shape: Any) -> None:
        self.count = self.add_weight(shape=(), initializer="zeros", name="count")

    def call(self, inputs: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_non_negative(inputs)]):
            return self.count + 0.0 * inputs


@pytest.mark.slow
def test_weights_are_at_home_after_an_error_of_a_step(
    cluster: Callable[..., InProcessCluster],
) -> None:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=2, ps=2).cluster_resolver,
        consistency=tfps.Synchronous(),
        placement=AllReduce(),
    )
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), Unacceptable()])
        model.compile(keras.optimizers.SGD(-1.0), lambda _, y: y)
    x = np.zeros((12 * BATCH, 1), np.float32)
    x[-1] = -1.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="x >= 0 did not hold"):
        model.fit(x, x, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
    server = strategy.runtime.ticket_server
    updates = server.cells()[server.layout.REDUCED]
    assert updates >= 5
    assert float(model.layers[-1].count) == updates
    model.fit(x[:BATCH], x[:BATCH], batch_size=BATCH, verbose=0)
    assert float(model.layers[-1].count) == updates + 1
    strategy.close()


def test_the_error_of_lost_weights_names_the_newest_checkpoint(tmp_path: Path) -> None:
    model = _model(keras.optimizers.SGD(), has_table=False)
    manager = tfps.CheckpointManager(model, tmp_path)
    assert "There is no checkpoint" in str(make_lost_error(None))
    assert "There is no checkpoint" in str(make_lost_error(tmp_path))
    for _ in range(2):
        manager.save(background=False)
    assert f"Restore checkpoint 2, the newest one in {tmp_path}" in str(make_lost_error(tmp_path))


@pytest.mark.slow
def test_an_error_of_the_input_comes_before_those_of_workers_that_wait(
    cluster: Callable[..., InProcessCluster],
) -> None:
    """The other worker, which waits for the sums, is cancelled by TensorFlow."""
    strategy = _on_tables_and_workers(cluster(workers=2, ps=2))
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.zeros((12 * BATCH, 1), np.float32)
    x[7 * BATCH] = np.nan  # the fourth batch of worker 1

    def share(context: tf.distribute.InputContext) -> tf.data.Dataset:
        def check(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.debugging.check_numerics(x, "not a number"), y  # the mistake

        batches = tf.data.Dataset.from_tensor_slices((x, x)).batch(BATCH)
        return batches.shard(2, context.input_pipeline_id).map(check)

    for _ in range(10):
        with pytest.raises(tf.errors.InvalidArgumentError, match="not a number") as raised:
            model.fit(share, verbose=0)
        assert "# the mistake" in str(raised.value)
    strategy.close()


GONE = tf.errors.UnavailableError(None, None, "none of 2 workers has responded")


@pytest.mark.parametrize("cause", [None, GONE, KeyboardInterrupt(), ValueError("of a callback")])
def test_only_errors_of_users_come_before_lost_weights(cause: BaseException | None) -> None:
    """No worker has the third update; the chief has waited for one, or an error ended the run."""
    layout = SimpleNamespace(REDUCED=0, HOME=1)
    runtime: Any = SimpleNamespace(
        ticket_server=SimpleNamespace(layout=layout),
        cells=lambda: [np.array([3, 2])],
        container="",
        worker_channels=[],
        checkpoint_folder=None,
    )
    nothing = MirroredTraining((), (), ())
    if cause in (None, GONE):
        with pytest.raises(CheckpointError, match="There is no checkpoint") as raised:
            bring_home(nothing, runtime=runtime, halves=[], cause=cause)
        assert raised.value.__cause__ is cause
    else:
        bring_home(nothing, runtime=runtime, halves=[], cause=cause)


@pytest.mark.parametrize("gigabytes", [11, 13])
def test_copies_fit_into_the_memory_of_each_worker(gigabytes: int) -> None:
    weight = SimpleNamespace(path="dense/kernel", shape=(10**6, 1000), dtype="float32")
    slot = SimpleNamespace(path="momentum", shape=(10**6, 1000), dtype="float32")
    usage = json.dumps({"memory_limit_bytes": gigabytes * 10**9}).encode()
    worker: Any = SimpleNamespace(ask=lambda token: np.bytes_(usage))
    training = MirroredTraining((weight,), (slot,), ())
    if gigabytes < 12:
        with pytest.raises(UnsupportedError, match="expected no more than the 11.0 GB") as caught:
            check_copies(training, [worker])
        assert "copies of 12.0 GB" in str(caught.value)
        assert "'dense/kernel': 'least_loaded'" in str(caught.value)
    else:
        check_copies(training, [worker])


SGD = keras.optimizers.SGD
REFUSED: dict[str, tuple[Make, bool]] = {
    "received use_ema": (lambda: SGD(use_ema=True), False),
    "received gradient_accumulation": (lambda: SGD(gradient_accumulation_steps=2), False),
    "received a LossScaleOptimizer": (lambda: keras.optimizers.LossScaleOptimizer(SGD()), False),
    "a table trained by rows": (SGD, True),
}


class Branching(keras.Model):
    """Calls its optimizer in a branch."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)

        @tf.function
        def update() -> None:
            if loss > 0:
                self.optimizer.apply(gradients, self.trainable_variables)

        update()
        return {"loss": loss}


@pytest.mark.parametrize("received", ["outside of branches", "variable divided among"])
def test_models_that_are_refused(cluster: Callable[..., InProcessCluster], received: str) -> None:
    divides = received.startswith("variable")
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=2, ps=2).cluster_resolver,
        consistency=tfps.Synchronous(),
        placement=AllReduce(),
        variable_partitioner=FixedShards(2) if divides else None,
    )
    with strategy.scope():
        plain = _model(SGD(), has_table=False)
        model = plain if divides else Branching(plain.input, plain.output)
        model.compile(SGD(), "mse")
    with pytest.raises(UnsupportedError, match=received) as caught:
        _fit(model, 2, batch_size=BATCH)
    assert "AllReduce()" in str(caught.value)
    strategy.close()


@pytest.mark.parametrize("received", REFUSED)
def test_what_is_refused_by_name(cluster: Callable[..., InProcessCluster], received: str) -> None:
    make, has_table = REFUSED[received]
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=2, ps=2).cluster_resolver,
        consistency=tfps.Synchronous(),
        placement=AllReduce(),
    )
    with strategy.scope():
        model = _model(make(), has_table=has_table)
    with pytest.raises(UnsupportedError, match=received) as caught:
        _fit(model, 2, batch_size=BATCH)
    assert "AllReduce()" in str(caught.value)
    strategy.close()
