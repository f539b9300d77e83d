"""`tfps bench placement`: cases, what has an aim, tables and a picture."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from tfps.bench.placement.benchmark import Placing, run
from tfps.bench.placement.plot import write_plot
from tfps.bench.placement.results import PlacementResults
from tfps.bench.placement.shapes import CRITEO_CATEGORIES, MODELS
from tfps.bench.placement.table import tables
from tfps.bench.placement.ways import WAYS


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> PlacementResults:
    """Real ones: nothing has to be started for them."""
    turns: list[str] = []
    settings = Placing(servers=(1, 4), planned_variables=100, repetitions=2)
    results = run(settings, progress=turns.append, log_dir=tmp_path_factory.mktemp("logs"))
    assert len(turns) == settings.turns
    return results


def test_every_model_is_placed_in_every_way(results: PlacementResults) -> None:
    assert len(results.cases) == len(MODELS) * 2 * len(WAYS)
    for case in results.cases:
        assert len(case.bytes_per_server) == case.servers
        assert case.bytes_imbalance >= 0.999 * case.least_imbalance
        if case.servers == 1:
            assert case.bytes_imbalance == case.traffic_imbalance == 1
    totals = {(case.model, sum(case.bytes_per_server)) for case in results.cases}
    assert len(totals) == len(MODELS), "a way of dividing loses or adds something"


def test_models_have_the_sizes_that_they_are_known_for() -> None:
    numbers = {
        name: sum(v.size_bytes for v in model.wanted() if v.is_trained) // 4
        for name, model in MODELS.items()
    }
    assert numbers["resnet"] == 25_583_592  # as Keras's summary says
    assert numbers["giant_table"] == 6_400_000_000 + 1280 * 256 + 256 + 256 + 1
    assert numbers["wide_and_deep"] > 17 * sum(CRITEO_CATEGORIES)


def test_a_large_table_is_divided_and_not_whole(results: PlacementResults) -> None:
    imbalances = {
        way: [c.bytes_imbalance for c in results.of("giant_table", way)][-1] for way in WAYS
    }
    assert imbalances["tensorflow"] == pytest.approx(4, rel=0.01)
    assert imbalances["balanced"] == pytest.approx(1, rel=0.01)


def test_bars_and_report(results: PlacementResults, tmp_path: Path) -> None:
    bars = {bar.name: bar for bar in results.bars()}
    assert len(bars) == 4
    assert all(bar.value is not None for bar in bars.values())
    assert {bar.value for bar in PlacementResults(100).bars()} == {None}
    content = json.loads(results.report(Placing().as_json()).write(tmp_path).read_text())
    assert len(content["cases"]) == len(results.cases) + 1
    assert content["settings"]["servers"] == [1, 2, 4, 8, 64]


def test_the_tables_fit_an_ordinary_terminal(results: PlacementResults) -> None:
    output = io.StringIO()
    Console(file=output, width=80).print(tables(results))
    text = output.getvalue()
    assert "…" not in text
    for way in WAYS.values():
        assert way.title in text


def test_the_plot_is_a_picture(results: PlacementResults, tmp_path: Path) -> None:
    with Image.open(write_plot(results, tmp_path / "placement.png")) as picture:
        assert picture.width > 1000
        assert len(picture.convert("RGB").getcolors(maxcolors=2**24) or []) > 10
