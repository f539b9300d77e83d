"""Every example runs as its first lines say, learns something, and is short."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.harness.command import run_command
from tests.harness.leaks import assert_no_leaks
from tests.integration.project import pages

pytestmark = pytest.mark.timeout(280)

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.py"))
LONGEST_LINES = 80
LEAST_ACCURACY = 0.75  # after three short epochs; guessing gives 0.1
PRINTS = {
    "attach": r"(?s)(after [1-9]\d* updates .* norm [\d.]+.*){3}test accuracy",
    "backup_worker": r"(?s)backup_workers=1.*\d+ rounds in [\d.]+ s, [1-9]\d* gradients dropped",
    "custom_loop": r"epoch 3: loss [\d.]+",
    "embedding_collection": r"test accuracy 0\.9\d\n.*2\.\d requests to each server for each step",
    "embedding_rows": r"SparseUpdates +\d+ steps/s, loss [\d.]+\n.* [1-9]\d* KiB moved for each "
    "step",
    "fit": r"471 updates applied by the parameter server",
    "larger_than_one_server": r"2\.6 GB on 3 servers; loss .*\n.*on the chief: \(4, 1\)",
    "all_reduce": r"(?:on each worker, .*: dense\w*/\w+\n){6}evaluated: [\d.]+",
    "partitioners_and_placement": r"imbalance .*: 1\.0\d\n.*the table.*: \(20000, 32\)",
    "sidecar_evaluator": r"epoch-3\.weights\.h5, iteration 471: accuracy 0\.[789]",
    "staleness_aware": r"(?:.* staleness [\d.]+, accuracy 0\.[5-9]\d*\n){4}",
    "subclassed_model": r"smoothed_loss: [\d.]+",
    "who_applies_the_update": r"all on parameter servers: True\n.*20 updates by 2 workers",
}


# `fit` is the script of the README, and `custom_loop` that of a page: test_pages.py runs both.
@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example(script: Path) -> None:
    (options,) = re.findall(rf"tfps run (.*)examples/{script.name}", script.read_text())
    with assert_no_leaks():
        result = run_command(
            [sys.executable, "-m", "tfps", "run", *options.split(), script],
            deadline_s=240,
            environment={"TF_CONFIG": None},
        )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(PRINTS.get(script.stem, ""), result.stdout), result.stdout
    for accuracy in re.findall(r"test accuracy ([\d.]+)", result.stdout):
        assert float(accuracy) > LEAST_ACCURACY
    printed = re.sub(r"^\[\w+ ?\d*\] ", "", result.stdout, flags=re.M)
    for sample in pages.samples(script.stem):
        assert pages.not_shown(sample.text, printed) == [], result.stdout


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short_and_says_how_to_run_it(script: Path) -> None:
    text = script.read_text()
    assert len(text.splitlines()) < LONGEST_LINES
    assert re.search(rf"tfps run .*examples/{script.name}", text)
