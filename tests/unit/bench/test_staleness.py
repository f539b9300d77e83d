from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import pytest

from tests.unit.bench.outputs import outputs
from tfps.bench.contestant_runs import (
    COMPARE,
    SYNCHRONOUS,
    TUNE,
    ContestantRuns,
    helpers,
    minus_plain,
    minus_synchronous,
    nearest,
)
from tfps.bench.contestants import BASES, CONTESTANTS
from tfps.bench.results import Results
from tfps.bench.staleness import FORCED, SLOW, TUNING_SEED, Staleness, by_base

SGD = by_base(list(CONTESTANTS))["sgd"]


def add(results: Results, scenario: str, phase: str, *trainings: dict[str, Any]) -> None:
    for each in trainings:
        found = each | {"phase": phase}
        results.add(found, scenario=scenario, optimizer=each["contestant"], phase=phase)


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
                tried = training(name, rate, 0, 0.8 - 0.01 * abs(position - 2))
                add(measured, scenario, TUNE, tried)
        gains = {"sgd_inverse": 0.02, "sgd_exponential": -0.02, "adam_inverse": 0.0}
        if scenario == SYNCHRONOUS:
            gains = dict.fromkeys(BASES, 0.05)
        for seed in (1, 2, 3):
            for name in names:
                accuracy = 0.8 + gains.get(name, 0.0) + 0.001 * seed * len(name)
                add(measured, scenario, COMPARE, training(name, 0.1, seed, accuracy))
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
    assert TUNING_SEED not in range(1, Staleness().repetitions + 1)


def test_a_quick_run_tries_the_middle_of_the_grid() -> None:
    quick = Staleness().quick()
    assert list(by_base(quick.contestants)) == ["sgd"]
    assert quick.rates_of("sgd") == BASES["sgd"].rates[2:4]
    assert Staleness().rates_of("sgd") == BASES["sgd"].rates
    assert (quick.turns, Staleness().turns) == (3, 12)


def test_gradients_lack_what_the_scenario_says() -> None:
    forced, slow = (Staleness().scenarios[name] for name in (FORCED, SLOW))
    assert forced.order(pushes=40, seed=1) == [*range(17), *range(17), *range(6)]
    order = slow.order(pushes=700, seed=1)
    # Seven workers that are five times as fast as the eighth.
    assert pytest.approx(order.count(0), abs=3) == 700 / 36


def test_the_best_rate_is_that_of_the_held_out_images(results: Results) -> None:
    runs = ContestantRuns.of(results, FORCED, "sgd")
    assert runs.best_rate == BASES["sgd"].rates[2]
    assert not Staleness().is_at_edge(runs)
    add(results, FORCED, TUNE, training("sgd", 0.003, 0, 0.9))
    runs = ContestantRuns.of(results, FORCED, "sgd")
    assert runs.best_rate == 0.003
    assert Staleness().is_at_edge(runs)
    assert ContestantRuns.of(results, SLOW, "sgd").best_rate == BASES["sgd"].rates[2]


def test_who_helps_ends_better_with_confidence(results: Results) -> None:
    # The lead of the one with s + 1 is as large, but varies too much from seed to seed.
    assert helpers(results, FORCED, SGD) == ["sgd_inverse"]
    assert minus_plain(results, FORCED, "sgd") is None
    better = minus_plain(results, FORCED, "sgd_inverse")
    assert better is not None
    assert better.mean == pytest.approx(0.02 + 0.002 * 8)
    worse = minus_plain(results, FORCED, "sgd_exponential")
    assert worse is not None
    assert worse.mean < 0.02


def test_the_gap_is_that_to_the_plain_optimizer_without_staleness(results: Results) -> None:
    gap = minus_synchronous(results, FORCED, "sgd")
    assert gap is not None
    assert gap.mean == gap.low == gap.high == pytest.approx(-0.05)
    best = nearest(results, FORCED, SGD)
    assert best is not None
    assert best[0] == "sgd_inverse"
    assert best[1].mean == pytest.approx(-0.05 + 0.02 + 0.002 * 8)
    assert nearest(Results(), FORCED, SGD) is None


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
                add(results, FORCED, COMPARE, training(name, 0.1, seed + 1, accuracy))
    assert "-22.27 (-59.98, +15.44)" in outputs(Staleness(), results, tmp_path).text


def test_it_is_said_when_none_helps(results: Results) -> None:
    for seed in (1, 2, 3):
        same = (training(name, 0.1, seed, 0.8) for name in CONTESTANTS)
        add(results, SLOW, COMPARE, *same)
    lines = [line.plain for line in Staleness().verdicts(results)]
    assert "Adam: none better than plain Adam with a learning rate of its own." in lines
    assert lines[-1].startswith("Best: ")


def test_a_gap_beyond_the_aim_is_not_reached(results: Results) -> None:
    fewer = Results()
    for scenario in (SYNCHRONOUS, FORCED):
        for case in results.of(scenario=scenario, optimizer="sgd"):
            for run in case.runs.values():
                add(fewer, scenario, case["phase"], dict(run))
    _, forced, slow = replace(Staleness(), contestants=("sgd",)).bars(fewer)
    assert forced.value == pytest.approx(-5)
    assert forced.holds is False
    assert slow.value is None


def test_one_that_is_tried_alone_has_no_plain_one_beside_it(results: Results) -> None:
    alone = Results()
    for scenario, name in ((SYNCHRONOUS, "momentum"), (FORCED, "momentum_dana")):
        for case in results.of(scenario=scenario, optimizer=name):
            for run in case.runs.values():
                add(alone, scenario, case["phase"], dict(run))
    lines = [line.plain for line in Staleness().verdicts(alone)]
    assert [line for line in lines if "plain" in line] == []
    assert any(line.startswith("Best: Nesterov SGD, DANA minus synchronous") for line in lines)
