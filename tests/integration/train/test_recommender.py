"""`tfps train recommender`: a planted click log, whose best possible AUC is known."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.harness.command import run_command
from tests.harness.leaks import assert_no_leaks
from tests.integration.library_lines import RAW
from tests.unit.recommender.click_files import rows, write_criteo, write_parquet, write_tfrecord
from tfps.config import load
from tfps.config.bundle import find_example

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

RECOMMENDER = [sys.executable, "-m", "tfps", "train", "recommender"]
ALONE = {"TF_CONFIG": None}
# 486 rows in all, so that each is seen often: 256 steps learn what takes 20 million rows an hour.
SMALL = {
    "data.max_table_rows": 20,
    "data.batch_size": 256,
    "data.click_log.examples_per_epoch": 32_768,
    "data.click_log.validation_examples": 4_096,
    "data.click_log.test_examples": 16_384,
    "data.click_log.target_auc": 0.72,
    "training.epochs": 2,
    "training.learning_rate": 0.01,
}
RESULTS = {
    "checkpoints",
    "config.toml",
    "events.jsonl",
    "logs",
    "metrics.jsonl",
    "model",
    "result.json",
    "roc_and_calibration.png",
    "staleness.png",
    "training_curves.png",
}


def _trained(
    folder: Path, changes: Mapping[str, float | str], *, deadline_s: float
) -> subprocess.CompletedProcess[str]:
    changed = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
    with assert_no_leaks():
        result = run_command(
            [*RECOMMENDER, *changed], deadline_s=deadline_s, environment=ALONE, folder=folder
        )
    assert result.returncode == 0, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("recommender")
    result = _trained(folder, SMALL, deadline_s=300)
    assert not RAW.search(result.stdout + result.stderr), result.stdout + result.stderr
    return folder / "runs" / "recommender", result.stdout


def test_a_small_one_reaches_the_planted_auc(small: tuple[Path, str]) -> None:
    output, shown = small
    result = json.loads((output / "result.json").read_text())
    assert result["best_auc"] == pytest.approx(0.83, abs=0.02)
    assert 0.72 <= result["test_auc"] <= result["best_auc"] + 0.01
    assert 0.3 < result["test_log_loss"] < 0.52
    assert result["examples_seen"] == 2 * 32_768
    assert (result["cluster"]["workers"], result["cluster"]["ps"]) == (2, 2)
    assert [set(epoch["metrics"]) for epoch in result["history"]] == [
        {"loss", "auc", "val_loss", "val_auc"}
    ] * 2
    assert sum(result["calibration"]["examples"]) == 16_384
    auc, best = result["test_auc"], result["best_auc"]
    assert f"Test AUC {auc:.4f} of at most {best:.4f} (log loss" in shown
    assert re.search(r"; target 0\.72 reached\) after 2 epochs, \d+ steps/s$", shown, re.M), shown


def test_it_says_how_large_it_is_and_leaves_its_results(small: tuple[Path, str]) -> None:
    output, shown = small
    assert "65,536 training, 4,096 validation and 16,384 test examples" in shown
    assert "26 tables of " in shown
    assert {path.name for path in output.iterdir()} == RESULTS
    assert "model/, training_curves.png, roc_and_calibration.png, staleness.png" in shown
    again = tomllib.loads((output / "config.toml").read_text())
    assert again["data"]["click_log"]["target_auc"] == 0.72
    assert load(output / "config.toml").example == "recommender"


@pytest.mark.parametrize("kind", ["criteo", "tfrecord", "parquet"])
def test_workers_read_files(tmp_path: Path, kind: str) -> None:
    columns = find_example("recommender").module("columns")
    (tmp_path / "clicks").mkdir()
    for number in range(2):
        file, lines = tmp_path / "clicks" / f"day_{number}", rows(1000)
        if kind == "criteo":
            write_criteo(file.with_suffix(".tsv.gz"), lines)
        elif kind == "tfrecord":
            write_tfrecord(file.with_suffix(".tfrecord"), lines, columns)
        else:
            write_parquet(file.with_suffix(".parquet"), lines, columns)
    changes = {"data.batch_size": 10, "data.max_table_rows": 20, "training.epochs": 2}
    result = _trained(tmp_path, {**changes, "data.path": "clicks"}, deadline_s=300)
    assert f"2 {kind} files of clicks: 90 % training, 5 % validation" in result.stdout
    written = json.loads((tmp_path / "runs" / "recommender" / "result.json").read_text())
    assert written["examples_seen"] == 2 * 2 * 900
    assert [epoch["steps"] for epoch in written["history"]] == [180, 180]
    assert sum(written["calibration"]["examples"]) == 2 * 50
    assert written["best_auc"] is None
    assert re.search(r"^Test AUC 0\.\d+ \(log loss 0\.\d+\) after", result.stdout, re.M)
