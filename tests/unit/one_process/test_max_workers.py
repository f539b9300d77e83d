"""Room for more workers than there are changes no number."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting import UnitGradients, mean_output
from tests.messages import raises
from tests.unit.one_process.jobs import STEPS, FitJob, FunctionJob
from tests.unit.one_process.unit_steps import BATCH, counters, fit
from tfps.errors import ConfigError
from tfps.strategy import named_job
from tfps.testing import InProcessCluster
from tfps.testing.in_process import InProcessConnections

MEANS = STEPS / 2  # of the two workers' gradients
ROOM = 5

Make = Callable[..., tfps.ParameterServerStrategy]

EXACT = {
    "bounded": (tfps.BoundedStaleness(1), STEPS),
    "synchronous": (tfps.Synchronous(), MEANS),
    "asynchronous": (tfps.Asynchronous(), STEPS),
    "local steps in rounds": (tfps.LocalSteps(2, synchronous_periods=True), MEANS),
}


@pytest.mark.repeats
@pytest.mark.parametrize(("mode", "count"), EXACT.values(), ids=EXACT)
def test_fit(make_strategy: Make, mode: Any, count: float) -> None:
    job = FitJob(make_strategy(mode, max_workers=ROOM))
    assert job.counts == [count, count]
    assert (job.examples, job.dropped) == (BATCH * STEPS, 0)
    stats = job.strategy.stats()
    assert sum(stats.worker_steps) == STEPS
    assert len(stats.worker_steps) == len(stats.worker_evaluation_steps) == 2
    assert len(stats.steps_per_s or (0, 0)) == 2  # None, if all was seen at once


@pytest.mark.repeats
def test_a_round_waits_for_nobody_who_is_not_there(make_strategy: Make) -> None:
    """The round is one of scheduled functions, members for as long as there is something to run."""
    job = FunctionJob(make_strategy(tfps.Synchronous(), max_workers=ROOM))
    first, second = job.counts
    assert first == second
    assert MEANS <= first <= STEPS


@pytest.mark.repeats
def test_averages_are_those_of_the_workers_that_there_are(make_strategy: Make) -> None:
    """A running maximum, of which only the new value is known, counts by one worker of two."""
    strategy = make_strategy(max_workers=ROOM)
    model = counters(strategy)
    with strategy.scope():
        average = model.add_weight(shape=(), initializer="zeros", trainable=False, name="average")

    @tf.function
    def step() -> None:
        average.assign(tf.maximum(average, 1.0))

    strategy.coordinator.schedule(step)
    strategy.coordinator.join()
    assert float(average.numpy()) == 0.5


def test_mistakes(make_strategy: Make) -> None:
    for max_workers in (1, 0, True, 2.5, "3"):
        with raises(ConfigError, "max_workers", received=repr(max_workers), remedy="2"):
            make_strategy(max_workers=max_workers)


def _named(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    """Two weights that count updates, with names of their own: Keras counts those of a process."""
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), UnitGradients(name="units")], name="model")
        model.compile(keras.optimizers.SGD(-1.0, name="sgd"), mean_output)
    return model


@pytest.mark.rare
def test_the_next_chief_has_other_workers(
    cluster: InProcessCluster, make_strategy: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has as many as there is room for; the ledger is that of the job."""
    monkeypatch.setattr(named_job, "OPEN_JOBS", {})
    before = make_strategy(job="night", max_workers=ROOM)
    fit(_named(before), steps=STEPS)
    left = before.stats()
    named_job.OPEN_JOBS.clear()  # as if the chief had died
    with raises(ConfigError, "max_workers", received="received 2", remedy="expected 5"):
        make_strategy(job="night")
    with tfps.attach("night", cluster.cluster_resolver) as reader:
        assert reader.stats().worker_steps == left.worker_steps
    fewer = dataclasses.replace(
        cluster.spec, jobs={**cluster.spec.jobs, "worker": cluster.spec.jobs["worker"][:1]}
    )
    resolver = fewer.tf_resolver()
    topology = cluster.cluster_resolver.tfps_connections.topology
    resolver.tfps_connections = InProcessConnections(
        dataclasses.replace(
            topology, workers=topology.workers[:1], worker_scopes=topology.worker_scopes[:1]
        )
    )
    strategy = tfps.ParameterServerStrategy(resolver, job="night", max_workers=ROOM)
    model = _named(strategy)
    assert model.get_weights() == [STEPS, STEPS]
    fit(model, steps=STEPS)
    now = strategy.stats()
    assert now.updates_applied == 2 * STEPS
    assert now.worker_steps == (left.worker_steps[0] + STEPS,)
    assert model.get_weights() == [2 * STEPS, 2 * STEPS]
    strategy.close()
