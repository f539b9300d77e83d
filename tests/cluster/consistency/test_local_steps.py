"""Workers that train by themselves: the numbers of one process, of averaged ones, and each once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting import UnitGradients, mean_output
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tests.cluster.kill_worker import KillWorker
from tfps.errors import UnsupportedError
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)

LOCAL = "/job:chief/replica:0/task:0/device:CPU:0"
BATCH, PERIOD = 8, 4
RANDOM = np.random.default_rng(0)


def _examples(count: int) -> tuple[np.ndarray, np.ndarray]:
    x = RANDOM.normal(size=(count, 6)).astype("float32")
    return x, x[:, :3].argmax(1)


def _network(optimizer: Any, *layers: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    ends = [keras.layers.Dense(8, activation="tanh"), *layers, keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((6,)), *ends])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def _scaled() -> Any:
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=8.0)


def _decaying() -> Any:
    schedule = keras.optimizers.schedules.CosineDecay(0.02, 60)
    return keras.optimizers.AdamW(schedule, weight_decay=0.01, global_clipnorm=0.5)


ONE_PROCESS: dict[str, tuple[Callable[[], Any], Callable[[], list[Any]], int]] = {
    # 83 examples are 11 batches, the last one of 3: periods of 4, 4 and 3 steps.
    "schedule, decay, clipping": (_decaying, list, 83),
    "loss scale, state, seeds": (
        _scaled,
        lambda: [keras.layers.BatchNormalization(), keras.layers.Dropout(0.3, seed=2)],
        80,
    ),
    "accumulation": (
        lambda: keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=3),
        list,
        83,
    ),
}


@pytest.fixture(scope="module")
def alone(cluster: Callable[..., LocalCluster]) -> Iterator[tfps.ParameterServerStrategy]:
    """One worker."""
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver,
        placement="round_robin",
        consistency=tfps.LocalSteps(PERIOD),
    )
    yield strategy
    strategy.close()


@pytest.mark.quick("loss scale*")
@pytest.mark.parametrize("case", ONE_PROCESS)
def test_one_worker_is_one_process(alone: tfps.ParameterServerStrategy, case: str) -> None:
    optimizer, layers, examples = ONE_PROCESS[case]
    x, y = _examples(examples)
    with alone.scope():
        model = _network(optimizer(), *layers())
    before = model.get_weights()
    # Slots stay on the worker from epoch to epoch, and a hook in lock-step begins each step anew.
    steps = []
    hook = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: steps.append(batch)
    )
    history = model.fit(x, y, batch_size=BATCH, epochs=3, callbacks=[hook], verbose=0)
    with tf.device(LOCAL):
        reference = _network(optimizer(), *layers())
        reference.set_weights(before)
        expected = reference.fit(x, y, batch_size=BATCH, epochs=3, verbose=0)
    for weight, other in zip(model.get_weights(), reference.get_weights(), strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-4, atol=2e-6)
    for name, values in expected.history.items():
        np.testing.assert_allclose(history.history[name], values, rtol=1e-5)
    assert steps == 3 * list(range(-(-examples // BATCH)))
    assert int(model.optimizer.iterations) == int(reference.optimizer.iterations)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["generator", "function"])
def test_any_input(alone: tfps.ParameterServerStrategy, way: str) -> None:
    """Of a length that nobody knows, and no multiple of the period."""
    x, y = _examples(9 * BATCH)
    batches = [(x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, len(x), BATCH)]
    with alone.scope():
        model = _network("adam")
    before, counted = model.get_weights(), alone.stats().updates_applied
    function = {"function": lambda: tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)}
    model.fit(function.get(way, (batch for batch in batches)), verbose=0)
    with tf.device(LOCAL):
        reference = _network("adam")
        reference.set_weights(before)
        reference.fit((batch for batch in batches), verbose=0)
    for weight, other in zip(model.get_weights(), reference.get_weights(), strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-4, atol=2e-6)
    assert alone.stats().updates_applied - counted == 3


@pytest.mark.slow
def test_elastic_averaging(cluster: Callable[..., LocalCluster]) -> None:
    """Weights that grow by one with each step of the worker: x and the center, by hand."""
    periods, elasticity = 5, 0.25
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver,
        consistency=tfps.LocalSteps(PERIOD, elasticity=elasticity),
    )
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), UnitGradients()])
        model.compile(keras.optimizers.SGD(-1.0), mean_output)
    steps = periods * PERIOD
    model.fit(np.ones([steps, 4]), np.ones([steps, 2]), batch_size=1, verbose=0)
    mine = center = 0.0
    for _ in range(periods):
        mine += PERIOD
        mine, center = mine - elasticity * (mine - center), center + elasticity * (mine - center)
    np.testing.assert_allclose(model.get_weights(), center, rtol=1e-6)
    strategy.close()


def test_averages_of_weights_are_refused(alone: tfps.ParameterServerStrategy) -> None:
    with alone.scope():
        model = _network(keras.optimizers.SGD(0.1, use_ema=True))
    with pytest.raises(UnsupportedError, match="use_ema=True under tfps.LocalSteps"):
        model.fit(*_examples(8), verbose=0)


@pytest.mark.slow
def test_slots_are_freed(cluster: Callable[..., LocalCluster]) -> None:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver, consistency=tfps.LocalSteps(2)
    )
    with strategy.scope():
        model = _network("adam")
    model.fit(*_examples(16), batch_size=4, verbose=0)
    slots = [variable._value.shared_name for variable in model.optimizer.variables]
    container = strategy.runtime.container

    def held() -> list[str]:
        """Whether a variable of the name is there is all that is asked."""
        with tf.device("/job:worker/replica:0/task:0/device:CPU:0"):
            handles = {
                name: tf.raw_ops.VarHandleOp(
                    dtype=tf.float32,
                    shape=[],
                    shared_name=f"{name}_on_worker",
                    container=container,
                )
                for name in slots
            }
            return [
                name
                for name, handle in handles.items()
                if bool(tf.raw_ops.VarIsInitializedOp(resource=handle))
            ]

    assert len(held()) == len(slots) - 1  # all but the learning rate, which the servers have
    strategy.close()
    assert held() == []


@pytest.fixture(scope="module")
def pair(cluster: Callable[..., LocalCluster]) -> LocalCluster:
    return cluster(workers=2, ps=2)


@pytest.mark.quick("4")
@pytest.mark.parametrize("period", [1, PERIOD])
def test_workers_that_meet_average_what_they_have(pair: LocalCluster, period: int) -> None:
    """By plain SGD, which keeps nothing: who of two workers takes which period does not matter."""
    rounds = 20
    x, y = _examples(2 * period * rounds * BATCH)
    strategy = tfps.ParameterServerStrategy(
        pair.cluster_resolver,
        placement="round_robin",
        consistency=tfps.LocalSteps(period, synchronous=True),
    )
    with strategy.scope():
        model = _network(keras.optimizers.SGD(0.2))
    before = model.get_weights()
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    after, stats = model.get_weights(), strategy.stats()
    iterations = int(model.optimizer.iterations)
    strategy.close()
    with tf.device(LOCAL):
        worker, expected = _network(keras.optimizers.SGD(0.2)), before
        for at in range(0, len(x), 2 * period * BATCH):
            results = []
            for begin in (at, at + period * BATCH):
                worker.set_weights(expected)
                for first_row in range(begin, begin + period * BATCH, BATCH):
                    rows = slice(first_row, first_row + BATCH)
                    worker.train_on_batch(x[rows], y[rows])
                results.append(worker.get_weights())
            expected = [(a + b) / 2 for a, b in zip(*results, strict=True)]
    for weight, other, first in zip(after, expected, before, strict=True):
        assert np.linalg.norm(weight - other) <= 5e-6 * np.linalg.norm(other - first)
    assert stats.versions == (rounds, rounds)
    assert iterations == rounds * period
    assert stats.worker_steps == (rounds * period, rounds * period)


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("period", "shards"),
    [
        (5, None),
        # Of 250 batches each: periods are cut short where a shard ends.
        pytest.param(3, 4, marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_dies(
    pair: LocalCluster, carrier: str, period: int, shards: int | None
) -> None:
    job = CountingJob(pair, consistency=tfps.LocalSteps(period), placement="round_robin")
    data = None if shards is None else tfps.Shards(job.share, number=shards)
    visits = EpochsOfOneVisit(job)
    assert job.fit(visits, epochs=2, data=data) == 2
    assert visits.wrong_epochs == {}
    before = int(job.model.optimizer.iterations)
    assert before == 2 * job.epoch_steps
    killer = KillWorker(job, restart=True)
    epochs = job.fit(killer, epochs=500, data=data)
    assert killer.steps_at_death is not None
    assert killer.works_again
    assert killer.wrong_epochs == {}
    assert int(job.model.optimizer.iterations) == before + epochs * job.epoch_steps
    while not all(job.strategy.alive_workers()):
        time.sleep(0.1)
    job.strategy.close()
