from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.accuracy import NEVER_S, ends_s, goal_s, goal_text
from benchmarks.consistency import Consistency
from benchmarks.mode_comparison import comparisons, gain, rate
from benchmarks.modes import ALL_MODES, FREE_WORKERS, LOCAL_MODES, SCENARIOS
from benchmarks.results import Case, Results
from benchmarks.slow_input import Delay
from benchmarks.turn import Turn
from tests.unit.benchmarks.outputs import outputs


def run(
    updates_per_s: float,
    *,
    goal_s: float | None = None,
    accuracy: float = 0.86,
    dropped: int = 0,
    gap: int | None = None,
    period_steps: int = 1,
) -> dict[str, Any]:
    """What a chief answers about one training of 10 s."""
    updates = int(10 * updates_per_s)
    sample = {
        "steps": updates + dropped,
        "seconds": 10.0,
        "cpu_seconds": 1.0,
        "other_cpu_seconds": 0.0,
        "group_cpu_seconds": {},
    }
    reached = [] if goal_s is None else [(goal_s, 0.85)]
    return {
        "samples": [sample],
        "curve": [(0.0, 0.1), *reached, (10.0, accuracy)],
        "updates": updates,
        "dropped": dropped,
        "worker_steps": [updates + dropped, 0, 0],
        "staleness_updates": {"0": 1, "2": updates - 2, "16": 1},
        "largest_gap_steps": gap,
        "examples": 64 * updates,
        "bytes_pulled": 3200 * updates // period_steps,
        "bytes_pushed": 3200 * updates // period_steps,
    }


def answer(**scenarios: dict[str, Any]) -> dict[str, Any]:
    return {"scenarios": scenarios, "details": {"fallback_steps": 0}}


def add(results: Results, mode: str, seed: int, found: dict[str, Any]) -> None:
    turn = Turn(title="", name="", case={"mode": mode}, seed=seed)
    Consistency().take(results, turn, found)


@pytest.fixture
def results() -> Results:
    measured = Results()
    for seed in (1, 2, 3):
        late = 0.001 * seed
        add(
            measured,
            "backup",
            seed,
            answer(
                constant=run(18, goal_s=6.0, accuracy=0.87 + 2 * late, dropped=30),
                even=run(20),
                transient=run(9),
            ),
        )
        add(
            measured,
            "asynchronous",
            seed,
            answer(constant=run(44, goal_s=8.0, accuracy=0.86 + late), transient=run(30)),
        )
        add(
            measured,
            "synchronous",
            seed,
            answer(constant=run(4, accuracy=0.8), transient=run(5), even=run(19)),
        )
        add(measured, "adaptive", seed, answer(constant=run(14), transient=run(6), even=run(20)))
        add(measured, "bounded", seed, answer(transient=run(27, gap=4), constant=run(12, gap=4)))
        add(measured, "dynamic", seed, answer(transient=run(24, gap=7), constant=run(12, gap=8)))
        add(measured, "synchronous", seed, answer(free=run(400), counted=run(400)))
        add(measured, "asynchronous", seed, answer(free=run(500), counted=run(500)))
        for mode, row in LOCAL_MODES.items():
            steps = row.arguments["period_steps"]
            add(measured, mode, seed, answer(counted=run(640, period_steps=steps)))
    return measured


def case(results: Results, scenario: str, mode: str) -> Case:
    found = results.find(scenario, mode)
    assert found is not None
    return found


def test_examples_are_those_of_gradients_that_were_applied(results: Results) -> None:
    backup = case(results, "constant", "backup")
    assert rate(backup, "updates").median == 18
    assert Consistency().examples_per_s(backup).median == 64 * 18
    assert rate(backup, "dropped").median == 3


def test_bars_compare_what_was_measured(results: Results) -> None:
    values = [bar.value for bar in comparisons(results)]
    gains = values[5:7]
    assert values[:5] == pytest.approx([0.9, 1.0, 0.7, 0.75, 0.6])
    assert values[7:] == pytest.approx([0.9, 4, 0.8, 7, 0.8, 1 / 16])
    # Differences of 1.1, 1.2 and 1.3 points, and a rising lead over the other.
    assert gains[0] == pytest.approx(1.2 - 4.30265 * 0.1 / 3**0.5, abs=1e-3)
    assert gains[1] is not None
    assert all(bar.holds for bar in comparisons(results))


def test_who_does_not_arrive_is_later_than_who_does(results: Results) -> None:
    plain = case(results, "constant", "synchronous")
    assert set(goal_s(plain).values()) == {NEVER_S}
    assert set(ends_s(plain).values()) == {10.0}
    assert goal_text(plain) == "> 10"
    assert goal_text(case(results, "constant", "backup")) == "6.00"
    other = Results()
    add(other, "backup", 1, answer(constant=run(18)))
    add(other, "asynchronous", 1, answer(constant=run(44)))
    (ratio,) = [bar for bar in comparisons(other) if "time to" in bar.name and "asynch" in bar.name]
    assert ratio.value == pytest.approx(1.0)  # both arrive with their last look


def test_what_was_not_measured_has_no_value() -> None:
    results = Results()
    add(results, "asynchronous", 1, answer(constant=run(44), even=run(55)))
    assert {bar.value for bar in comparisons(results)} == {None}
    assert gain(results, "constant", "asynchronous", "bounded") is None


def test_histograms_curves_and_intervals_are_written(results: Results, tmp_path: Path) -> None:
    written = outputs(Consistency(), results, tmp_path)
    content = written.content
    cases = {(case["scenario"], case["mode"]): case for case in content["cases"]}
    assert len(cases) == 6 + 6 + 3 + 2 + 8
    backup = cases["constant", "backup"]
    assert backup["staleness_updates"] == {"0": 3, "2": 3 * 178, "16": 3}
    assert backup["seconds_to_goal"] == {"1": 6.0, "2": 6.0, "3": 6.0}
    assert backup["final_accuracy_minus"]["asynchronous"]["mean"] == 0.012
    assert cases["constant", "synchronous"]["seconds_to_goal"]["1"] is None
    local = cases["counted", "local_4"]
    assert local["bytes_per_example"]["median"] == 6400 / 64 / 4
    assert local["seconds_to_goal"]["1"] is None  # nobody looked before the end
    assert content["settings"]["seeds"] == [1, 2, 3, 4, 5]
    assert content["settings"]["delays"]["constant"]["slow_factor"] == 5
    assert all(row.title in written.text for row in ALL_MODES.values())


def test_a_turn_for_each_mode_and_fewer_for_local_steps(tmp_path: Path) -> None:
    for repetitions, local in ((5, 3), (1, 1)):
        settings = Consistency(repetitions=repetitions, local_repetitions=3)
        turns = list(settings.plan(tmp_path))
        assert len(turns) == repetitions * (6 + 2) + local * len(LOCAL_MODES)
        seeds = {turn.seed for turn in turns if turn.case["mode"] in LOCAL_MODES}
        assert seeds == set(range(1, local + 1))


def test_local_steps_are_as_stated() -> None:
    made = [row.make() for row in LOCAL_MODES.values()]
    assert [mode.period_steps for mode in made] == [1, 4, 16, 64, 16, 16]
    assert [mode.synchronous for mode in made] == [False] * 4 + [True, False]
    assert [mode.elasticity for mode in made] == [None] * 5 + [0.9 / FREE_WORKERS]


def test_stragglers_are_as_stated() -> None:
    assert SCENARIOS["constant"].delay == Delay(step_s=0.05, slow_worker=0, slow_factor=5)
    assert SCENARIOS["transient"].delay == Delay(
        step_s=0.05, transient_share=0.1, transient_factor=10
    )
    # The servers' largest gap is that of the turn: the scenario with an aim for it comes first.
    assert next(iter(SCENARIOS)) == "transient"
