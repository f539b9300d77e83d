"""Gradients that go through codecs: what is sent, kept and dropped adds up to what was computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.one_process.linear import (
    BATCH,
    ITEMS,
    Linear,
    WorkerResiduals,
    examples,
    gradients,
    linear,
)
from tfps.compression import ByPath, Cast, Identity, PushPull, Quantize, TopK
from tfps.runtime.message.coding import CodedVector
from tfps.runtime.worker.residuals import PushEncoder
from tfps.testing import InProcessCluster

STEPS = 6
MIXED = ByPath({"part_0": TopK(0.1), "part_1": Quantize(1), "part_2": Identity()}, TopK(0.05))

Make = Callable[..., tfps.ParameterServerStrategy]
Left = Callable[[tfps.ParameterServerStrategy], WorkerResiduals]


@pytest.fixture
def coded(monkeypatch: pytest.MonkeyPatch) -> list[CodedVector]:
    """The vectors that codecs have encoded, those of the first server first."""
    coded: list[CodedVector] = []
    code = PushEncoder.encode

    def noted(self: PushEncoder, server: int, each: CodedVector, vector: Any) -> Any:
        coded.append(each)
        return code(self, server, each, vector)

    monkeypatch.setattr(PushEncoder, "encode", noted)
    return coded


@pytest.fixture
def left(coded: list[CodedVector]) -> Left:
    """Return a function that finds the residuals of a strategy's workers."""
    return lambda strategy: WorkerResiduals(strategy, coded)


@pytest.fixture
def alone() -> Iterator[InProcessCluster]:
    """A cluster of one worker, so that nothing depends on the order of workers."""
    with InProcessCluster(workers=1, ps=2) as cluster:
        yield cluster


def fit(model: Linear, x: np.ndarray, **options: Any) -> None:
    model.fit(x, np.zeros([len(x), 1], np.float32), batch_size=BATCH, verbose=0, **options)


def assert_nothing_is_lost(model: Linear, kept: np.ndarray, computed: np.ndarray) -> None:
    np.testing.assert_allclose(model.moved() + kept, computed, atol=1e-4)
    assert np.abs(kept).max() > 0.1  # of what the test is about


@pytest.mark.slow
@pytest.mark.parametrize(
    ("codec", "mode"),
    [
        (MIXED, tfps.Asynchronous()),
        pytest.param(TopK(0.05), tfps.Asynchronous(), marks=pytest.mark.repeats),
        pytest.param(Quantize(1), tfps.BoundedStaleness(1), marks=pytest.mark.repeats),
    ],
    ids=repr,
)
def test_what_is_left_out_is_sent_later(
    make_strategy: Make, left: Left, codec: Any, mode: Any
) -> None:
    """Over three epochs, another `fit` and a scheduled function."""
    strategy = make_strategy(mode, compression=codec)
    model, x = linear(strategy), examples(STEPS)
    fit(model, x, epochs=3)
    assert_nothing_is_lost(model, left(strategy).residual(model), 3 * gradients(x))
    fit(model, x[:BATCH])
    more = tf.constant(x[:BATCH])
    strategy.coordinator.schedule(tf.function(lambda: model.train_step((more, None))))
    strategy.coordinator.join()
    computed = 3 * gradients(x) + 2 * gradients(x[:BATCH])
    assert_nothing_is_lost(model, left(strategy).residual(model), computed)
    assert strategy.stats().gradients_dropped == 0


@pytest.mark.rare
def test_who_was_lost_begins_anew(alone: InProcessCluster, left: Left) -> None:
    strategy = tfps.ParameterServerStrategy(alone.cluster_resolver, compression=TopK(0.05))
    model, x = linear(strategy), examples(STEPS)
    fit(model, x)
    dropped = left(strategy).residual(model)
    strategy.runtime.get_life = lambda _: 2
    fit(model, x)
    kept = left(strategy).residual(model)
    assert_nothing_is_lost(model, kept + dropped, 2 * gradients(x))
    assert np.any(dropped)


@pytest.mark.rare
def test_a_checkpoint_says_once_what_it_does_not_hold(
    make_strategy: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = linear(make_strategy(compression=TopK(0.05)))
    fit(model, examples(1))
    manager = tfps.CheckpointManager(model, tmp_path)
    for _ in range(2):
        manager.save(background=False)
    assert caplog.text.count("do not hold the residuals of codecs") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode",
    [
        tfps.Synchronous(),
        pytest.param(tfps.BoundedStaleness(1), marks=pytest.mark.repeats),
        pytest.param(tfps.LocalSteps(2, synchronous_periods=True), marks=pytest.mark.repeats),
    ],
    ids=repr,
)
def test_servers_lose_nothing_by_what_they_send(make_strategy: Make, mode: Any) -> None:
    """In `fit` and in a scheduled function; the gradients do not depend on the parameters."""
    strategy = make_strategy(mode, compression=PushPull(pull=Quantize(4)))
    model, x = linear(strategy), examples(2 * STEPS)
    fit(model, x)
    workers = 2 if strategy.consistency.backup_workers is not None else 1
    np.testing.assert_allclose(workers * model.moved(), gradients(x), atol=1e-4)
    before, more = model.moved(), tf.constant(x[:BATCH])
    strategy.coordinator.schedule(tf.function(lambda: model.train_step((more, None))))
    strategy.coordinator.join()
    np.testing.assert_allclose(model.moved() - before, gradients(x[:BATCH]), atol=1e-4)
    assert strategy.stats().traffic[1].ratio > 1.2


@pytest.mark.repeats
def test_rounds_keep_what_is_left_out(make_strategy: Make, left: Left) -> None:
    strategy = make_strategy("synchronous", compression=TopK(0.05))
    model, x = linear(strategy), examples(STEPS)
    fit(model, x)
    kept = left(strategy).residual(model)
    # A round of two workers is their mean.
    np.testing.assert_allclose(2 * model.moved() + kept, gradients(x), atol=1e-4)
    assert np.abs(kept).max() > 0.1


@pytest.mark.repeats
def test_differences_of_local_steps_are_coded(make_strategy: Make, left: Left) -> None:
    mode = tfps.LocalSteps(2, synchronous_periods=True)
    strategy = make_strategy(mode, compression=TopK(0.05))
    model, x = linear(strategy), examples(2 * STEPS)
    fit(model, x)
    kept = -left(strategy).residual(
        model
    )  # a difference is what the gradients were subtracted from
    np.testing.assert_allclose(2 * model.moved() + kept, gradients(x), atol=1e-4)
    assert np.abs(kept).max() > 0.1


@pytest.mark.repeats
@pytest.mark.parametrize("codec", [TopK(0.05), Quantize(1)], ids=repr)
def test_a_scaled_loss_changes_nothing_that_is_kept(
    alone: InProcessCluster, left: Left, codec: Any
) -> None:
    """The scale grows between two pushes, and a step with infinity is skipped."""
    resolver = alone.cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, compression=codec)
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(1.0), initial_scale=1024.0, dynamic_growth_steps=2
    )
    model, x = linear(strategy, optimizer), examples(STEPS)
    with_infinity = x.copy()
    with_infinity[2 * BATCH, 3] = np.inf
    model.fit(with_infinity, x[:, :1], batch_size=BATCH, verbose=0, shuffle=False)
    computed = gradients(x) - gradients(x[2 * BATCH : 3 * BATCH])
    assert_nothing_is_lost(model, left(strategy).residual(model), computed)
    assert float(optimizer.dynamic_scale.numpy()) != 1024.0


@pytest.mark.rare
def test_what_a_function_pushes_by_name(make_strategy: Make, left: Left) -> None:
    strategy = make_strategy(compression=TopK(0.1))
    model, x = linear(strategy), examples(1)
    names = [part.path for part in model.parts]

    @tf.function
    def push() -> None:
        values, version = strategy.pull(names)
        sizes = [int(np.prod(part.shape)) for part in model.parts]
        for row in list(x):
            parts = zip(names, tf.split(tf.constant(row), sizes), strict=True)
            sent = {name: tf.reshape(part, values[name].shape) for name, part in parts}
            version, _ = strategy.push(sent, version)

    strategy.coordinator.schedule(push)
    strategy.coordinator.join()
    computed = x.astype(np.float64).sum(0)
    assert_nothing_is_lost(model, left(strategy).residual(model), computed)
    # The coordinator's own go as they are.
    values, version = strategy.pull(names)
    before = model.moved()
    strategy.push({name: np.ones_like(value) for name, value in values.items()}, version)
    np.testing.assert_allclose(model.moved() - before, np.ones(ITEMS), atol=1e-5)


def test_a_variable_of_integers_is_refused(make_strategy: Make) -> None:
    strategy = make_strategy(compression=Quantize(8))
    with strategy.scope():
        count = keras.Variable(np.zeros([4], np.int64), dtype="int64", name="count")

    @tf.function
    def push() -> None:
        values, version = strategy.pull(["count"])
        strategy.push({"count": tf.ones_like(values["count"])}, version)

    with raises(
        tfps.errors.UnsupportedError,
        "compression: ",
        received="count of dtype int64",
        remedy="ByPath({'count': Identity()}",
    ):
        strategy.coordinator.schedule(push)
    assert count.numpy().tolist() == [0, 0, 0, 0]


class TooShort(Cast):
    """A codec that declares fewer bytes than it makes."""

    def size_bytes(self, items: int) -> int:
        return items


def test_a_codec_of_wrong_sizes_is_found_at_the_first_trace(make_strategy: Make) -> None:
    model = linear(make_strategy(compression=TooShort()))
    with raises(tfps.errors.ConfigError, "compression: ", received="uint8", remedy="size_bytes("):
        fit(model, examples(1))
