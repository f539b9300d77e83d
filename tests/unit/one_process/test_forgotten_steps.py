"""A server that is lost when all steps are done, and before the chief has looked at them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import keras
import pytest

import tfps
from tests.cluster.counting import UnitGradients, Visits, mean_output, numbered
from tests.unit.one_process.lost_servers import lose, recover, saver
from tfps.recovery.servers.server_loss import ServerLoss
from tfps.training.report import step_rate
from tfps.training.run.ticket_run import TicketRun

EXAMPLES, BATCH = 24, 2
STEPS = EXAMPLES // BATCH
HOUR_S = 3600.0


@pytest.mark.rare
@pytest.mark.quick("the ticket server")
@pytest.mark.parametrize("servers", [[0], [0, 1]], ids=["the ticket server", "all"])
def test_steps_that_nobody_has_seen_are_taken_once_more(
    servers: list[int],
    make_strategy: Callable[..., tfps.ParameterServerStrategy],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for period in ("SAMPLE_PERIOD_S", "LONGEST_SAMPLE_PERIOD_S"):
        monkeypatch.setattr(step_rate, period, HOUR_S)
    strategy = make_strategy(placement="round_robin")
    recover(strategy, tmp_path, every_steps=None)
    with strategy.scope():
        visits = Visits(EXAMPLES)
        model = keras.Sequential([keras.Input((4,)), UnitGradients()])
        model.compile(keras.optimizers.SGD(-1.0), mean_output, metrics=[visits])
    x, labels = numbered(EXAMPLES)
    manager = saver(strategy, model, tmp_path)
    model.fit(x, labels, batch_size=BATCH, verbose=0)
    manager.save(background=False)
    sample = TicketRun.sample
    lost: list[ServerLoss] = []

    def sample_of_a_slow_chief(run: TicketRun) -> None:
        if run.dispatch.ended and not lost:
            lost.extend(lose(strategy, servers))
        sample(run)

    monkeypatch.setattr(TicketRun, "sample", sample_of_a_slow_chief)
    model.fit(x, labels, batch_size=BATCH, verbose=0)
    assert [loss.server for loss in lost] == servers
    assert visits.counts() == [1] * EXAMPLES
    assert strategy.stats().examples_seen == 2 * EXAMPLES
