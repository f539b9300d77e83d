"""Which aims `python -m benchmarks network` compares, and what an epoch exceeds another by."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from benchmarks.network import NetworkBenchmark
from benchmarks.network_accuracy import end_s
from benchmarks.network_rows import (
    ACCURACY,
    CODECS,
    SLOW_MBIT,
    SMALL,
    SMALL_MODELS,
    STEPS,
    TRAINED,
    UNLIMITED,
    WAYS,
    is_usual,
)
from benchmarks.network_steps import difference
from benchmarks.results import Results
from benchmarks.usage import Sample
from tests.unit.benchmarks.outputs import answer, outputs, sample


def _results(*, has_links: bool = True, **accounting: float) -> Results:
    results = Results()
    for way, rate in (("everything", 2.0), ("changes", 9.0)):
        run: dict[str, Any] = {**answer(sample(rate)), "up_bytes_per_step": 6e6}
        run["has_links"] = has_links
        if way in accounting:
            run["accounting"] = accounting[way]
        results.add(run, part=STEPS, rate=SLOW_MBIT, model="fine_tuned", way=way)
    return results


def test_fine_tuning_is_compared_with_sending_everything(tmp_path: Any) -> None:
    written = outputs(NetworkBenchmark(), _results(changes=1.01, everything=0.97), tmp_path)
    bars = {bar["name"]: bar for bar in written.content["bars"] if bar["value"] is not None}
    tuning, accounting = bars.values()
    assert "90 % frozen" in tuning["name"]
    assert (tuning["value"], tuning["holds"]) == (4.5, True)
    assert (accounting["value"], accounting["holds"]) == (0.03, False)
    assert "100 Mbit/s: 16 million parameters, 90 % frozen" in written.text
    assert "6.00" in written.text


def test_it_says_when_there_are_no_links(tmp_path: Any) -> None:
    with_links, without = (
        outputs(NetworkBenchmark(), _results(has_links=has_links), tmp_path)
        for has_links in (True, False)
    )
    assert with_links.content["links"] == "namespaces"
    assert without.content["links"] == "token buckets"
    assert "held back what it sent" in " ".join(without.text.split())
    assert "held back" not in with_links.text


def test_what_was_not_measured_has_no_value() -> None:
    bars = NetworkBenchmark().bars(Results())
    assert {bar.value for bar in bars} == {None}


def _trained(results: Results, way: str, accuracies: dict[int, float]) -> None:
    for seed, accuracy in accuracies.items():
        run = {
            **answer(sample(100.0)),
            "curve": [(1.0, 0.5), (3.0, accuracy)],
            "bytes": [1_000_000, 5_000_000 if way == "whole" else 1_250_000],
        }
        axes = {"part": ACCURACY, "rate": UNLIMITED, "model": TRAINED, "way": way}
        results.add(run, seed=seed, **axes)


def test_accuracies_are_compared_seed_by_seed(tmp_path: Path) -> None:
    results = Results()
    _trained(results, "whole", {1: 0.88, 2: 0.86, 3: 0.90})
    _trained(results, SMALL, {1: 0.877, 2: 0.857, 3: 0.897})
    written = outputs(NetworkBenchmark(), results, tmp_path)
    (lost,) = (bar for bar in written.content["bars"] if bar["value"] is not None)
    assert "final accuracy" in lost["name"]
    assert (lost["value"], lost["holds"]) == (-0.3, True)
    whole, small = written.content["cases"]
    assert whole["accuracy_gained"] is None  # of the way that others are compared with
    assert small["accuracy_gained"]["mean"] == -0.003
    assert "-0.30 (-0.30, -0.30)" in written.text


def test_links_take_as_long_as_the_bytes_of_a_worker_need() -> None:
    run = {"curve": [(1.0, 0.5), (3.0, 0.9)], "bytes": [1_000_000, 5_000_000]}
    # Two workers share five megabytes: 20 million bits each.
    assert end_s(run, 100) == pytest.approx(3.2)
    assert end_s(run, 1000, point=0) == pytest.approx(1.004)
    assert end_s(run, UNLIMITED) == 3.0


def test_the_dearest_codec_is_judged_without_limit() -> None:
    results = Results()
    for way, rate in (("whole", 10.0), ("cast", 9.0), ("quantize_8", 8.0), ("local_steps", 2.0)):
        run = {**answer(sample(rate)), "has_links": True}
        results.add(run, part=STEPS, rate=UNLIMITED, model=TRAINED, way=way)
    (bar,) = (bar for bar in NetworkBenchmark().bars(results) if bar.value is not None)
    assert bar.value == pytest.approx(1.25)
    assert bar.holds


def test_fast_links_leave_rows_out_unless_they_are_named(tmp_path: Path) -> None:
    one_row: dict[str, Any] = {"rates": (1000,), "models": ("mlp",), "ways": ("cast",)}
    usual, slow, named = (
        len(list(NetworkBenchmark(parts=(STEPS,), **chosen).plan(tmp_path)))
        for chosen in ({}, {"rates": (SLOW_MBIT,)}, one_row)
    )
    assert usual < 3 * slow
    assert named == 1
    # Every codec is measured on slow links, with both small models, and without limit.
    for model, rate in itertools.product(SMALL_MODELS, (SLOW_MBIT, UNLIMITED)):
        if (model, rate) != ("mlp", UNLIMITED):
            assert all(is_usual(rate, model, way) for way in CODECS)
    assert all(set(SMALL_MODELS) <= set(WAYS[way].models) for way in CODECS)


def test_the_longer_epoch_leaves_joining_out() -> None:
    short, long = Sample(10, 3.0, 2.0, 1.0), Sample(20, 5.0, 3.0, 1.5)
    assert difference(short, long) == Sample(10, 2.0, 1.0, 0.5)
    # Noise of a busy machine: no rate is better than one of seconds below zero.
    assert difference(short, Sample(20, 2.8, 3.0, 1.5)) == Sample(10, 1.4, 1.5, 0.75)


def test_stock_needs_tf_keras_and_is_left_out_where_nothing_holds_it_back(tmp_path: Path) -> None:
    stock = NetworkBenchmark(ways=("stock",), rates=(SLOW_MBIT,), models=(TRAINED,))
    assert stock.needs_tf_keras
    assert not stock.quick().needs_tf_keras
    (turn,) = stock.plan(tmp_path)
    assert turn.environment
    results = Results()
    stock.take(results, turn, None)
    assert results.cases == []
