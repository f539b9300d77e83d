from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

from tfps.bench.consistency.benchmark import Consistency
from tfps.bench.consistency.modes import ALL_MODES, LOCAL_MODES
from tfps.bench.consistency.plot import write_plot
from tfps.bench.consistency.results import ConsistencyCase, ConsistencyResults
from tfps.bench.consistency.scenarios import FREE_WORKERS, SCENARIOS
from tfps.bench.consistency.table import tables
from tfps.bench.delay import Delay
from tfps.bench.goal import NEVER_S


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


@pytest.fixture
def results() -> ConsistencyResults:
    measured = ConsistencyResults(batch_size=64)
    for seed in (1, 2, 3):
        late = 0.001 * seed
        measured.add(
            "backup",
            seed,
            answer(
                constant=run(18, goal_s=6.0, accuracy=0.87 + 2 * late, dropped=30),
                even=run(20),
                transient=run(9),
            ),
        )
        measured.add(
            "asynchronous",
            seed,
            answer(constant=run(44, goal_s=8.0, accuracy=0.86 + late), transient=run(30)),
        )
        measured.add(
            "synchronous",
            seed,
            answer(constant=run(4, accuracy=0.8), transient=run(5), even=run(19)),
        )
        measured.add("adaptive", seed, answer(constant=run(14), transient=run(6), even=run(20)))
        measured.add("bounded", seed, answer(transient=run(27, gap=4), constant=run(12, gap=4)))
        measured.add("dynamic", seed, answer(transient=run(24, gap=7), constant=run(12, gap=8)))
        measured.add("synchronous", seed, answer(free=run(400), counted=run(400)))
        measured.add("asynchronous", seed, answer(free=run(500), counted=run(500)))
        for mode, row in LOCAL_MODES.items():
            steps = row.arguments["period_steps"]
            measured.add(mode, seed, answer(counted=run(640, period_steps=steps)))
    return measured


def case(results: ConsistencyResults, scenario: str, mode: str) -> ConsistencyCase:
    (found,) = [case for case in results.of_scenario(scenario) if case.mode == mode]
    return found


def test_examples_are_those_of_gradients_that_were_applied(results: ConsistencyResults) -> None:
    backup = case(results, "constant", "backup")
    assert backup.per_second("updates").median == 18
    assert backup.examples_per_s.median == 64 * 18
    assert backup.per_second("dropped").median == 3


def test_bars_compare_what_was_measured(results: ConsistencyResults) -> None:
    values = [bar.value for bar in results.bars()]
    gains = values[5:7]
    assert values[:5] == pytest.approx([0.9, 1.0, 0.7, 0.75, 0.6])
    assert values[7:] == pytest.approx([0.9, 4, 0.8, 7, 0.8, 1 / 16])
    # Differences of 1.1, 1.2 and 1.3 points, and a rising lead over the other.
    assert gains[0] == pytest.approx(1.2 - 4.30265 * 0.1 / 3**0.5, abs=1e-3)
    assert gains[1] is not None
    assert all(bar.holds for bar in results.bars())


def test_who_does_not_arrive_is_later_than_who_does(results: ConsistencyResults) -> None:
    plain = case(results, "constant", "synchronous")
    assert set(plain.goal_s.values()) == {NEVER_S}
    assert set(plain.ends_s.values()) == {10.0}
    other = ConsistencyResults(batch_size=64)
    other.add("backup", 1, answer(constant=run(18)))
    other.add("asynchronous", 1, answer(constant=run(44)))
    (ratio,) = [bar for bar in other.bars() if "time to" in bar.name and "asynch" in bar.name]
    assert ratio.value == pytest.approx(1.0)  # both arrive with their last look


def test_what_was_not_measured_has_no_value() -> None:
    results = ConsistencyResults(batch_size=64)
    results.add("asynchronous", 1, answer(constant=run(44), even=run(55)))
    assert {bar.value for bar in results.bars()} == {None}
    assert results.gain("constant", "asynchronous", "bounded") is None


def test_the_report_holds_histograms_curves_and_intervals(
    results: ConsistencyResults, tmp_path: Path
) -> None:
    content = json.loads(results.report(Consistency().as_json()).write(tmp_path).read_text())
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


def test_the_tables_fit_an_ordinary_terminal(results: ConsistencyResults) -> None:
    output = io.StringIO()
    Console(file=output, width=80).print(tables(results))
    text = output.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for row in ALL_MODES.values():
        assert row.title in text


def test_the_plot_is_a_picture(results: ConsistencyResults, tmp_path: Path) -> None:
    with Image.open(write_plot(results, tmp_path / "consistency.png")) as picture:
        assert picture.width > 1000
        assert len(picture.convert("RGB").getcolors(maxcolors=2**24) or []) > 10


def test_a_turn_for_each_mode_and_fewer_for_local_steps() -> None:
    settings = Consistency(repetitions=5, local_repetitions=3)
    assert settings.turns == 5 * (6 + 2) + 3 * len(LOCAL_MODES)
    assert settings.local_seeds == [1, 2, 3]
    assert Consistency(repetitions=1).local_seeds == [1]
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
