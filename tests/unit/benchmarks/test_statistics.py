"""Statistics of samples: spreads, intervals, aims, times to a goal, and choices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.accuracy import NEVER_S, ends_s, goal_s, goal_text
from benchmarks.batch_choice import Pair, choose
from benchmarks.categories import FEATURES, TableModel, distinct_rows
from benchmarks.examples import Examples
from benchmarks.exchange import ASYNCHRONOUS, KINDS, Exchange
from benchmarks.interval import Interval, student_quantile
from benchmarks.network_accuracy import end_s
from benchmarks.network_rows import UNLIMITED
from benchmarks.network_steps import difference
from benchmarks.process_tree import between
from benchmarks.results import Bar, Case, Results, Spread
from benchmarks.scaling import Scaling, share_kept
from benchmarks.socket_bytes import TcpBytes
from benchmarks.staleness_counts import mean_staleness, shares, staleness_between
from benchmarks.strategies import seconds_to_goal
from benchmarks.usage import Sample
from benchmarks.workload import EPOCH_STEPS, split
from tests.unit.benchmarks.outputs import chief_result, sample

SPREADS = st.lists(st.floats(0.1, 20.0) | st.just(NEVER_S), min_size=1, max_size=5).map(
    Spread.from_samples
)
PAIRS = st.lists(
    st.builds(
        Pair,
        batch_size=st.sampled_from([16, 32, 64]),
        exchange=st.builds(Exchange, st.sampled_from(KINDS), st.sampled_from([1, 4])),
        goal_s=SPREADS,
        memory_mib=st.lists(st.floats(500, 520), min_size=1, max_size=5).map(Spread.from_samples),
    ),
    max_size=6,
    unique_by=lambda pair: (pair.batch_size, pair.exchange),
)
counts = st.dictionaries(st.integers(0, 30), st.integers(1, 100))
numbers = st.floats(-1, 1)


def test_a_spread_has_the_ends_and_the_middle() -> None:
    assert Spread.from_samples([3.0, 1.0, 10.0]) == Spread(1.0, 3.0, 10.0)
    assert Spread.from_samples([1.0, 2.0]).median == 1.5


@pytest.mark.parametrize(
    ("value", "is_cost", "holds"),
    [(1.49, False, False), (1.5, False, True), (1.5, True, True), (1.51, True, False)],
)
def test_an_aim_is_reached_at_its_value(value: float, is_cost: bool, holds: bool) -> None:
    assert Bar("rate", value, aim=1.5, is_cost=is_cost).holds is holds
    assert Bar("rate", None, aim=1.5, is_cost=is_cost).holds is None


@pytest.mark.parametrize(
    ("degrees", "value"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (30, 2.042)],
)
def test_the_quantiles_are_those_of_the_tables(degrees: int, value: float) -> None:
    assert student_quantile(0.975, degrees) == pytest.approx(value, abs=5e-4)


@given(degrees=st.integers(1, 200))
def test_quantiles_fall_to_the_normal_ones(degrees: int) -> None:
    assert student_quantile(0.975, degrees) > student_quantile(0.975, degrees + 1) > 1.9599


def test_the_interval_is_that_of_the_differences() -> None:
    # Differences 1, 2, 3: a mean of 2 with a standard error of 1 / sqrt(3), two degrees of freedom.
    # Only one of them has the seeds 4 and 5.
    interval = Interval.of_seeds(
        {1: 11.0, 2: 22.0, 3: 33.0, 4: 9.0}, {3: 30.0, 2: 20.0, 1: 10.0, 5: 1.0}
    )
    assert interval is not None
    assert interval.mean == pytest.approx(2.0)
    assert interval.high - interval.mean == pytest.approx(4.30265 / 3**0.5, rel=1e-4)
    assert interval.mean - interval.low == pytest.approx(interval.high - interval.mean)
    assert interval.as_json() == {"mean": 2.0, "low": -0.48414, "high": 4.48414}
    assert Interval.of_seeds({1: 1.0, 2: 2.0}, {1: 1.0}) is None


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=10))
def test_what_is_exchanged_changes_its_sign(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = (dict(enumerate(values)) for values in zip(*pairs, strict=True))
    forth, back = Interval.of_seeds(ours, theirs), Interval.of_seeds(theirs, ours)
    assert forth is not None
    assert back is not None
    assert (forth.mean, forth.low) == pytest.approx((-back.mean, -back.high))
    assert forth.low <= forth.mean <= forth.high


def trainings(*arrive_s: float | None) -> Case:
    """Returns a case with one training of 10 s for each seed."""
    curves = [
        [(0.0, 0.1), *([] if at_s is None else [(at_s, 0.86)]), (10.0, 0.8)] for at_s in arrive_s
    ]
    return Case({}, runs={seed: {"curve": curve} for seed, curve in enumerate(curves, start=1)})


def test_a_training_that_misses_the_goal_is_later_than_all_that_reach_it() -> None:
    case = trainings(4.0, None, 2.0)
    assert goal_s(case) == {1: 4.0, 2: NEVER_S, 3: 2.0}
    assert set(ends_s(case).values()) == {10.0}
    assert goal_text(case) == "4.00"
    assert goal_text(trainings(4.0, None, None)) == "> 10"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5), st.floats(0, 1))
def test_the_goal_is_reached_at_the_end_of_an_epoch(found: list[float], goal: float) -> None:
    run = {"epochs_s": [2.0] * len(found), "accuracies": found}
    reached = [2.0 * (k + 1) for k, accuracy in enumerate(found) if accuracy >= goal]
    assert seconds_to_goal(run, goal) == min(reached, default=None)


def pair(batch_size: int, goal: list[float], memory_mib: list[float]) -> Pair:
    return Pair(
        batch_size,
        Exchange(ASYNCHRONOUS, 4),
        Spread.from_samples(goal),
        Spread.from_samples(memory_mib),
    )


def test_times_within_the_spread_of_the_fastest_are_decided_by_memory() -> None:
    fast, lean = pair(64, [2.0, 2.1, 2.6], [900] * 3), pair(16, [2.2, 2.3, 2.4], [500] * 3)
    assert choose([fast, lean]).pair == lean
    clear = pair(64, [2.0, 2.1, 2.2], [900] * 3)
    assert choose([pair(16, [2.3, 2.4, 2.5], [500] * 3), clear]).pair == clear
    missed = pair(64, [1.0, 1.0, NEVER_S], [500] * 3)
    assert choose([missed, lean]).pair == lean
    assert "none reached 0.85" in choose([missed]).reason


@given(pairs=PAIRS)
def test_the_choice_is_nearly_the_fastest_and_the_order_of_rows_decides_nothing(
    pairs: list[Pair],
) -> None:
    choice = choose(pairs)
    assert choice == choose(pairs[::-1])
    arrived = [each for each in pairs if each.goal_s.maximum < NEVER_S]
    assert (choice.pair is None) == (not arrived)
    if choice.pair is not None:
        fastest = min(arrived, key=lambda each: (each.goal_s.median, each.memory_mib.median))
        assert choice.pair in arrived
        assert choice.pair.goal_s.median <= fastest.goal_s.maximum
        assert choice.pair.memory_mib.median <= fastest.memory_mib.median


def test_links_take_as_long_as_the_bytes_of_a_worker_need() -> None:
    run = {"curve": [(1.0, 0.5), (3.0, 0.9)], "bytes": [1_000_000, 5_000_000]}
    # Two workers share five megabytes: 20 million bits each.
    assert end_s(run, 100) == pytest.approx(3.2)
    assert end_s(run, 1000, point=0) == pytest.approx(1.004)
    assert end_s(run, UNLIMITED) == 3.0


def test_the_longer_epoch_leaves_joining_out() -> None:
    short, long = Sample(10, 3.0, 2.0, 1.0), Sample(20, 5.0, 3.0, 1.5)
    assert difference(short, long) == Sample(10, 2.0, 1.0, 0.5)
    # Noise of a busy machine: no rate is better than one of seconds below zero.
    assert difference(short, Sample(20, 2.8, 3.0, 1.5)) == Sample(10, 1.4, 1.5, 0.75)


def test_bytes_are_those_between_two_moments() -> None:
    looks = [(0.0, TcpBytes(0, 0)), (10.0, TcpBytes(100, 1000)), (20.0, TcpBytes(100, 3000))]
    assert between(looks, 5.0, 15.0) == (50, 1500)
    assert between(looks, 0.0, 99.0) == (100, 3000)


def test_the_share_is_of_what_the_workers_would_do_alone() -> None:
    results = Results()
    for workers, rate in ((16, 288), (1, 20)):
        results.add(chief_result(sample(rate, ps=0.6)), workers=workers, ps=2)
    one, many = Scaling().cases(results)
    assert share_kept(results, one) == pytest.approx(1.0)
    assert share_kept(results, many) == pytest.approx(288 / 320)


@given(before=counts, meanwhile=counts)
def test_staleness_between_two_looks_is_what_was_added(
    before: dict[int, int], meanwhile: dict[int, int]
) -> None:
    after = {value: before.get(value, 0) + meanwhile.get(value, 0) for value in before | meanwhile}
    stats: list[Any] = [
        SimpleNamespace(gradient_staleness_updates=each) for each in (before, after)
    ]
    assert staleness_between(*stats) == dict(sorted(meanwhile.items()))
    total = sum(shares(meanwhile, most=9).values())
    assert total == pytest.approx(1.0 if meanwhile else 0.0)


def test_the_mean_staleness_is_over_gradients() -> None:
    assert mean_staleness({1: 3, 5: 1}) == 2.0
    assert mean_staleness({}) == 0.0


def test_rows_of_a_batch_count_once() -> None:
    inputs = np.tile(np.arange(FEATURES, dtype=np.int32) * 10, (4, 1))
    inputs[0, 0] = 1
    examples = Examples(inputs, np.zeros([4, 1], np.float32), batch_size=2)
    assert distinct_rows(examples, TableModel(1, rows=10)) == FEATURES + 0.5


@given(steps=st.integers(1, 200).map(lambda units: 100 * units))
def test_a_stretch_is_split_into_epochs_that_cut_no_execution_short(steps: int) -> None:
    rounds, epoch_steps = split(steps)
    assert epoch_steps % 100 == 0
    assert epoch_steps <= EPOCH_STEPS
    assert steps <= rounds * epoch_steps < steps + EPOCH_STEPS
