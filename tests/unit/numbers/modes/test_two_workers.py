"""Two workers that wait for each other, or begin by themselves, give means of one process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tfps
from tests.unit.numbers.modes.two_workers import (
    WARM_UP_STEPS,
    assert_all_go_on_from_the_mean,
    assert_gradients_are_averaged,
    assert_weights_are_averaged,
)
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def pair(cluster: Callable[..., InProcessCluster]) -> InProcessCluster:
    return cluster(workers=2, ps=2)


def test_a_round_is_the_mean_of_two_gradients(pair: InProcessCluster) -> None:
    assert_gradients_are_averaged(pair, rounds=20)


@pytest.mark.slow
def test_a_meeting_is_the_mean_of_two_periods(pair: InProcessCluster) -> None:
    assert_weights_are_averaged(pair, period=4)


@pytest.mark.rare
def test_all_go_on_from_the_mean_of_a_warm_up(pair: InProcessCluster) -> None:
    mode = tfps.Synchronous(warm_up_steps=WARM_UP_STEPS)
    assert_all_go_on_from_the_mean(pair, mode, rounds=6)
