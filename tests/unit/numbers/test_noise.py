"""Noise of `tf.random` in a model: each batch has its own, and one worker that of one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.drawing import DRAWS, EXAMPLES, distinct, met_in_fit
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)
SHAPE = [DRAWS]


class Random(keras.layers.Layer):
    """A layer whose outputs are what a function draws.

    Args:
        draw: draws `DRAWS` numbers.
    """

    def __init__(self, draw: Callable[[], Any]) -> None:
        super().__init__()
        self.draw = draw

    def compute_output_shape(self, shape: Any) -> Any:
        return (shape[0], DRAWS)

    def call(self, x: Any) -> Any:
        return 0 * x[:, :1] + tf.cast(self.draw(), tf.float32)[None]


def _in_loop() -> Any:
    array = tf.TensorArray(tf.float32, DRAWS)
    body = lambda i, a: (i + 1, a.write(i, tf.random.normal([])))  # noqa: E731
    # Otherwise the order of the draws is that of TensorFlow's threads, in one process too.
    drawn = tf.while_loop(lambda i, _: i < DRAWS, body, (0, array), parallel_iterations=1)
    return drawn[1].stack()


DRAW: dict[str, Callable[[], Any]] = {
    "normal": lambda: tf.random.normal(SHAPE),
    "a seed": lambda: tf.random.normal(SHAPE, seed=3),
    "uniform": lambda: tf.random.uniform(SHAPE),
    "integers": lambda: tf.random.uniform(SHAPE, 0, 2**22, tf.int32),
    "truncated": lambda: tf.random.truncated_normal(SHAPE),
    "gamma": lambda: tf.random.gamma(SHAPE, 2.0),
    "poisson": lambda: tf.random.poisson(SHAPE, 1e6),
    "shuffle": lambda: tf.random.shuffle(tf.range(100_000))[:DRAWS],
    "categorical": lambda: tf.random.categorical(tf.zeros([1, 100_000]), DRAWS)[0],
    "dropout": lambda: tf.nn.dropout(tf.random.uniform(SHAPE), 0.1) + tf.random.uniform(SHAPE),
    "a loop": _in_loop,
    "samples": lambda: tf.random.log_uniform_candidate_sampler(
        tf.constant([[1]], tf.int64), 1, DRAWS, True, 10**9
    )[0],
}


@pytest.mark.repeats
@pytest.mark.parametrize("draw", DRAW)
def test_one_worker_draws_what_one_process_draws(
    strategy: tfps.ParameterServerStrategy, draw: str
) -> None:
    met, _ = met_in_fit(strategy, lambda: Random(DRAW[draw]))
    np.testing.assert_array_equal(met, met_in_fit(None, lambda: Random(DRAW[draw]))[0])


@pytest.mark.repeats
@pytest.mark.quick("2-normal-asynchronous")
@pytest.mark.parametrize("mode", ["asynchronous", "synchronous"])
@pytest.mark.parametrize("draw", DRAW)
@pytest.mark.parametrize("workers", [2, 3])
def test_each_batch_has_noise_of_its_own(
    cluster: Callable[..., InProcessCluster], workers: int, draw: str, mode: str
) -> None:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=workers).cluster_resolver, consistency=mode
    )
    try:
        met, _ = met_in_fit(strategy, lambda: Random(DRAW[draw]))
        again = met if draw == "samples" else met_in_fit(strategy, lambda: Random(DRAW[draw]))[0]
    finally:
        strategy.close()
    assert met.shape == (3, EXAMPLES, DRAWS)
    assert distinct(met[:2].reshape([-1, DRAWS])) == 2 * EXAMPLES
    assert distinct(met[2]) == EXAMPLES  # an evaluation begins anew, as it does in one process
    np.testing.assert_array_equal(again, met)  # it follows from the global seed


@pytest.mark.repeats
@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_each_scheduled_function_has_noise_of_its_own(
    cluster: Callable[..., InProcessCluster], mode: str
) -> None:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=3, ps=2).cluster_resolver, consistency=mode
    )
    keras.utils.set_random_seed(1)
    try:
        with strategy.scope():
            model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
            optimizer = keras.optimizers.SGD(0.01)
            optimizer.build(model.trainable_variables)

        @tf.function
        def step(batch: int) -> tf.Tensor:
            noise = tf.random.normal([batch, 1])
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(noise))
            variables = model.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
            return noise[0]

        coordinator = tfps.ClusterCoordinator(strategy)
        for batch in (1, 2):  # each shape is traced by itself, and begins anew
            results = [coordinator.schedule(step, args=(batch,)) for _ in range(12)]
            coordinator.join()
            assert distinct([result.fetch() for result in results]) == len(results)
    finally:
        strategy.close()
