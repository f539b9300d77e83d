from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console

from tfps.bench.batch.benchmark import Batch
from tfps.bench.batch.choice import Pair, choose
from tfps.bench.batch.plot import write_plot
from tfps.bench.batch.results import BatchResults
from tfps.bench.batch.table import tables
from tfps.bench.batch.turn import Rate
from tfps.bench.goal import NEVER_S
from tfps.bench.report import Spread

SPREADS = st.lists(st.one_of(st.floats(0.1, 20.0), st.just(NEVER_S)), min_size=1, max_size=5).map(
    Spread.of
)
PAIRS = st.lists(
    st.builds(
        Pair,
        batch_size=st.sampled_from([16, 32, 64]),
        period_steps=st.sampled_from([1, 4]),
        goal_s=SPREADS,
        memory_mib=st.lists(st.floats(500, 520), min_size=1, max_size=5).map(Spread.of),
    ),
    max_size=6,
    unique_by=lambda pair: (pair.batch_size, pair.period_steps),
)


def pair(batch_size: int, goal_s: list[float], memory_mib: list[float]) -> Pair:
    return Pair(batch_size, 4, Spread.of(goal_s), Spread.of(memory_mib))


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


def answer(batch_size: int, steps_per_s: float, goal_s: float | None, seed: int) -> dict[str, Any]:
    """What a chief answers about one training of 10 s."""
    steps = int(10 * (steps_per_s + seed))
    sample = {
        "steps": steps,
        "seconds": 10.0,
        "cpu_seconds": 1.0,
        "other_cpu_seconds": 0.0,
        "group_cpu_seconds": {},
    }
    reached = [] if goal_s is None else [(goal_s + 0.1 * seed, 0.86)]
    return {
        "learning_rate": 1e-3 * (batch_size / 64) ** 0.5,
        "samples": [sample],
        "curve": [(0.0, 0.1), *reached, (10.0, 0.84)],
        "memory_mib": 512.3 + batch_size / 16,
        "details": {"fallback_steps": 0, "carriers": ["direct"]},
    }


@pytest.fixture
def results() -> BatchResults:
    measured = BatchResults(usual=(64, 1))
    for seed in (1, 2, 3):
        for batch_size, goal_s in ((16, 6.0), (64, 4.0), (256, None)):
            for steps in (1, 4, 16):
                rate = 32000 / batch_size * (1 + steps / 10)
                later_s = None if goal_s is None else goal_s - steps / 8
                measured.add(batch_size, steps, seed, answer(batch_size, rate, later_s, seed))
    return measured


def test_bars_compare_with_what_is_usual(results: BatchResults) -> None:
    gain, speed = results.bars()
    assert gain.value == pytest.approx((4.0 - 2.0 + 0.2) / (4.0 - 0.125 + 0.2))
    assert speed.value == pytest.approx(2.6 / 1.1, rel=1e-2)
    assert gain.holds
    assert speed.holds
    alone = BatchResults(usual=(64, 1))
    alone.add(16, 4, 1, answer(16, 100, None, 1))
    assert [bar.value for bar in alone.bars()] == [None, None]


def test_the_report_holds_every_training_and_the_choice(
    results: BatchResults, tmp_path: Path
) -> None:
    content = json.loads(results.report(Batch().as_json()).write(tmp_path).read_text())
    assert len(content["cases"]) == 9
    assert (content["choice"]["batch_size"], content["choice"]["period_steps"]) == (64, 16)
    (chosen,) = [case for case in content["cases"] if case["is_chosen"]]
    assert chosen["seconds_to_goal"] == {"1": 2.1, "2": 2.2, "3": 2.3}
    assert chosen["memory_mib"]["median"] == 516.3
    assert content["cases"][2]["seconds_to_goal"] == {"1": None, "2": None, "3": None}
    assert content["settings"]["rate"]["rule"] == "square_root"
    assert content["settings"]["seeds"] == [1, 2, 3]


def test_the_tables_fit_an_ordinary_terminal_and_name_the_pair(results: BatchResults) -> None:
    output = io.StringIO()
    Console(file=output, width=80).print(tables(results))
    text = output.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "Take batch 64, 16 local steps: 2.20 s to 0.85" in " ".join(text.split())
    assert text.count("<-") == 1
    assert text.count("> 10, 0 of 3") == 3


@pytest.mark.parametrize("arrives", [True, False])
def test_the_plot_is_a_picture(results: BatchResults, tmp_path: Path, arrives: bool) -> None:
    if not arrives:
        results = BatchResults(usual=(64, 1))
        results.add(64, 1, 1, answer(64, 100, None, 1))
    with Image.open(write_plot(results, tmp_path / "batch.png")) as picture:
        assert picture.width > 1000
        assert len(picture.convert("RGB").getcolors(maxcolors=2**24) or []) > 10


def test_the_learning_rate_follows_the_batch() -> None:
    assert float(Rate().scaled(256)(0)) == pytest.approx(2e-3)
    assert float(Rate(rule="linear").scaled(256)(0)) == pytest.approx(4e-3)
    assert float(Rate().scaled(64)(0)) == pytest.approx(1e-3)


def test_a_turn_for_each_pair_and_seed() -> None:
    assert Batch().turns == 3 * 5 * 3
    assert Batch().quick().turns == 4
