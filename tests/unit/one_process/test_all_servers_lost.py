"""If no server has lived, counts continue from the checkpoint, and unknown ones are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tfps
from tests.unit.one_process.lost_servers import lose, recover, saver
from tests.unit.one_process.unit_steps import Counters, counters, fit, schedule

SAVED, LOST, MORE = 4, 3, 2

Make = Callable[..., tfps.ParameterServerStrategy]


@pytest.fixture
def strategy(make_strategy: Make, tmp_path: Path) -> tfps.ParameterServerStrategy:
    strategy = make_strategy(placement="round_robin")
    recover(strategy, tmp_path, every_steps=None)
    return strategy


@pytest.fixture
def model(strategy: tfps.ParameterServerStrategy) -> Counters:
    return counters(strategy)


@pytest.fixture
def manager(
    strategy: tfps.ParameterServerStrategy, model: Counters, tmp_path: Path
) -> tfps.CheckpointManager:
    return saver(strategy, model, tmp_path)


@pytest.mark.repeats
def test_scheduled_functions_since_the_checkpoint_are_unknown(
    strategy: tfps.ParameterServerStrategy, model: Counters, manager: tfps.CheckpointManager
) -> None:
    """They are unknown after a run of `fit` as well, which knows the counts until its end."""
    fit(model, steps=1)
    schedule(strategy, model, steps=SAVED - 1)
    manager.save(background=False)
    schedule(strategy, model, steps=LOST)
    for loss in lose(strategy, [0, 1]):
        assert f"back at update {SAVED}: all servers were lost" in str(loss)
    assert strategy.stats().versions == (SAVED, SAVED)
    assert model.counts() == [SAVED, SAVED]
    schedule(strategy, model, steps=MORE)
    assert strategy.stats().versions == (SAVED + MORE, SAVED + MORE)
    assert model.counts() == [SAVED + MORE, SAVED + MORE]


@pytest.mark.slow
def test_steps_of_fit_are_known(
    strategy: tfps.ParameterServerStrategy, model: Counters, manager: tfps.CheckpointManager
) -> None:
    fit(model, steps=SAVED)
    manager.save(background=False)
    fit(model, steps=LOST)
    message = f"back at update {SAVED} of {SAVED + LOST}: {LOST} updates lost"
    for loss in lose(strategy, [0, 1]):
        assert message in str(loss)
    assert strategy.stats().versions == (SAVED + LOST, SAVED + LOST)
    assert strategy.stats().updates_lost == 2 * LOST
    assert model.counts() == [SAVED, SAVED]
    assert int(model.optimizer.iterations) == SAVED + LOST
