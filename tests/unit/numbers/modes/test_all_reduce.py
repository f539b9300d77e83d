"""Workers that add up gradients among themselves give the numbers of one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.errors import UnsupportedError
from tfps.optimizers import ByTable
from tfps.placement import AllReduce, ByPath
from tfps.testing import InProcessCluster

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
    placement = ByPath({"table": "least_loaded"}, otherwise=AllReduce())
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=workers, ps=2).cluster_resolver,
        consistency=tfps.Synchronous(),
        placement=placement,
    )
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
    cluster: InProcessCluster, folder: Path, **options: Any
) -> tuple[list[np.ndarray], dict[str, Any], list[np.ndarray]]:
    """Train with a rate that a callback sets, stop early; return state, logs and restored state."""
    strategy = tfps.ParameterServerStrategy(
        cluster.cluster_resolver, consistency=tfps.Synchronous(), **options
    )
    with strategy.scope():
        model = _normalizing(keras.optimizers.Adam(0.05))
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


@pytest.mark.slow
def test_state_and_callbacks_are_those_of_servers(
    cluster: Callable[..., InProcessCluster], tmp_path: Path
) -> None:
    """Also dropout, validation, the best weights, and a file with the slots."""
    pair = cluster(workers=2, ps=2)
    found, logs, loaded = _fit_two_epochs(pair, tmp_path, placement=AllReduce())
    expected, other_logs, _ = _fit_two_epochs(pair, tmp_path)
    for value, other, saved in zip(found, expected, loaded, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(value, saved)
    for name, values in logs.items():
        np.testing.assert_allclose(values, other_logs[name], rtol=1e-4)


SGD = keras.optimizers.SGD
REFUSED: dict[str, tuple[Make, bool]] = {
    "received clipnorm": (lambda: SGD(clipnorm=1.0), False),
    "received global_clipnorm": (lambda: SGD(global_clipnorm=1.0), False),
    "received clipvalue": (lambda: SGD(clipvalue=1.0), False),
    "received use_ema": (lambda: SGD(use_ema=True), False),
    "received gradient_accumulation": (lambda: SGD(gradient_accumulation_steps=2), False),
    "received a LossScaleOptimizer": (lambda: keras.optimizers.LossScaleOptimizer(SGD()), False),
    "a table trained by rows": (SGD, True),
}


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
