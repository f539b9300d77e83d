"""No update is lost, one exchange per server and step, and `stats()` says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting import UnitGradients, mean_output
from tfps.consistency.histogram import DURATION_BINS
from tfps.launch import LocalCluster
from tfps.runtime.server.server_optimizer_call import PULL, PUSH, UPDATE
from tfps.transport.tokens import EXCHANGE

STEPS, BATCH, WORKERS, SERVERS = 400, 2, 2, 2
PUSHES = 40

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def strategy(
    cluster: Callable[..., LocalCluster], carrier: str
) -> Iterator[tfps.ParameterServerStrategy]:
    resolver = cluster(workers=WORKERS, ps=SERVERS).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, placement="round_robin")
    yield strategy
    strategy.close()


@pytest.mark.repeats
@pytest.mark.conformance
def test_scheduled_steps_lose_no_update(strategy: tfps.ParameterServerStrategy) -> None:
    coordinator = tfps.ClusterCoordinator(strategy)
    before = strategy.stats()
    with strategy.scope():
        weight = keras.Variable(np.zeros([3], "float32"), name="weight")
        optimizer = keras.optimizers.SGD(1.0)

    @tf.function
    def step() -> tf.Tensor:
        def replica() -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight * 1.0)
            optimizer.apply(tape.gradient(loss, [weight]), [weight])
            return loss

        return strategy.run(replica)

    durations = _duration_counts(strategy)
    for _ in range(STEPS):
        coordinator.schedule(step)
    coordinator.join()
    after = strategy.stats()
    # A worker tells of an exchange with its next push; its first pull is no typical one.
    for kind, missing in ((PUSH, WORKERS), (PULL, WORKERS)):
        assert STEPS - missing <= _duration_counts(strategy)[kind] - durations[kind] < STEPS
    assert _duration_counts(strategy)[UPDATE] - durations[UPDATE] == STEPS
    for name in ("pull_seconds", "push_seconds", "update_seconds"):
        quantiles = getattr(after, name)
        assert 0 < quantiles.p50 <= quantiles.p99, name
    assert weight.numpy().tolist() == [-STEPS] * 3
    assert int(optimizer.iterations.numpy()) == STEPS
    assert after.updates_applied - before.updates_applied == STEPS
    assert len(set(after.versions)) == 1
    assert after.fallback_steps == 0


@pytest.mark.repeats
@pytest.mark.conformance
def test_pushes_lose_no_update(strategy: tfps.ParameterServerStrategy) -> None:
    """Both those of workers and those of the coordinator itself."""
    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = [tf.Variable(tf.zeros([3]), name=name) for name in ("left", "right")]
    names = ["left", "right"]

    @tf.function
    def step() -> tf.Tensor:
        values, version = strategy.pull(names)
        version, staleness = strategy.push({n: -tf.ones_like(values[n]) for n in names}, version)
        return staleness

    _, before = strategy.pull(names)
    late = [coordinator.schedule(step) for _ in range(PUSHES)]
    coordinator.join()
    values, version = strategy.pull(names)
    gradients = {name: np.full([3], -1.0, "float32") for name in names}
    assert strategy.push(gradients, version)[1] == 0
    assert (version - before).tolist() == [PUSHES] * SERVERS
    assert [values[name].tolist() for name in names] == [[PUSHES] * 3] * 2
    assert [weight.numpy().tolist() for weight in weights] == [[PUSHES + 1] * 3] * 2
    assert all(0 <= int(staleness.fetch()) < PUSHES for staleness in late)


@pytest.fixture(scope="module")
def fitted(
    strategy: tfps.ParameterServerStrategy,
) -> tuple[keras.Model, tfps.strategy.reading.stats.Stats]:
    """A model after one epoch of 400 steps, and the statistics of before."""
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), UnitGradients()])
        model.compile(keras.optimizers.SGD(1.0), mean_output)
    before = strategy.stats()
    data = np.zeros([STEPS * BATCH, 1], "float32")
    model.fit(data, data, batch_size=BATCH, epochs=1, verbose=0)
    return model, before


@pytest.mark.conformance
def test_fit_loses_no_update(
    strategy: tfps.ParameterServerStrategy, fitted: tuple[keras.Model, Any], carrier: str
) -> None:
    (model, before), after = fitted, strategy.stats()
    assert model.get_weights() == [-STEPS, -STEPS]
    assert int(model.optimizer.iterations.numpy()) == STEPS
    assert len({weight.value.device for weight in model.weights}) == SERVERS
    joins = WORKERS  # one for each closure
    exchanges = [b - a for a, b in zip(before.exchanges, after.exchanges, strict=True)]
    assert exchanges == [STEPS + joins] * SERVERS
    versions = [b - a for a, b in zip(before.versions, after.versions, strict=True)]
    assert versions == [STEPS] * SERVERS
    assert after.updates_applied - before.updates_applied == STEPS
    assert after.examples_seen - before.examples_seen == STEPS * BATCH
    assert sum(after.worker_steps) - sum(before.worker_steps) == STEPS
    assert after.gradients_dropped == before.gradients_dropped
    assert _updates(after) - _updates(before) == STEPS
    assert after.fallback_steps == 0
    for name in ("push_seconds", "update_seconds", "wait_seconds"):  # `fit` has no pull alone
        quantiles = getattr(after, name)
        assert 0 < quantiles.p50 <= quantiles.p99, name
    assert after.transports == ("grpc" if carrier == "grpc" else "direct",) * SERVERS
    workers, servers = range(WORKERS), range(SERVERS)
    tasks = {f"worker {i}": "alive" for i in workers} | {f"ps {i}": "alive" for i in servers}
    assert after.tasks == tasks


@pytest.mark.repeats
def test_what_a_fit_tells_of_its_exchanges(strategy: tfps.ParameterServerStrategy) -> None:
    """The first join of a worker connects and prepares: it is no typical pull."""
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), UnitGradients()])
        model.compile(keras.optimizers.SGD(1.0), mean_output)
    data, lives = np.zeros([STEPS * BATCH, 1], "float32"), strategy.stats().worker_lives
    found = []
    for _ in range(3):
        before = _duration_counts(strategy)
        model.fit(data, data, batch_size=BATCH, epochs=1, verbose=0)
        found.append(_duration_counts(strategy) - before)
        model.evaluate(data, data, batch_size=BATCH, verbose=0)
    assert [counts[PULL] for counts in found] == [0, WORKERS, WORKERS]
    assert [counts[PUSH] for counts in found] == [STEPS] * 3
    while strategy.stats().steps_per_s is None:  # two looks at a training have seen the same
        model.fit(data, data, batch_size=BATCH, epochs=1, verbose=0)
        model.evaluate(data, data, batch_size=BATCH, verbose=0)
    stats = strategy.stats()
    assert stats.steps_per_s is not None
    assert sum(stats.steps_per_s) > 0  # of the latest training, whatever came after it
    assert stats.worker_lives == lives == (1,) * WORKERS


def _duration_counts(strategy: tfps.ParameterServerStrategy) -> np.ndarray[Any, Any]:
    """Return how many durations of each kind the first server has counted."""
    server = strategy.runtime.ticket_server
    begin = server.layout.duration(0, 0)
    durations = server.cells()[begin : begin + 4 * DURATION_BINS]
    return durations.reshape(4, DURATION_BINS).sum(1)


def _updates(stats: Any) -> int:
    return sum(stats.gradient_staleness_updates.values())


def test_worker_and_server_meet_in_calls_only(
    strategy: tfps.ParameterServerStrategy, fitted: tuple[keras.Model, Any]
) -> None:
    """Nothing in the worker's graph is placed on a server, or holds a handle of one.

    Both would cut the graph in two, which then meet in a send and a receive for each tensor.
    """
    model, _ = fitted
    (compiled,) = model.train_function.compiler.compiled.values()
    (closure,) = compiled.traced.values()
    assert not [t for t in closure.captured_inputs if "/job:ps" in t.device]
    graph = closure.graph.as_graph_def()
    functions = {function.signature.name: function for function in graph.library.function}
    bodies: dict[str, Any] = {"closure": graph.node}
    waiting = list(graph.node)
    while waiting:
        node = waiting.pop()
        assert "/job:ps" not in node.device, node
        if node.op == "RemoteCall":
            continue  # its function runs on the server
        for name in _called(node):
            if name not in bodies:
                bodies[name] = functions[name].node_def
                waiting += functions[name].node_def
    calls = {name: sum(_is_exchange(node) for node in body) for name, body in bodies.items()}
    (loop,) = (node for node in graph.node if node.op in ("While", "StatelessWhile"))
    per_exchange = 1 if strategy.runtime.data_plane.carrier.name == "direct" else SERVERS
    assert calls.pop(loop.attr["body"].func.name) == per_exchange  # a push to each
    assert calls.pop("closure") == 2 * per_exchange  # join and leave
    assert set(calls.values()) <= {0}


def _is_exchange(node: Any) -> bool:
    return node.op == "RemoteCall" or (
        node.op == "PyFunc" and node.attr["token"].s == EXCHANGE.encode()
    )


def _called(node: Any) -> list[str]:
    names = []
    for value in node.attr.values():
        names += [value.func.name] if value.HasField("func") else []
        names += [function.name for function in value.list.func]
    return names
