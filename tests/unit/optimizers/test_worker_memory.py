"""The memory of a server about each worker, in `fit`, in scheduled functions and eagerly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.graphs import graphs_as_traced
from tests.unit.optimizers.compensated import Compensated
from tests.unit.optimizers.measured import descend_by_one, total_staleness
from tests.unit.optimizers.scaled_momenta import ARGUMENTS, FORMULAS
from tfps.consistency.ledger import STALENESS_BINS
from tfps.optimizers import DANA, AsyncAdam, GapAware, StalenessAware
from tfps.runtime.worker.worker_index import capture_worker_index
from tfps.testing import InProcessCluster

RATE, STRENGTH = 0.1, 0.5
numbers = itertools.count()


@pytest.fixture(scope="module")
def strategy() -> Iterator[tfps.ParameterServerStrategy]:
    with graphs_as_traced(), InProcessCluster(workers=2, ps=2) as cluster:
        yield tfps.ParameterServerStrategy(cluster.cluster_resolver)


def _trained_by(
    strategy: tfps.ParameterServerStrategy, make: Callable[[], Any]
) -> tuple[list[keras.Variable], Any]:
    """Weights on both servers, and the optimizer that trains them."""
    with strategy.scope():
        optimizer = make()
        weights = [
            keras.Variable(np.linspace(-1, 1, size, dtype="float32"), name=f"w{next(numbers)}")
            for size in (4, 3, 5, 2)
        ]
        optimizer.build(weights)
    return weights, optimizer


@pytest.mark.rare
def test_in_a_loop_of_ones_own_the_distance_is_the_staleness(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    weights, optimizer = _trained_by(strategy, descend_by_one)
    before = total_staleness(strategy)

    @tf.function
    def step() -> None:
        for _ in range(2):
            optimizer.apply([-tf.ones_like(weight.value) for weight in weights], weights)

    coordinator = tfps.ClusterCoordinator(strategy)
    for _ in range(60):
        coordinator.schedule(step)
    coordinator.join()
    assert int(optimizer.iterations.numpy()) == 60 * 2
    moved = [
        slot.numpy()[0]
        for slot, weight in zip(optimizer.moved, weights, strict=True)
        if weight.value.device == strategy.runtime.servers[0].device
    ]
    assert moved == [total_staleness(strategy) - before] * len(moved)


def _counting_model(strategy: tfps.ParameterServerStrategy, weights: int = 4) -> keras.Model:
    """Return a model with weights on both servers, whose gradients are all -1."""
    with strategy.scope():
        inputs = keras.Input((1,))
        outputs: Any = 0.0
        for _ in range(weights):
            layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
            outputs = outputs + layer(inputs)
        model = keras.Model(inputs, outputs)
        model.compile(descend_by_one(), lambda _, y: -y)
    return model


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    """Not the one of `strategy`, which goes on."""
    with graphs_as_traced(), InProcessCluster(workers=2, ps=2) as cluster:
        yield cluster


@pytest.mark.repeats
@pytest.mark.parametrize(
    "mode",
    [tfps.Asynchronous(), tfps.BoundedStaleness(bound_steps=0)],
    ids=["asynchronous", "bounded"],
)
def test_in_fit_the_distance_is_the_staleness(cluster: InProcessCluster, mode: Any) -> None:
    """They agree exactly, over all pushes of two workers in any order."""
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, consistency=mode)
    model = _counting_model(strategy)
    x = np.ones((200, 1), "float32")
    for _ in range(2):  # the second time workers enter with memories of the first
        model.fit(x, x, batch_size=1, verbose=0)
        model.set_weights([weight * 0.0 for weight in model.get_weights()])
    servers = {variable.value.device for variable in model.trainable_variables}
    assert len(servers) == 2
    on_ticket_server = [
        slot.numpy().item()
        for slot, variable in zip(model.optimizer.moved, model.trainable_variables, strict=True)
        if variable.value.device == strategy.runtime.servers[0].device
    ]
    expected, counts = total_staleness(strategy), strategy.stats().gradient_staleness_updates
    strategy.close()
    assert expected > 20
    if max(counts) < STALENESS_BINS - 1:
        assert on_ticket_server == [expected] * len(on_ticket_server)
    else:  # a worker stood still for a while, and the last bin does not say for how long
        assert min(on_ticket_server) == max(on_ticket_server) >= expected


class Compensation:
    """`Compensated` for one variable on one machine, with the parameters of each worker."""

    def __init__(self, weight: np.ndarray) -> None:
        self.weight = weight
        self.sent = {0: weight, 1: weight}

    def pull(self, worker: int) -> None:
        self.sent[worker] = self.weight

    def push(self, worker: int, gradient: np.ndarray, *, base: int) -> None:
        moved = self.weight - self.sent[worker]
        self.weight = self.weight - RATE * (gradient + STRENGTH * gradient**2 * moved)


class LookAhead:
    """DANA-Zero; the weight is what the master would send, and not its own."""

    def __init__(self, weight: np.ndarray) -> None:
        self.weight = self.own = weight
        self.momenta = {0: np.zeros(weight.shape), 1: np.zeros(weight.shape)}

    def pull(self, worker: int) -> None:
        """Do nothing: all workers get the same parameters."""

    def push(self, worker: int, gradient: np.ndarray, *, base: int) -> None:
        self.momenta[worker] = 0.9 * self.momenta[worker] + gradient
        self.own = self.own - RATE * self.momenta[worker]
        self.weight = self.own - RATE * 0.9 * (self.momenta[0] + self.momenta[1])


PAPERS: dict[str, tuple[Callable[[], Any], Any]] = {
    "compensation": (lambda: Compensated(keras.optimizers.SGD(RATE), STRENGTH), Compensation),
    "dana": (lambda: DANA(RATE), LookAhead),
    "adam": (lambda: AsyncAdam(momentum="per_worker", **ARGUMENTS), FORMULAS["per_worker"]),
    "ordered": (lambda: AsyncAdam(momentum="ordered", **ARGUMENTS), FORMULAS["ordered"]),
}


@pytest.mark.parametrize("name", PAPERS)
def test_pulls_and_pushes_of_workers(strategy: tfps.ParameterServerStrategy, name: str) -> None:
    """Any worker may run any of them; only a pull tells a worker the new values."""
    make, paper_of = PAPERS[name]
    weights, optimizer = _trained_by(strategy, make)
    paths = [weight.path for weight in weights]
    strategy.updates.get_update(optimizer)
    papers = [paper_of(weight.numpy().astype("float64")) for weight in weights]
    coordinator = tfps.ClusterCoordinator(strategy)

    @tf.function(autograph=False)
    def pull() -> Any:
        _, version = strategy.pull(paths)
        return version, capture_worker_index()

    @tf.function(autograph=False)
    def push(version: tf.Tensor, seed: tf.Tensor) -> Any:
        gradients = {
            path: tf.random.stateless_normal(weight.shape, [seed, i])
            for i, (path, weight) in enumerate(zip(paths, weights, strict=True))
        }
        strategy.push(gradients, version, optimizer=optimizer)
        return list(gradients.values()), capture_worker_index()

    versions: dict[int, Any] = {}
    updates: dict[int, int] = {}  # worker -> how many are in what it pulled last
    pushed: list[int] = []
    for step in range(100):
        if step % 3 == 0:
            version, worker = coordinator.fetch(coordinator.schedule(pull))
            versions[int(worker)], updates[int(worker)] = version, len(pushed)
            for paper in papers:
                paper.pull(int(worker))
        else:
            args = (tf.constant(next(iter(versions.values()))), tf.constant(step))
            gradients, worker = coordinator.fetch(coordinator.schedule(push, args=args))
            pushed.append(int(worker))
            base = next(iter(updates.values()))
            for paper, gradient in zip(papers, gradients, strict=True):
                paper.push(int(worker), gradient.astype("float64"), base=base)
        if step > 10 and len(set(pushed)) == 2:
            break
    for paper, weight in zip(papers, weights, strict=True):
        np.testing.assert_allclose(weight.numpy(), paper.weight, rtol=1e-3, atol=1e-4)


def test_for_the_coordinator_nothing_is_stale(strategy: tfps.ParameterServerStrategy) -> None:
    weights, optimizer = _trained_by(strategy, descend_by_one)
    paths = [weight.path for weight in weights]
    _, version = strategy.pull(paths)
    ones = [np.ones(weight.shape, "float32") for weight in weights]
    for _ in range(2):
        strategy.push(dict(zip(paths, ones, strict=True)), version, optimizer=optimizer)
        optimizer.apply(ones, weights)
    assert int(optimizer.iterations.numpy()) == 4
    for slot in optimizer.moved:
        np.testing.assert_array_equal(slot.numpy(), 0)


@pytest.mark.rare
def test_it_is_saved_and_loaded_with_the_model(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    x = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
        inner = Compensated(GapAware(keras.optimizers.Adam(0.01)))
        model.compile(StalenessAware(inner), "mse")
    model.fit(x, x[:, :1], batch_size=4, verbose=0)
    model.save(tmp_path / "model.keras")
    with strategy.scope():
        loaded = keras.saving.load_model(tmp_path / "model.keras")
    for one, two in zip(model.optimizer.variables, loaded.optimizer.variables, strict=True):
        np.testing.assert_array_equal(two.numpy(), one.numpy(), err_msg=one.path)
    squares = [v for v in loaded.optimizer.variables if "square" in v.path]
    assert len(squares) == 4
    assert all(np.abs(v.numpy()).max() > 0 for v in squares)
    loaded.fit(x, x[:, :1], batch_size=4, verbose=0)
    assert int(loaded.optimizer.iterations) == 32
    assert strategy.stats().fallback_steps == 0
