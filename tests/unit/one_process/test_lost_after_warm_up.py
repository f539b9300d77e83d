"""Where a warm-up is over, a job in a mode without rounds goes on after the loss of a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tfps
from tests.unit.one_process.lost_servers import lose, recover, saver
from tests.unit.one_process.unit_steps import Counters, counters, fit
from tfps.consistency.mode import Mode

pytestmark = pytest.mark.rare

WARM_UP, WORKERS = 2, 2
# Both workers take part, so all steps of the warm-up and some more.
SAVED, LOST, MORE = 2 * WORKERS * WARM_UP, 3, 2

MODES = [tfps.Asynchronous(warm_up_steps=WARM_UP), tfps.BoundedStaleness(1, warm_up_steps=WARM_UP)]

Job = Callable[[Mode], tuple[tfps.ParameterServerStrategy, Counters, tfps.CheckpointManager]]


@pytest.fixture
def job(make_strategy: Callable[..., tfps.ParameterServerStrategy], tmp_path: Path) -> Job:
    """Return a function that makes a strategy of a mode, its model, and what saves it."""

    def make(mode: Mode) -> tuple[tfps.ParameterServerStrategy, Counters, tfps.CheckpointManager]:
        strategy = make_strategy(mode, placement="round_robin")
        recover(strategy, tmp_path, every_steps=None)
        model = counters(strategy)
        return strategy, model, saver(strategy, model, tmp_path)

    return make


@pytest.mark.parametrize("mode", MODES, ids=repr)
@pytest.mark.parametrize("lost", [0, 1])
def test_fit_goes_on(mode: Mode, lost: int, job: Job) -> None:
    strategy, model, manager = job(mode)
    fit(model, steps=SAVED)
    saved = model.counts()
    assert saved == [WARM_UP + SAVED - WORKERS * WARM_UP] * 2
    manager.save(background=False)
    fit(model, steps=LOST)
    (loss,) = lose(strategy, [lost])
    assert f"{LOST} updates lost" in str(loss)
    assert strategy.stats().updates_lost == LOST
    fit(model, steps=MORE)
    lacks = [LOST if server == lost else 0 for server in range(2)]
    assert model.counts() == [
        count + LOST + MORE - lack for count, lack in zip(saved, lacks, strict=True)
    ]
    assert int(model.optimizer.iterations) == SAVED - WORKERS * WARM_UP + LOST + MORE


def test_what_a_warm_up_has_made_is_saved(
    make_strategy: Callable[..., tfps.ParameterServerStrategy], tmp_path: Path
) -> None:
    """`fit` saves it: a loss of the warm-up could not be counted in updates."""
    strategy = make_strategy(tfps.Asynchronous(warm_up_steps=WARM_UP), placement="round_robin")
    recover(strategy, tmp_path, every_steps=1000)
    model = counters(strategy)
    fit(model, steps=SAVED)
    (loss,) = lose(strategy, [1])
    lost = SAVED - WORKERS * WARM_UP
    assert f"{lost} updates lost" in str(loss)
    assert model.counts() == [WARM_UP + lost, WARM_UP]
