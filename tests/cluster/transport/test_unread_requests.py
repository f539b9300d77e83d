"""A request that a server cannot read is an accident on the way, not the end of the job."""

from __future__ import annotations

from collections.abc import Iterator

import keras
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting import UnitGradients, Visits, mean_output, numbered
from tests.cluster.processes import Jobs, cluster_of_processes, resolver_of
from tests.cluster.transport.relay import Relay, relay_to
from tfps.bridge.closures.closure_error import MAX_ATTEMPTS
from tfps.cluster import lease_ports

EXAMPLES, BATCH = 60, 2
FUNCTIONS = 8
SAID = "arrived incomplete"

pytestmark = [pytest.mark.rare, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Jobs, Relay]]:
    """One worker and one plain server, which all reach through a relay."""
    tasks = [("worker", 0), ("ps", 0)]
    with lease_ports(1) as lease:
        own = f"127.0.0.1:{lease.ports[0]}"
    with (
        relay_to(own) as relay,
        cluster_of_processes(
            tmp_path_factory.mktemp("relayed"),
            tasks,
            plain=set(tasks),
            behind={("ps", 0): (relay.address, own)},
        ) as jobs,
    ):
        yield jobs, relay


@pytest.fixture(scope="module")
def strategy(relayed: tuple[Jobs, Relay]) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(resolver_of(relayed[0]), transport="grpc")
    yield strategy
    strategy.close()


@pytest.mark.parametrize("after", [0, 5], ids=["the first pull", "a push"])
def test_fit_counts_every_example_once(
    after: int,
    relayed: tuple[Jobs, Relay],
    strategy: tfps.ParameterServerStrategy,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with strategy.scope():
        visits = Visits(EXAMPLES)
        model = keras.Sequential([keras.Input((4,)), UnitGradients()])
        model.compile(keras.optimizers.SGD(-1.0), mean_output, metrics=[visits])
    x, labels = numbered(EXAMPLES)
    relay = relayed[1]
    relay.spoil(2, after=after)
    model.fit(x, labels, batch_size=BATCH, verbose=0)
    assert relay.spoilt == 2
    assert len([message for message in caplog.messages if SAID in message]) == 2
    assert visits.counts() == [1] * EXAMPLES
    assert model.get_weights() == [EXAMPLES / BATCH] * 2


def test_a_scheduled_function_is_run_again(
    relayed: tuple[Jobs, Relay],
    strategy: tfps.ParameterServerStrategy,
    caplog: pytest.LogCaptureFixture,
) -> None:
    coordinator = tfps.ClusterCoordinator(strategy)
    step, optimizer, relay = *_step(strategy), relayed[1]
    relay.spoil(1, after=3)  # the second push
    for _ in range(FUNCTIONS):
        coordinator.schedule(step)
    coordinator.join()
    assert relay.spoilt == 1
    assert len([message for message in caplog.messages if SAID in message]) == 1
    assert int(optimizer.iterations.numpy()) == FUNCTIONS


def test_one_that_is_never_read_is_an_error(
    relayed: tuple[Jobs, Relay], strategy: tfps.ParameterServerStrategy
) -> None:
    coordinator = tfps.ClusterCoordinator(strategy)
    step, _, relay = *_step(strategy), relayed[1]
    relay.spoil(10 * MAX_ATTEMPTS)
    coordinator.schedule(step)
    with pytest.raises(tf.errors.InternalError, match="Unable to parse request"):
        coordinator.join()
    assert relay.spoilt == MAX_ATTEMPTS
    relay.spoil(0)
    coordinator.schedule(step)
    coordinator.join()


def _step(
    strategy: tfps.ParameterServerStrategy,
) -> tuple[tf.types.experimental.PolymorphicFunction, keras.optimizers.Optimizer]:
    with strategy.scope():
        layer, optimizer = keras.layers.Dense(1), keras.optimizers.SGD(0.1)
        layer.build((None, 3))
        optimizer.build(layer.trainable_variables)

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(tf.ones((2, 3))))
        gradients = tape.gradient(loss, [v.value for v in layer.trainable_variables])
        optimizer.apply_gradients(zip(gradients, layer.trainable_variables, strict=True))

    return step, optimizer
