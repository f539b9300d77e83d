"""The memory of a server about each worker, in scheduled functions that pull and push by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.graphs import graphs_as_traced
from tests.unit.optimizers.scaled_momenta import ARGUMENTS, FORMULAS
from tfps.optimizers import DANA, AsyncAdam
from tfps.runtime.worker.worker_index import capture_worker_index
from tfps.testing import InProcessCluster

RATE = 0.1
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


class LookAhead:
    """DANA-Zero; the weight is what the master would send, and not its own."""

    def __init__(self, weight: np.ndarray) -> None:
        self.weight = self.own = weight
        self.momenta = {0: np.zeros(weight.shape), 1: np.zeros(weight.shape)}

    def push(self, worker: int, gradient: np.ndarray, *, base: int) -> None:
        self.momenta[worker] = 0.9 * self.momenta[worker] + gradient
        self.own = self.own - RATE * self.momenta[worker]
        self.weight = self.own - RATE * 0.9 * (self.momenta[0] + self.momenta[1])


PAPERS: dict[str, tuple[Callable[[], Any], Any]] = {
    "dana": (lambda: DANA(RATE), LookAhead),
    "adam": (lambda: AsyncAdam(momentum="per_worker", **ARGUMENTS), FORMULAS["per_worker"]),
    "ordered": (lambda: AsyncAdam(momentum="ordered", **ARGUMENTS), FORMULAS["ordered"]),
}


@pytest.mark.quick("dana")
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


@pytest.mark.rare
def test_the_coordinator_counts_as_worker_0(strategy: tfps.ParameterServerStrategy) -> None:
    weights, optimizer = _trained_by(strategy, lambda: DANA(RATE))
    papers = [LookAhead(weight.numpy().astype("float64")) for weight in weights]
    paths = [weight.path for weight in weights]
    _, version = strategy.pull(paths)
    ones = [np.ones(weight.shape, "float32") for weight in weights]
    for _ in range(2):
        strategy.push(dict(zip(paths, ones, strict=True)), version, optimizer=optimizer)
        optimizer.apply(ones, weights)
        for paper, one in zip(papers, ones, strict=True):
            paper.push(0, one, base=0)
            paper.push(0, one, base=0)
    for paper, weight, slot in zip(papers, weights, optimizer.momentums, strict=True):
        np.testing.assert_allclose(weight.numpy(), paper.weight, rtol=1e-5)
        np.testing.assert_allclose(slot.numpy(), -RATE * paper.momenta[0], rtol=1e-5)
