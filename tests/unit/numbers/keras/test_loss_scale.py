"""Loss scaling: a gradient is divided by what its own worker multiplied by.

Every gradient is 1, and the rate too, so a weight has moved by the number of updates exactly,
however stale they were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.optimizers.loss_scaling import accept_unscaled_gradients
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(180)

Clusters = Callable[..., InProcessCluster]
STEPS, WIDTH, ROWS, SCALE = 24, 3, 5, 1024.0
OVERFLOWS = (2, 3, 11, 17)  # the steps whose gradients are infinite


def _optimizer(growth: int) -> Any:
    return keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(1.0), initial_scale=SCALE, dynamic_growth_steps=growth
    )


class Sum(keras.Model):
    """The sum of weights and of some rows of a table, so that every gradient is the factor."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = [
            self.add_weight(shape=(WIDTH,), initializer="zeros", name=name) for name in "ab"
        ]
        self.table = keras.layers.Embedding(ROWS, 2, embeddings_initializer="zeros")
        self.table.build()
        self.built = True

    def call(self, factors: Any) -> Any:
        rows = self.table(tf.constant([1, 4]))
        values = [*(part.value for part in self.parts), rows]
        return factors * tf.add_n([tf.reduce_sum(value) for value in values])

    def train_step(self, data: Any) -> dict[str, Any]:
        return {"loss": self.step(data[0])}

    def step(self, factors: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(factors))
            scaled = self.optimizer.scale_loss(loss)
        weights = [part.value for part in self.trainable_variables]
        self.optimizer.apply(tape.gradient(scaled, weights), self.trainable_variables)
        return loss

    def moved(self) -> list[float]:
        """The distinct numbers that weights have moved by."""
        table = self.table.embeddings.numpy()
        assert not table[[0, 2, 3]].any()
        values = [*(part.numpy() for part in self.parts), table[[1, 4]]]
        return sorted({float(number) for value in values for number in -value.ravel()})


def _made(growth: int, scope: Any) -> Sum:
    with scope:
        model = Sum()
        model.compile(_optimizer(growth))
        model.optimizer.build(model.trainable_variables)
    return model


def _factors(overflows: tuple[int, ...] = OVERFLOWS) -> np.ndarray:
    factors = np.ones((STEPS, 1), "float32")
    factors[list(overflows)] = np.inf
    return factors


def _fit(model: Sum, factors: np.ndarray) -> None:
    model.fit(factors, batch_size=1, shuffle=False, verbose=0)


def _functions(model: Sum, factors: np.ndarray, strategy: Any = None, *, steps: int = 8) -> None:
    @tf.function(autograph=False)
    def function(rows: tf.Tensor) -> None:
        tf.while_loop(
            lambda number: number < steps,
            lambda number: (number + tf.cast(0 * model.step(rows[number]) == 1, tf.int32) + 1,),
            (tf.constant(0),),
        )

    parts = [tf.constant(part) for part in np.split(factors, STEPS // steps)]
    if strategy is None:
        for part in parts:
            function(part)
        return
    coordinator = tfps.ClusterCoordinator(strategy)
    for part in parts:
        coordinator.schedule(function, args=(part,))
    coordinator.join()


def _check(model: Sum, *, updates: int = STEPS - len(OVERFLOWS)) -> None:
    assert int(model.optimizer.iterations) == updates
    assert model.moved() == [updates]


def _strategy(cluster: Clusters, *, workers: int = 1, **options: Any) -> Any:
    resolver = cluster(workers=workers, ps=2).cluster_resolver
    return tfps.ParameterServerStrategy(resolver, placement="round_robin", **options)


OPTIONS: dict[str, dict[str, Any]] = {
    "asynchronous": {},
    "local steps": {"consistency": tfps.LocalSteps(4)},
    "bounded": {"consistency": tfps.BoundedStaleness(2)},
    "synchronous": {"consistency": tfps.Synchronous()},
    "backup workers": {"consistency": tfps.Synchronous(backup_workers=0)},
    "local rounds": {"consistency": tfps.LocalSteps(4, synchronous_periods=True)},
    "cast": {"compression": tfps.compression.Cast("float16")},
    "top k": {"compression": tfps.compression.TopK(1.0)},
    "shards": {"variable_partitioner": tfps.partitioners.FixedShardsPartitioner(2)},
    "grpc": {"transport": "grpc"},
}


@pytest.fixture(scope="module")
def alone() -> Sum:
    """The model as one process trains it."""
    with tf.device("CPU:0"):
        model = _made(3, contextlib.nullcontext())
        _fit(model, _factors())
    _check(model)
    return model


@pytest.mark.repeats
@pytest.mark.parametrize("way", ["fit", "functions"])
@pytest.mark.parametrize("case", OPTIONS)
def test_one_worker_moves_as_one_process(
    cluster: Clusters, alone: Sum, case: str, way: str
) -> None:
    strategy = _strategy(cluster, **OPTIONS[case])
    ours = _made(3, strategy.scope())
    if way == "fit":
        _fit(ours, _factors())
    else:
        _functions(ours, _factors(), strategy)
    _check(ours)
    if "local" not in case:
        assert float(ours.optimizer.dynamic_scale) == float(alone.optimizer.dynamic_scale)
    strategy.close()


@pytest.mark.rare
@pytest.mark.parametrize(
    "mode",
    [
        tfps.Asynchronous(),
        *(
            pytest.param(mode, marks=pytest.mark.repeats)
            for mode in (tfps.BoundedStaleness(2), tfps.LocalSteps(4))
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("way", ["fit", pytest.param("functions", marks=pytest.mark.repeats)])
def test_workers_that_do_not_wait(cluster: Clusters, mode: Any, way: str) -> None:
    strategy = _strategy(cluster, workers=2, consistency=mode)
    ours = _made(2, strategy.scope())
    if way == "fit":
        _fit(ours, _factors())
    else:
        _functions(ours, _factors(), strategy, steps=4)
    updates = STEPS - len(OVERFLOWS)
    assert int(ours.optimizer.iterations) == updates
    if not isinstance(mode, tfps.LocalSteps):  # whose differences are divided by the workers
        assert ours.moved() == [updates]
    strategy.close()


def test_an_overflow_halves_the_scale_that_it_was_found_with() -> None:
    """Workers that compute at the same time find the same overflow, which counts once."""
    with tf.device("CPU:0"):
        optimizer = _optimizer(growth=100)
        weight = keras.Variable(np.zeros(WIDTH, "float32"))
        optimizer.build([weight])
        for used, left in ((SCALE, SCALE / 2), (SCALE, SCALE / 2), (SCALE / 2, SCALE / 4)):
            scale = tf.constant(used)
            accept_unscaled_gradients(optimizer, optimizer.inner_optimizer, scale=scale)
            optimizer.apply([tf.fill([WIDTH], np.inf)], [weight])
            assert float(optimizer.dynamic_scale) == left
        assert not weight.numpy().any()
