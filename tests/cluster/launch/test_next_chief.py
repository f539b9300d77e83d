"""A second chief uses the tasks of a cluster after the first one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.command import run_command
from tfps.launch import LocalCluster
from tfps.launch.environment import task_environment

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]

# Large enough that the servers compile the push; the job and the rate are constants of it.
CHIEF = """
import os, sys
import keras, numpy as np
import tfps
strategy = tfps.ParameterServerStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(256, use_bias=False)])
    model.compile(keras.optimizers.SGD(float(sys.argv[1])), lambda _, output: output)
before = model.get_weights()[0]
model.fit(np.ones([10, 256]), np.ones([10, 1]), batch_size=1, epochs=2, verbose=0)
step = float((before - model.get_weights()[0]).mean()) * 256 / 20
print("iterations", int(model.optimizer.iterations), "rate", round(step, 4), flush=True)
os._exit(0)  # the tasks stay
"""


# A quicker chief after another one is in tests/cluster/launch/test_killed_chief.py.
def test_what_a_server_compiled_for_the_chief_before_is_not_run(
    cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    local, script = cluster(workers=1, ps=1), tmp_path / "chief.py"
    script.write_text(CHIEF)
    environment = {**os.environ, **task_environment(local.spec, "chief", 0)}
    for rate in ("0.5", "0.25"):
        command = [sys.executable, str(script), rate]
        result = run_command(command, deadline_s=90, environment=environment)
        assert result.returncode == 0, result.stderr
        assert f"iterations 20 rate {rate}" in result.stdout
