from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfps.bench.delay import Delay

CONSTANT = Delay(step_s=0.05, slow_worker=2, slow_factor=5)
TRANSIENT = Delay(step_s=0.05, transient_share=0.1, transient_factor=10)
delays = st.builds(
    Delay,
    step_s=st.floats(0.001, 1),
    slow_worker=st.none() | st.integers(0, 3),
    slow_factor=st.floats(1, 20),
    transient_share=st.floats(0, 1),
    transient_factor=st.floats(1, 20),
    spread=st.floats(0, 0.9),
)
seeds = st.integers(0, 2**31 - 1)


def test_one_worker_is_slow_all_the_time() -> None:
    lengths = [set(CONSTANT.durations_s(seed=1, worker=worker, steps=50)) for worker in range(3)]
    assert lengths == [{0.05}, {0.05}, {0.25}]


def test_each_worker_is_slow_at_times_of_its_own() -> None:
    drawn = [TRANSIENT.durations_s(seed=1, worker=worker, steps=4000) for worker in range(3)]
    for durations_s in drawn:
        assert set(durations_s) == {0.05, 0.5}
        assert np.mean(durations_s == 0.5) == pytest.approx(0.1, abs=0.02)
    assert not np.array_equal(drawn[0], drawn[1])
    again = TRANSIENT.durations_s(seed=2, worker=0, steps=4000)
    assert not np.array_equal(drawn[0], again)


def test_a_spread_lies_evenly_around_the_length() -> None:
    spread = Delay(step_s=0.1, spread=0.3).durations_s(seed=3, worker=1, steps=4000)
    assert spread.min() >= 0.07
    assert spread.max() <= 0.13
    assert spread.mean() == pytest.approx(0.1, rel=0.02)


@given(delay=delays, seed=seeds, worker=st.integers(0, 20), steps=st.integers(1, 40))
def test_a_length_depends_on_the_seed_the_worker_and_the_step_alone(
    delay: Delay, seed: int, worker: int, steps: int
) -> None:
    more = delay.durations_s(seed=seed, worker=worker, steps=steps + 7)
    assert np.array_equal(more[:steps], delay.durations_s(seed=seed, worker=worker, steps=steps))
    assert (more > 0).all()


@given(delay=delays, seed=seeds, worker=st.integers(0, 3))
def test_the_moments_do_not_depend_on_who_is_slow(delay: Delay, seed: int, worker: int) -> None:
    even = replace(delay, slow_factor=1.0)
    factor = delay.slow_factor if worker == delay.slow_worker else 1.0
    ours, theirs = (d.durations_s(seed=seed, worker=worker, steps=20) for d in (delay, even))
    assert np.allclose(ours, factor * theirs)
