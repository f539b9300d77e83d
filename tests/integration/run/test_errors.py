"""A script whose training fails: its line, once, a status that is not 0, and nothing hangs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.harness.command import run_command
from tests.integration.library_lines import RAW

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]

SCRIPT = """
import keras, numpy as np, tensorflow as tf, tfps

def loss(y_true, y_pred):
    {line}  # the mistake
    return tf.reduce_mean((y_true - y_pred) ** 2)

strategy = tfps.ParameterServerStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", loss)
x = np.ones([640, 4], np.float32)
x[333] = np.nan
model.fit(x, np.ones([640, 1]), batch_size=8, verbose=0)
"""


# What the error says is in tests/cluster/errors/test_steps.py, and how `tfps run` shows one in
# test_local.py.
@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("y_pred = tf.debugging.check_numerics(y_pred, 'not a number')", "InvalidArgumentError"),
        ("raise KeyError('not a number')", "KeyError"),
        ("y_pred = tf.numpy_function(abs, [y_pred], tf.float32)", "UnsupportedError"),
    ],
)
def test_a_step_that_fails(line: str, kind: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(line=line))
    result = run_command(
        [sys.executable, "-m", "tfps", "run", "--workers", "2", script],
        deadline_s=120,
        environment={"TF_CONFIG": None},
    )
    assert result.returncode == 1
    text = result.stderr
    assert text.count("Traceback (most recent call last)") == 1, text
    assert text.count("# the mistake") == 1, text
    assert text.count("model.fit(") == 1, text
    assert kind in text
    assert len(text.splitlines()) < 35, text
    assert not RAW.search(text.replace(str(tmp_path), "")), text
