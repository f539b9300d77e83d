"""Twenty strategies one after the other leave nothing on the servers of one cluster."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterable

import keras
import numpy as np
import psutil
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting import UnitGradients, mean_output
from tfps.launch import LocalCluster
from tfps.runtime.worker.exchange_times import RESOURCE_NAME as EXCHANGE_TIMES

STRATEGIES = 20
FITTING = (0, 1)  # the first is closed, the second collected
COLLECTED_WITHIN_S = 10.0  # another thread may be in a collection, or use it for a moment

Name = tuple[str, str]  # of a container and of a resource in it


class TaskNames:
    """Asks a task directly which named variables it still has."""

    def __init__(self, address: str, *, device: str) -> None:
        self._address, self._device = address, device

    def existing(self, names: Iterable[Name]) -> set[Name]:
        """The names of `names` under which the task has a variable."""
        names, device = sorted(names), self._device
        config = tf.compat.v1.ConfigProto(device_filters=[device])
        with tf.Graph().as_default(), tf.device(device):
            present = [
                tf.raw_ops.VarIsInitializedOp(
                    resource=tf.raw_ops.VarHandleOp(
                        dtype=tf.float32, shape=[], shared_name=name, container=container
                    )
                )
                for container, name in names
            ]
            with tf.compat.v1.Session(f"grpc://{self._address}", config=config) as session:
                found = session.run(present)
        return {name for name, there in zip(names, found, strict=True) if there}


def _names(strategy: tfps.ParameterServerStrategy) -> set[Name]:
    return {
        (resource.container, resource.shared_name)
        for contents in strategy.runtime.contents
        for resource, record in contents.records.items()
        if record is not None  # else no variable
    }


def _use(strategy: tfps.ParameterServerStrategy, *, fits: bool) -> None:
    """Make resources: weights, slots, and those of `fit` and of a scheduled function."""
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), UnitGradients()])
        model.compile(keras.optimizers.Adam(1.0), mean_output)
        model.optimizer.build(model.trainable_variables)
    if fits:
        data = np.zeros([8, 1], "float32")
        model.fit(data, data, batch_size=2, epochs=1, verbose=0)
        _schedule(strategy, model)


def _schedule(strategy: tfps.ParameterServerStrategy, model: keras.Model) -> None:
    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = mean_output(None, model(tf.zeros([2, 1])))
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    coordinator = tfps.ClusterCoordinator(strategy)
    coordinator.schedule(step)
    coordinator.join()


def _is_collected(strategy: weakref.ref[tfps.ParameterServerStrategy]) -> bool:
    ends_at = time.monotonic() + COLLECTED_WITHIN_S
    gc.collect()
    while strategy() is not None and time.monotonic() < ends_at:
        time.sleep(0.1)
        gc.collect()
    return strategy() is None


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_nothing_is_left(cluster: Callable[..., LocalCluster]) -> None:
    tasks = cluster(workers=1, ps=1)
    server = TaskNames(tasks.spec.address("ps", 0), device="/job:ps/task:0")
    worker = TaskNames(tasks.spec.address("worker", 0), device="/job:worker/task:0")
    left: dict[int, set[Name]] = {}
    not_collected, threads = [], []
    for number in range(STRATEGIES):
        strategy = tfps.ParameterServerStrategy(tasks.cluster_resolver)
        _use(strategy, fits=number in FITTING)
        names = _names(strategy)
        assert len(names) > 6
        assert server.existing(names) == names
        on_worker = {(strategy.runtime.container, EXCHANGE_TIMES)}
        assert worker.existing(on_worker) == (on_worker if number in FITTING else set())
        if number % 2:
            reference = weakref.ref(strategy)
            del strategy
            if not _is_collected(reference):
                not_collected.append(number)
        else:
            strategy.close()
            del strategy
        if existing := server.existing(names) | worker.existing(on_worker):
            left[number] = existing
        threads.append(psutil.Process().num_threads())  # those of TensorFlow as well
    assert not_collected == []
    assert left == {}
    assert threads[-1] <= threads[len(FITTING)]
