"""Models of tf_keras train under our pair as under TensorFlow's: the same numbers."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.harness.command import run_command

DEADLINE_S = 240.0

pytestmark = [
    pytest.mark.rare,
    pytest.mark.timeout(DEADLINE_S + 30),
    # Looked for, not imported: this process has Keras 3.
    pytest.mark.skipif(
        importlib.util.find_spec("tf_keras") is None,
        reason="TensorFlow's own strategy needs tf_keras: tfps[bench]",
    ),
]


@pytest.fixture(scope="module")
def found() -> Any:
    script = Path(__file__).with_name("legacy_keras.py")
    environment = {"TF_USE_LEGACY_KERAS": "1"}
    result = run_command(
        [sys.executable, str(script)], deadline_s=DEADLINE_S, environment=environment
    )
    assert result.returncode == 0, result.stderr
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("found "))
    return json.loads(line.removeprefix("found "))


def test_it_is_tf_keras(found: Any) -> None:
    assert found["keras"].startswith("tf_keras.")


@pytest.mark.parametrize("case", ["fit", "loop"])
def test_same_numbers(case: str, found: Any) -> None:
    stock, ours = (np.array(found["numbers"][case][name]) for name in ("stock", "tfps"))
    assert np.ptp(stock) > 0.1
    assert len(stock) > 50
    np.testing.assert_allclose(ours, stock, rtol=1e-5, atol=1e-5)
