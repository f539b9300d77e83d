"""With variables divided by any partitioner, training gives the numbers of one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest

from tests.unit.numbers.comparison import Comparison
from tests.unit.numbers.partitioned import PARTITIONERS, of_many_layers, small, strategy_with
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "clipped": lambda: keras.optimizers.Adam(0.01, clipnorm=0.3),
    "clipped together": lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.3),
    "averages": lambda: keras.optimizers.AdamW(
        0.01, weight_decay=0.1, use_ema=True, ema_overwrite_frequency=3
    ),
    "accumulated": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=3),
    "scaled loss": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(0.01, clipnorm=0.3), dynamic_growth_steps=3
    ),
}


@pytest.mark.quick("shuffle")
@pytest.mark.parametrize("name", PARTITIONERS)
def test_partitioners(name: str, cluster: Callable[..., InProcessCluster]) -> None:
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS[name]) as strategy:
        model = Comparison(strategy).run(lambda: of_many_layers(OPTIMIZERS["adam"]))
        assert any(len(getattr(v.value, "shards", ())) > 1 for v in model.trainable_variables)
        assert strategy.stats().fallback_steps == 0


@pytest.mark.quick("clipped")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str, cluster: Callable[..., InProcessCluster]) -> None:
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["rules"]) as strategy:
        Comparison(strategy).run(lambda: small(OPTIMIZERS[name]))
