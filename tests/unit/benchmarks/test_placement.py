"""`python -m benchmarks placement`: cases, what has an aim, tables and a picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.model_shapes import CRITEO_CATEGORIES, MODELS
from benchmarks.placement import (
    WAYS,
    Placing,
    bytes_imbalance,
    least_imbalance,
    placed,
    traffic_imbalance,
)
from benchmarks.results import Results
from tests.unit.benchmarks.answers import run_answered
from tests.unit.benchmarks.outputs import outputs

SETTINGS = Placing(servers=(1, 4), planned_variables=100, repetitions=2)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Real ones: no cluster has to be started for them."""
    return run_answered(SETTINGS, tmp_path_factory.mktemp("logs"))


def test_every_model_is_placed_in_every_way(results: Results) -> None:
    cases = placed(results)
    assert len(cases) == len(MODELS) * 2 * len(WAYS)
    totals = set()
    for case in cases:
        bytes_per_server = case.runs[0]["bytes_per_server"]
        assert len(bytes_per_server) == case["servers"]
        assert bytes_imbalance(case) >= 0.999 * least_imbalance(case)
        if case["servers"] == 1:
            assert bytes_imbalance(case) == traffic_imbalance(case) == 1
        totals.add((case["model"], sum(bytes_per_server)))
    assert len(totals) == len(MODELS), "a way of dividing loses or adds something"


def test_models_have_the_sizes_that_they_are_known_for() -> None:
    numbers = {
        name: sum(v.size_bytes for v in model.wanted() if v.is_trained) // 4
        for name, model in MODELS.items()
    }
    assert numbers["resnet"] == 25_583_592  # as Keras's summary says
    assert numbers["giant_table"] == 6_400_000_000 + 1280 * 256 + 256 + 256 + 1
    assert numbers["wide_and_deep"] > 17 * sum(CRITEO_CATEGORIES)


def test_a_large_table_is_divided_and_not_whole(results: Results) -> None:
    imbalances = {
        way: [bytes_imbalance(case) for case in results.of(model="giant_table", way=way)][-1]
        for way in WAYS
    }
    assert imbalances["tensorflow"] == pytest.approx(4, rel=0.01)
    assert imbalances["balanced"] == pytest.approx(1, rel=0.01)


def test_what_has_an_aim_is_compared_and_written(results: Results, tmp_path: Path) -> None:
    written = outputs(SETTINGS, results, tmp_path)
    assert len({bar["name"] for bar in written.content["bars"]}) == 4
    assert all(bar["value"] is not None for bar in written.content["bars"])
    *cases, planning = written.content["cases"]
    assert len(cases) == len(placed(results))
    assert planning["planning_s"]["median"] > 0
    assert written.content["settings"]["servers"] == [1, 4]
    assert all(way.title in written.text for way in WAYS.values())
    assert {bar.value for bar in SETTINGS.bars(Results())} == {None}
