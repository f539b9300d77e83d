"""Gradients of two devices of a worker are coded as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfps
from tests.cluster.devices.test_fit import BATCH, EXAMPLES, TOLERANCE, build, data
from tfps.compression import ByPath, Identity, TopK

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def strategy_options() -> dict[str, Any]:
    """All numbers of some gradients go, and none is rounded."""
    return {"compression": ByPath({"kernel": TopK(1)}, otherwise=Identity())}


def test_numbers_of_one_machine(strategy: tfps.ParameterServerStrategy) -> None:
    x, y = data()
    local = build()
    local.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    with strategy.scope():
        model = build()
    model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    steps = 2 * -(-EXAMPLES // BATCH)
    assert strategy.stats().updates_applied == steps
    assert "TopK(fraction=1)" in {each.codec for each in strategy.stats().traffic[0].codecs}
    for one, two in zip(local.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(two, one, atol=TOLERANCE)
