"""A round applies the mean of the workers' sums where a loss is a sum, and `fit` says so."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import pytest

import tfps
from tfps.testing import InProcessCluster

X = np.random.RandomState(0).rand(8, 4).astype("float32")
Y = X.sum(1, keepdims=True)


def _model(reduction: str, *, rate: float = 0.01) -> keras.Model:
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)]
    )
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    model.compile(keras.optimizers.SGD(rate), loss)
    return model


@pytest.mark.rare
@pytest.mark.quick("2-synchronous-sum-1")
@pytest.mark.parametrize(
    ("workers", "mode", "reduction", "warnings"),
    [
        (2, "synchronous", "sum", 1),
        (2, "synchronous", "sum_over_batch_size", 0),
        (2, "asynchronous", "sum", 0),
        (1, "synchronous", "sum", 0),
    ],
)
def test_a_sum_is_told_of_once(
    cluster: Callable[..., InProcessCluster],
    caplog: pytest.LogCaptureFixture,
    *,
    workers: int,
    mode: str,
    reduction: str,
    warnings: int,
) -> None:
    resolver = cluster(workers=workers, ps=1).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, consistency=mode)
    with strategy.scope():
        model = _model(reduction)
    for _ in range(2):
        model.fit(X, 2 * Y, batch_size=4, shuffle=False, verbose=0)
    strategy.close()
    assert sum("mean of its workers' sums" in r.getMessage() for r in caplog.records) == warnings


@pytest.mark.repeats
def test_a_round_applies_the_mean_of_sums(cluster: Callable[..., InProcessCluster]) -> None:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=2, ps=1).cluster_resolver, consistency="synchronous"
    )
    with strategy.scope():
        model = _model("sum")
    model.fit(X, 2 * Y, batch_size=4, shuffle=False, verbose=0)
    weights = model.get_weights()
    strategy.close()
    plain = _model("sum", rate=0.01 / 2)
    plain.fit(X, 2 * Y, batch_size=8, shuffle=False, verbose=0)
    np.testing.assert_allclose(weights[0], plain.get_weights()[0], rtol=1e-5)
