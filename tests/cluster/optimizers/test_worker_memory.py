"""The memory of a server about each worker, in `fit` on two workers and two servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.unit.optimizers.measured import descend_by_one, total_staleness
from tfps.consistency.ledger import STALENESS_BINS

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster_size() -> dict[str, int]:
    return {"workers": 2, "ps": 2}


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


# Without a cluster: tests/unit/optimizers/test_remembering.py, and trained in
# tests/unit/numbers/shards/test_several_workers.py.
@pytest.mark.repeats
@pytest.mark.parametrize(
    "mode",
    [
        tfps.Asynchronous(),
        tfps.Asynchronous(pipeline_steps=1),
        tfps.BoundedStaleness(bound_steps=0),
    ],
    ids=["asynchronous", "pipelined", "bounded"],
)
def test_in_fit_the_distance_is_the_staleness(
    cluster: Callable[..., Any], cluster_size: dict[str, int], mode: Any
) -> None:
    """They agree exactly, over all pushes of two workers in any order."""
    strategy = tfps.ParameterServerStrategy(
        cluster(**cluster_size).cluster_resolver, consistency=mode
    )
    model = _counting_model(strategy)
    x = np.ones((200, 1), "float32")
    for _ in range(2):  # the second time workers enter with memories of the first
        model.fit(x, x, batch_size=1, verbose=0)
        model.set_weights([weight * 0.0 for weight in model.get_weights()])
    servers = {variable._value.device for variable in model.trainable_variables}
    assert len(servers) == 2
    on_ticket_server = [
        slot.numpy().item()
        for slot, variable in zip(model.optimizer.moved, model.trainable_variables, strict=True)
        if "task:0" in variable._value.device
    ]
    expected, counts = total_staleness(strategy), strategy.stats().gradient_staleness_updates
    strategy.close()
    assert expected > 20
    if max(counts) < STALENESS_BINS - 1:
        assert on_ticket_server == [expected] * len(on_ticket_server)
    else:  # a worker stood still for a while, and the last bin does not say for how long
        assert min(on_ticket_server) == max(on_ticket_server) >= expected
