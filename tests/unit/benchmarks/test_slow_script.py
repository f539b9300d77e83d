from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.slow_script import longest_rest_s, pace, parse_steps

moments = st.lists(st.integers(1, 10_000_000), unique=True, max_size=20)


@given(st.dictionaries(st.integers(1, 99), moments.filter(bool), max_size=4))
def test_steps_are_told_by_the_names_of_files(steps: dict[int, list[int]]) -> None:
    names = [f"step-{process}-{at}" for process, times in steps.items() for at in times]
    found = parse_steps([*names, "slow-3", "other"])
    assert found == {process: sorted(at / 1e6 for at in times) for process, times in steps.items()}


def test_a_pace_is_that_of_the_window() -> None:
    steps = {1: [0.0, 1.0, 1.5, 2.0], 2: [1.0, 3.0]}
    assert pace(steps, 1.0, 2.0, spare=0) == 3


def test_with_a_spare_worker_what_is_dropped_does_not_count() -> None:
    # Four rounds of three workers, of which one only takes part in one; two are waited for.
    steps = {1: [0.1, 0.3, 0.5, 0.7], 2: [0.1, 0.3, 0.5, 0.7], 3: [0.2]}
    assert pace(steps, 0.0, 1.0, spare=1) == 8
    assert pace(steps, 0.0, 1.0, spare=0) == 9


@given(moments, moments)
def test_nobody_rests_longer_than_a_rest(first: list[int], second: list[int]) -> None:
    steps = {1: [float(at) for at in first], 2: [float(at) for at in second]}
    rest = longest_rest_s(steps, 0.0, 10_000_001.0)
    times = sorted({0.0, *steps[1], *steps[2], 10_000_001.0})
    assert rest == max(b - a for a, b in itertools.pairwise(times))
