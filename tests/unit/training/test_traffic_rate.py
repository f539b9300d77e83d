"""How often servers are asked for the bytes of a run, and what follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfps.consistency.ledger import LedgerLayout
from tfps.training.report.traffic_rate import TrafficRate

LAYOUT = LedgerLayout(1)


class CountedServer:
    """A server whose workers send 1,000 bytes and get 3,000 between two questions."""

    def __init__(self) -> None:
        self.layout, self.lost, self.is_responding = LAYOUT, None, True
        self.asked = 0

    def cells(self, *, patience_s: float) -> np.ndarray[Any, Any]:
        assert patience_s == 0.0  # the rate does not wait for a reply
        if not self.is_responding:
            raise tf.errors.UnavailableError(None, None, "it does not respond")
        self.asked += 1
        cells = np.array(LAYOUT.make_blank_cells())
        cells[LAYOUT.BYTES_RECEIVED] = 1000 * self.asked
        cells[LAYOUT.BYTES_SENT] = 3000 * self.asked
        cells[LAYOUT.VERSION] = 2 * self.asked
        return cells


class CountedRuntime:
    def __init__(self) -> None:
        self.servers = [CountedServer(), CountedServer()]
        self.ticket_server = self.servers[0]


@pytest.fixture
def runtime() -> Any:
    return CountedRuntime()


def test_servers_are_asked_once_a_second(runtime: Any) -> None:
    rate = TrafficRate(runtime)
    for steps, now_s in ((0, 0.0), (5, 10.0), (6, 10.5), (9, 11.0)):
        rate.sample(steps, now_s=now_s)
        assert (rate.rates_by_server is None) == (now_s < 11.0)
    assert [server.asked for server in runtime.servers] == [2, 2]
    assert rate.rates_by_server == [(1000.0, 3000.0, 2.0)] * 2


def test_the_end_of_a_short_epoch_is_sampled_sooner(runtime: Any) -> None:
    rate = TrafficRate(runtime)
    for steps, now_s, is_last in ((5, 10.0, False), (9, 10.25, True), (9, 10.5, True)):
        rate.sample(steps, now_s=now_s, is_last=is_last)
    assert runtime.servers[0].asked == 2  # the third says nothing new
    assert rate.rates_by_server == [(4000.0, 12000.0, 8.0)] * 2


def test_a_moment_has_no_rate(runtime: Any) -> None:
    rate = TrafficRate(runtime)
    for steps, now_s in ((5, 20.0), (9, 20.01)):
        rate.sample(steps, now_s=now_s, is_last=True)
    assert rate.rates_by_server is None


def test_a_server_that_is_away_is_not_waited_for(runtime: Any) -> None:
    rate = TrafficRate(runtime)
    rate.sample(1, now_s=0.0)
    runtime.servers[1].is_responding = False
    rate.sample(2, now_s=5.0)
    assert rate.rates_by_server is None
    runtime.servers[1].is_responding, runtime.servers[1].lost = True, "killed"
    rate.sample(3, now_s=10.0)
    assert runtime.servers[1].asked == 1
    runtime.servers[1].lost = None
    rate.sample(4, now_s=20.0)
    assert rate.rates_by_server is not None
