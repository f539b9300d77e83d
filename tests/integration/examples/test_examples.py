"""Every example runs as its first lines say, learns something, and is short."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.integration.project import pages
from tfps.testing import run_command, watch_leftovers

pytestmark = pytest.mark.timeout(280)

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.py"))
LONGEST_LINES = 80
LEAST_ACCURACY = 0.75  # after three short epochs; guessing gives 0.1
SERVERS = {"who_applies_the_update": "2"}
PRINTS = {
    "custom_loop": r"epoch 3: loss [\d.]+",
    "fit": r"471 updates applied by the parameter server",
    "sidecar_evaluator": r"epoch-3\.weights\.h5, iteration 471: accuracy 0\.[789]",
    "subclassed_model": r"smoothed_loss: [\d.]+",
}


@pytest.mark.quick("custom_loop", "fit", "who_applies_the_update")
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example(script: Path) -> None:
    ps = SERVERS.get(script.stem, "1")
    with watch_leftovers():
        result = run_command(
            [sys.executable, "-m", "tfps", "run", "--workers", "2", "--ps", ps, script],
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
