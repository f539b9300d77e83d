from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import pytest

from benchmarks.contestant_runs import (
    SYNCHRONOUS,
    TUNING_SEED,
    helps,
    learning_rate,
    minus_plain,
    minus_synchronous,
    nearest,
)
from benchmarks.contestants import BASES, CONTESTANTS
from benchmarks.results import Case, Results
from benchmarks.staleness import FORCED, SLOW, Staleness, by_base
from benchmarks.turn import Turn
from tests.unit.benchmarks.outputs import outputs

SGD = by_base(list(CONTESTANTS))["sgd"]


def add(results: Results, scenario: str, *trainings: dict[str, Any]) -> None:
    turn = Turn(title="", name="", case={"scenario": scenario})
    Staleness().take(results, turn, trainings)


def case(results: Results, scenario: str, name: str) -> Case:
    found = results.find(scenario, name)
    assert found is not None
    return found


def training(name: str, rate: float, seed: int, accuracy: float) -> dict[str, Any]:
    """What a chief answers about one training of 100 updates."""
    return {
        "contestant": name,
        "learning_rate": rate,
        "seed": seed,
        "validation_accuracy": accuracy,
        "test_accuracy": accuracy - 0.01,
        "staleness_updates": {"0": 5, "16": 85, "20": 10},
    }


@pytest.fixture
def results() -> Results:
    measured = Results()
    for scenario, names in ((SYNCHRONOUS, BASES), (FORCED, CONTESTANTS), (SLOW, CONTESTANTS)):
        for name in names:
            for position, rate in enumerate(BASES[CONTESTANTS[name].base].rates):
                accuracy = 0.8 - 0.01 * abs(position - 2)
                add(measured, scenario, training(name, rate, TUNING_SEED, accuracy))
        gains = {"sgd_inverse": 0.02, "sgd_exponential": -0.02, "adam_inverse": 0.0}
        if scenario == SYNCHRONOUS:
            gains = dict.fromkeys(BASES, 0.05)
        for seed in (1, 2, 3):
            for name in names:
                accuracy = 0.8 + gains.get(name, 0.0) + 0.001 * seed * len(name)
                add(measured, scenario, training(name, 0.1, seed, accuracy))
    return measured


def test_every_contestant_is_compared_with_a_plain_one_on_its_grid() -> None:
    assert {contestant.base for contestant in CONTESTANTS.values()} == set(BASES)
    for base, grid in BASES.items():
        assert CONTESTANTS[base].wrap is None
        assert list(grid.rates) == sorted(set(grid.rates))
    for contestant in CONTESTANTS.values():
        optimizer = contestant.make(0.125)
        assert float(optimizer.learning_rate) == 0.125
        plain = getattr(optimizer, "inner_optimizer", optimizer)
        kind = getattr(keras.optimizers, BASES[contestant.base].kind)
        assert isinstance(plain, kind)
        for name, value in BASES[contestant.base].arguments.items():
            assert getattr(plain, name) == value


def test_no_learning_rate_is_chosen_for_a_seed_that_is_compared() -> None:
    assert TUNING_SEED not in Staleness().seeds


def test_a_quick_run_tries_the_middle_of_the_grid(tmp_path: Path) -> None:
    quick = Staleness().quick()
    assert list(by_base(quick.contestants)) == ["sgd"]
    assert quick.rates_of("sgd") == BASES["sgd"].rates[2:4]
    assert Staleness().rates_of("sgd") == BASES["sgd"].rates
    assert [len(list(each.plan(tmp_path))) for each in (quick, Staleness())] == [3, 12]


def test_gradients_lack_what_the_scenario_says() -> None:
    forced, slow = (Staleness().scenarios[name] for name in (FORCED, SLOW))
    assert forced.order(pushes=40, seed=1) == [*range(17), *range(17), *range(6)]
    order = slow.order(pushes=700, seed=1)
    # Seven workers that are five times as fast as the eighth.
    assert pytest.approx(order.count(0), abs=3) == 700 / 36


def test_the_best_rate_is_that_of_the_held_out_images(results: Results) -> None:
    forced = case(results, FORCED, "sgd")
    assert learning_rate(forced) == BASES["sgd"].rates[2]
    assert not Staleness().is_at_edge(forced)
    add(results, FORCED, training("sgd", 0.003, TUNING_SEED, 0.9))
    assert learning_rate(forced) == 0.003
    assert Staleness().is_at_edge(forced)
    assert learning_rate(case(results, SLOW, "sgd")) == BASES["sgd"].rates[2]


def test_who_helps_ends_better_with_confidence(results: Results) -> None:
    # The lead of the one with s + 1 is as large, but varies too much from seed to seed.
    helpful = [name for name in SGD if helps(results, case(results, FORCED, name))]
    assert helpful == ["sgd_inverse"]
    assert minus_plain(results, case(results, FORCED, "sgd")) is None
    better = minus_plain(results, case(results, FORCED, "sgd_inverse"))
    assert better is not None
    assert better.mean == pytest.approx(0.02 + 0.002 * 8)
    worse = minus_plain(results, case(results, FORCED, "sgd_exponential"))
    assert worse is not None
    assert worse.mean < 0.02


def test_the_gap_is_that_to_the_plain_optimizer_without_staleness(results: Results) -> None:
    gap = minus_synchronous(results, case(results, FORCED, "sgd"))
    assert gap is not None
    assert gap.mean == gap.low == gap.high == pytest.approx(-0.05)
    best = nearest(results, [case(results, FORCED, name) for name in SGD])
    assert best is not None
    assert best[0]["optimizer"] == "sgd_inverse"
    assert best[1].mean == pytest.approx(-0.05 + 0.02 + 0.002 * 8)
    assert nearest(results, []) is None


def test_every_training_is_written(results: Results, tmp_path: Path) -> None:
    written = outputs(Staleness(), results, tmp_path)
    cases = written.content["cases"]
    wanted = [(SYNCHRONOUS, name) for name in BASES]
    wanted += [(scenario, name) for scenario in (FORCED, SLOW) for name in CONTESTANTS]
    assert [(case["scenario"], case["optimizer"]) for case in cases] == wanted
    synchronous, plain, discounted = cases[0], cases[4], cases[5]
    assert set(plain["test_accuracy_of_seed"]) == {"1", "2", "3"}
    assert len(plain["validation_accuracy"]) == len(BASES["sgd"].rates)
    assert discounted["minus_plain"]["low"] < discounted["minus_plain"]["high"]
    assert plain["minus_plain"] is None
    assert plain["minus_synchronous"]["mean"] == -0.05
    assert (synchronous["minus_plain"], synchronous["minus_synchronous"]) == (None, None)
    # Whether gradients were as stale as was wanted, and what the best of all loses.
    share, *gaps = written.content["bars"]
    assert (share["value"], share["holds"]) == (0.85, True)
    assert [bar["holds"] for bar in gaps] == [False, False]
    flat = " ".join(written.text.split())
    assert "better than plain SGD with a learning rate of its own: 1 / s." in flat
    assert "-5.00 (-5.00, -5.00)" in flat


def test_large_differences_have_room(results: Results, tmp_path: Path) -> None:
    for seed, accuracy in enumerate((0.5, 0.8, 0.6)):
        for name in CONTESTANTS:
            if name not in BASES:
                add(results, FORCED, training(name, 0.1, seed + 1, accuracy))
    assert "-22.27 (-59.98, +15.44)" in outputs(Staleness(), results, tmp_path).text


def test_it_is_said_when_none_helps(results: Results) -> None:
    for seed in (1, 2, 3):
        same = (training(name, 0.1, seed, 0.8) for name in CONTESTANTS)
        add(results, SLOW, *same)
    lines = [line.plain for line in Staleness().verdicts(results)]
    assert "Adam: none better than plain Adam with a learning rate of its own." in lines
    assert lines[-1].startswith("Best: ")


def test_a_gap_beyond_the_aim_is_not_reached(results: Results) -> None:
    fewer = Results()
    for scenario in (SYNCHRONOUS, FORCED):
        add(fewer, scenario, *map(dict, case(results, scenario, "sgd").runs.values()))
    _, forced, slow = replace(Staleness(), contestants=("sgd",)).bars(fewer)
    assert forced.value == pytest.approx(-5)
    assert forced.holds is False
    assert slow.value is None


def test_one_that_is_tried_alone_has_no_plain_one_beside_it(results: Results) -> None:
    alone = Results()
    for scenario, name in ((SYNCHRONOUS, "momentum"), (FORCED, "momentum_dana")):
        add(alone, scenario, *map(dict, case(results, scenario, name).runs.values()))
    lines = [line.plain for line in Staleness().verdicts(alone)]
    assert [line for line in lines if "plain" in line] == []
    assert any(line.startswith("Best: Nesterov SGD, DANA minus synchronous") for line in lines)
