"""A script that makes a strategy, and whose model was made outside of its scope."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.harness.command import run_command

pytestmark = [pytest.mark.rare, pytest.mark.timeout(180)]

SCRIPT = """
import sys
import keras, numpy as np, tfps

def main():  # which the strategy does not outlive
    strategy = tfps.ParameterServerStrategy()
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    for _ in range(2):
        model.fit(np.ones([16, 4]), np.ones([16, 1]), verbose=0)

main()
sys.exit({status})
"""


@pytest.mark.parametrize("status", [0, 3])
def test_a_model_from_outside_the_scope(status: int, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(status=status))
    result = run_command(
        [sys.executable, "-m", "tfps", "run", "--workers", "1", script],
        deadline_s=120,
        environment={"TF_CONFIG": None},
    )
    assert result.returncode == status
    text = result.stderr
    assert text.count("so fit runs in this process alone and no worker takes part") == 1, text
    assert text.count("`with strategy.scope():`") == (2 if status == 0 else 1), text
    assert text.count("[chief] tfps: no step ran on a worker") == (1 if status == 0 else 0), text
