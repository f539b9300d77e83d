from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfps
from benchmarks.accuracy import NEVER_S
from benchmarks.batch import Batch
from benchmarks.batch_choice import Pair, choose
from benchmarks.exchange import ASYNCHRONOUS, ELASTIC, KINDS, SYNCHRONOUS, Exchange, exchanges
from benchmarks.results import Results, Spread
from tests.unit.benchmarks.outputs import answer, outputs, sample

SPREADS = st.lists(st.one_of(st.floats(0.1, 20.0), st.just(NEVER_S)), min_size=1, max_size=5).map(
    Spread.of
)
PAIRS = st.lists(
    st.builds(
        Pair,
        batch_size=st.sampled_from([16, 32, 64]),
        exchange=st.builds(Exchange, st.sampled_from(KINDS), st.sampled_from([1, 4])),
        goal_s=SPREADS,
        memory_mib=st.lists(st.floats(500, 520), min_size=1, max_size=5).map(Spread.of),
    ),
    max_size=6,
    unique_by=lambda pair: (pair.batch_size, pair.exchange),
)


def pair(batch_size: int, goal_s: list[float], memory_mib: list[float]) -> Pair:
    return Pair(batch_size, Exchange(ASYNCHRONOUS, 4), Spread.of(goal_s), Spread.of(memory_mib))


def test_a_clear_lead_wins_whatever_the_memory() -> None:
    fast, lean = pair(64, [2.0, 2.1, 2.2], [900] * 3), pair(16, [2.3, 2.4, 2.5], [500] * 3)
    choice = choose([lean, fast])
    assert choice.pair == fast
    assert choice.reason == "2.10 s to 0.85, the shortest beyond noise"


def test_times_within_the_spread_of_the_fastest_are_decided_by_memory() -> None:
    fast, lean = pair(64, [2.0, 2.1, 2.6], [900] * 3), pair(16, [2.2, 2.3, 2.4], [500] * 3)
    choice = choose([fast, lean])
    assert choice.pair == lean
    assert choice.reason == (
        "2.30 s to 0.85, within the spread of the fastest (batch 64, 4 local steps), with 400 MiB "
        "less per worker"
    )


def test_memory_within_noise_decides_nothing() -> None:
    fast, other = pair(64, [2.0, 2.1, 2.6], [502, 503, 504]), pair(16, [2.3] * 3, [500, 502, 506])
    choice = choose([fast, other])
    assert choice.pair == fast
    assert choice.reason.endswith("1 within its spread, none with clearly less memory")


def test_a_single_training_each_says_nothing_of_noise() -> None:
    choice = choose([pair(64, [2.0], [900]), pair(16, [3.0], [500])])
    assert choice.reason == "2.00 s to 0.85, the shortest; without a spread, noise is not known"


def test_who_misses_the_accuracy_once_is_left_out() -> None:
    missed, slow = pair(64, [1.0, 1.0, NEVER_S], [500] * 3), pair(16, [9.0] * 3, [900] * 3)
    assert choose([missed, slow]).pair == slow
    nothing = choose([missed])
    assert nothing.pair is None
    assert "none reached 0.85" in nothing.reason


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


def add(
    results: Results,
    batch_size: int,
    period_steps: int,
    seed: int,
    *,
    steps_per_s: float,
    arrives_s: float | None,
    kind: str = ASYNCHRONOUS,
) -> None:
    """What a chief answers about one training of 10 s."""
    epoch = sample(steps_per_s + seed, steps=int(10 * (steps_per_s + seed)))
    reached = [] if arrives_s is None else [(arrives_s + 0.1 * seed, 0.86)]
    measured = {
        **answer(epoch),
        "learning_rate": 1e-3 * (batch_size / 64) ** 0.5,
        "curve": [(0.0, 0.1), *reached, (10.0, 0.84)],
        "memory_mib": 512.3 + batch_size / 16,
        "examples": 1000,
        "bytes_pulled": 8000 // period_steps,
        "bytes_pushed": 8000 // period_steps,
    }
    axes = {"batch_size": batch_size, "kind": kind, "period_steps": period_steps}
    results.add(measured, seed=seed, **axes)


@pytest.fixture
def results() -> Results:
    measured = Results()
    for seed in (1, 2, 3):
        for batch_size, arrives_s in ((16, 6.0), (64, 4.0), (256, None)):
            for steps in (1, 4, 16):
                rate = 32000 / batch_size * (1 + steps / 10)
                later_s = None if arrives_s is None else arrives_s - steps / 8
                add(measured, batch_size, steps, seed, steps_per_s=rate, arrives_s=later_s)
    return measured


def test_bars_compare_with_what_is_usual(results: Results) -> None:
    gain, speed = Batch().bars(results)
    assert gain.value == pytest.approx((4.0 - 2.0 + 0.2) / (4.0 - 0.125 + 0.2))
    assert speed.value == pytest.approx(2.6 / 1.1, rel=1e-2)
    assert gain.holds
    assert speed.holds
    alone = Results()
    add(alone, 16, 4, 1, steps_per_s=100, arrives_s=None)
    assert [bar.value for bar in Batch().bars(alone)] == [None, None]


def test_every_training_and_the_choice_are_written(results: Results, tmp_path: Path) -> None:
    written = outputs(Batch(), results, tmp_path)
    content, text = written.content, written.text
    assert len(content["cases"]) == 9
    assert (content["choice"]["batch_size"], content["choice"]["period_steps"]) == (64, 16)
    (chosen,) = [case for case in content["cases"] if case["is_chosen"]]
    assert chosen["seconds_to_goal"] == {"1": 2.1, "2": 2.2, "3": 2.3}
    assert chosen["memory_mib"]["median"] == 516.3
    assert content["cases"][2]["seconds_to_goal"] == {"1": None, "2": None, "3": None}
    rate = {"base": 1e-3, "base_batch_size": 64, "rule": "square_root"}
    assert content["settings"]["rate"] == rate
    assert content["settings"]["seeds"] == [1, 2, 3]
    assert [case["bytes_per_example"]["median"] for case in content["cases"][::3]] == [16, 4, 1]
    assert "Take batch 64, 16 local steps: 2.20 s to 0.85" in " ".join(text.split())
    assert text.count("<-") == 1
    assert text.count("> 10, 0 of 3") == 3


def test_where_nobody_arrives_no_pair_is_taken(tmp_path: Path) -> None:
    results = Results()
    add(results, 64, 1, 1, steps_per_s=100, arrives_s=None)
    written = outputs(Batch(), results, tmp_path)
    assert written.content["choice"]["batch_size"] is None
    assert "Take no pair: none reached 0.85" in written.text


def test_the_learning_rate_follows_the_batch() -> None:
    assert float(Batch().rate(256)(0)) == pytest.approx(2e-3)
    assert float(Batch(rule="linear").rate(256)(0)) == pytest.approx(4e-3)
    assert float(Batch().rate(64)(0)) == pytest.approx(1e-3)


def test_exchanges_of_one_kind_stand_together(results: Results, tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        for kind, steps in ((ELASTIC, 16), (SYNCHRONOUS, 16), (SYNCHRONOUS, 1)):
            add(results, 64, steps, seed, steps_per_s=500, arrives_s=0.5, kind=kind)
    written = outputs(Batch(), results, tmp_path)
    found = [(case["kind"], case["period_steps"]) for case in written.content["cases"]]
    wanted = [*[(ASYNCHRONOUS, steps) for steps in (1, 4, 16) for _ in range(3)]]
    assert found == [*wanted, (SYNCHRONOUS, 1), (SYNCHRONOUS, 16), (ELASTIC, 16)]
    assert written.content["choice"]["kind"] in (SYNCHRONOUS, ELASTIC)
    assert "16 local steps, synchronous" in written.text


def test_an_exchange_is_a_mode() -> None:
    modes = [exchange.mode(workers=2) for exchange in exchanges(KINDS, [1, 16])]
    assert modes == [
        tfps.Asynchronous(),
        tfps.LocalSteps(16),
        tfps.Synchronous(),
        tfps.LocalSteps(16, synchronous=True),
        tfps.LocalSteps(16, elasticity=0.45),
    ]
    assert exchanges([ELASTIC], [1]) == []
