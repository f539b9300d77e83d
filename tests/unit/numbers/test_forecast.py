"""The placement forecast without a cluster is that of the variables on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.messages import raises
from tfps.errors import ConfigError
from tfps.partitioners import Balanced, FixedShardsPartitioner, Whole
from tfps.placement import ByPath, LeastLoaded, RoundRobin
from tfps.placement.division import divide_variables
from tfps.placement.forecast import Forecast
from tfps.strategy.dry_run_strategy import DryRunStrategy
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(180)

BY_PATH = ByPath({"embedding/": 1, "dense/bias": 1}, otherwise=RoundRobin())


def _model() -> keras.Model:
    layers = [
        keras.Input((4,)),
        keras.layers.Embedding(50, 8, name="embedding"),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.1),
        keras.layers.BatchNormalization(),
        keras.layers.Dense(16, name="dense"),
        keras.layers.Dense(3, name="head"),
    ]
    model = keras.Sequential(layers, name="model")
    optimizer = keras.optimizers.Adam(0.01, name="adam")
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _fit(model: Any) -> None:
    model.fit(np.ones([8, 4], "int32"), np.zeros([8], "int32"), batch_size=4, verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("placement", "partitioner"),
    [
        (LeastLoaded(), Whole()),
        (BY_PATH, Whole()),
        (LeastLoaded(), Balanced(min_shard_bytes=64)),
        (RoundRobin(), FixedShardsPartitioner(3)),
    ],
    ids=["least_loaded", "by_path", "balanced", "fixed"],
)
def test_a_forecast_comes_true(
    cluster: Callable[..., InProcessCluster], placement: Any, partitioner: Any
) -> None:
    keras.utils.clear_session()  # names begin anew, as in a process of its own
    dry_run = DryRunStrategy()
    with dry_run.scope():
        rehearsed = _model()
    wanted = divide_variables(dry_run.planned_variables(rehearsed), partitioner, servers=2)
    forecast = Forecast.from_variables(wanted, servers=2, placement=placement)
    keras.utils.clear_session()
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver, partitioner, placement=placement
    )
    with strategy.scope():
        model = _model()
    _fit(model)
    expected = {
        v.path: p for v, p in zip(forecast.variables, forecast.server_of_variable, strict=True)
    }
    found = {view.variable: view.server for view in strategy.plan.views}
    assert found == expected
    assert strategy.plan.bytes_per_server == forecast.bytes_per_server
    strategy.close()


def test_a_rule_for_a_server_that_is_not_there(cluster: Callable[..., InProcessCluster]) -> None:
    with raises(ConfigError, "'table'", received="server 2", remedy="expected 0 to 1"):
        tfps.ParameterServerStrategy(
            cluster(workers=1, ps=2).cluster_resolver, placement=ByPath({"table": 2})
        )


def test_a_policy_that_names_no_server(cluster: Callable[..., InProcessCluster]) -> None:
    class Wrong:
        def choose(self, *_: Any, **__: Any) -> int:
            return 7

    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver, placement=Wrong()
    )
    with (
        strategy.scope(),
        raises(ConfigError, "placement: ", received="server 7 for weight", remedy="0 to 1"),
    ):
        keras.Variable([1.0], name="weight")
    strategy.close()
