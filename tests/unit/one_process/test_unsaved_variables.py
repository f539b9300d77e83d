"""A server with variables in no checkpoint is not made again: their values are unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.one_process.lost_servers import lose, recover, saver
from tests.unit.one_process.unit_steps import counters, fit
from tfps.errors import CheckpointError


@pytest.mark.rare
@pytest.mark.parametrize("lost", [0, 1])
def test_a_raw_variable_of_tensorflow_is_named(
    lost: int, make_strategy: Callable[..., tfps.ParameterServerStrategy], tmp_path: Path
) -> None:
    strategy = make_strategy(placement="round_robin")
    recover(strategy, tmp_path, every_steps=None)
    model = counters(strategy)
    with strategy.scope():
        raw = [tf.Variable(1.0, name=f"raw_{number}") for number in range(2)]
    (of_lost,) = [each for each in raw if each.device == strategy.runtime.servers[lost].device]
    manager = saver(strategy, model, tmp_path)
    fit(model, steps=2)
    manager.save(background=False)
    name = of_lost.name.removesuffix(":0")
    with raises(CheckpointError, f"ps {lost}", received=name, remedy="raw"):
        lose(strategy, [lost])
